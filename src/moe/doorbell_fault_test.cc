// What the doorbell does when something fails: errors of one row, errors of the device, and a CPU that does not answer.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "base/counting_new_for_test.h"
#include "moe/doorbell_rig_for_test.h"

namespace bellhop::moe {
namespace {

using cuda::DeviceErrorCode;
using cuda::RowErrorCode;
using cuda::SoloGroup;

constexpr int32_t kUsed = 4, kExperts = 8;

// Answers each row with `value`; can be told to hang, to fail a row or the step.
class ScriptedRunner final : public MissRunner {
 public:
  bool RunMisses(const MissRequest& request) override {
    entered.store(true);
    while (hang.load()) std::this_thread::yield();
    if (fail) return false;
    const std::vector<float> sums(static_cast<size_t>(request.sums.cols), value);
    for (int32_t m = 0; m < request.routes.rows; ++m) {
      if ((fail_rows >> m & 1u) != 0) {
        cuda::PublishMark(cuda::kFailedMark, request.sums.cols, request.sums.Row(m));
      } else {
        cuda::PublishSums(sums.data(), request.sums.cols, request.sums.Row(m));
      }
    }
    return true;
  }
  std::atomic<bool> hang{false}, entered{false};
  uint32_t fail_rows = 0;
  bool fail = false;
  float value = 2;
};

struct FaultRig {
  FaultRig() : memory(TestChannelBytes(kUsed)), channel(MakeTestChannel(memory, kUsed)), gpu(channel), random(1) {
    auto created = DoorbellService::Create(channel, &runner, {.experts_per_layer = {kExperts, kExperts, kExperts}});
    EXPECT_TRUE(created.ok());
    service = std::move(*created);
  }
  LayerStep Step(int32_t rows) { return RandomLayerStep(&random, rows, kUsed, kExperts); }

  PageMemory memory;
  cuda::DoorbellChannel channel;
  ScriptedRunner runner;
  FakeGpu gpu;
  std::mt19937 random;
  TestPlacement cold = TestPlacement::Random({kExperts, kExperts, kExperts}, {0.0}, 1);
  std::unique_ptr<DoorbellService> service;
};

TEST(DoorbellFaultTest, ADeadServiceIsAnErrorWithinTheDeadline) {
  FaultRig rig;
  rig.runner.hang = true;
  rig.gpu.state().deadline_ns = 20'000'000;
  ASSERT_TRUE(rig.service->BeginStep().ok());
  for (int32_t l = 0; l < 3; ++l) {  // the layers after the first neither ring nor wait
    LayerStep step = rig.Step(2);
    const std::vector<float> y = step.y;
    rig.gpu.RunLayer(SoloGroup(), l, rig.cold, &step);
    EXPECT_EQ(step.y, y);
  }
  EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kDeadline);
  EXPECT_EQ(rig.gpu.state().error.layer, 0);
  EXPECT_GT(rig.gpu.state().error.waited_ns, 20'000'000u);
  EXPECT_EQ(rig.gpu.state().rings, 1u);
  const Status status = rig.service->EndStep();
  EXPECT_EQ(status.code(), StatusCode::kCuda);
  EXPECT_NE(status.message().find("layer 0"), std::string::npos) << status.ToString();
  EXPECT_EQ(rig.service->BeginStep().ToString(), status.ToString());
  EXPECT_EQ(rig.service->EndStep().ToString(), status.ToString());
  rig.runner.hang = false;
  rig.service->Stop();
  // Its late answer changes nothing, and the channel cannot be used again.
  EXPECT_EQ(rig.service->BeginStep().ToString(), status.ToString());
  EXPECT_EQ(DoorbellService::Create(rig.channel, &rig.runner, {}).status().ToString(), status.ToString());
}

TEST(DoorbellFaultTest, WithoutAServiceTheDeadlineEndsTheWait) {
  FaultRig rig;
  rig.service->Stop();
  cuda::StoreReleaseSystem(&rig.channel.header->abort, 0);
  rig.gpu.state().deadline_ns = 1'000'000;
  LayerStep step = rig.Step(1);
  rig.gpu.RunLayer(SoloGroup(), 2, rig.cold, &step);
  EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kDeadline);
  EXPECT_EQ(cuda::DoorbellDeviceStatus(rig.channel).code(), StatusCode::kCuda);
}

TEST(DoorbellFaultTest, AbortEndsTheWaitAndRefusesLaterSteps) {
  FaultRig rig;
  rig.runner.hang = true;
  ASSERT_TRUE(rig.service->BeginStep().ok());
  std::thread gpu([&rig] {
    LayerStep step = rig.Step(1);
    rig.gpu.RunLayer(SoloGroup(), 1, rig.cold, &step);
  });
  while (!rig.runner.entered.load()) std::this_thread::yield();
  rig.service->Abort(Cancelled("the process is asked to stop"));
  gpu.join();  // no deadline is set
  EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kAborted);
  const Status status = rig.service->EndStep();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "the process is asked to stop");
  EXPECT_EQ(rig.service->BeginStep().ToString(), status.ToString());
  rig.runner.hang = false;
}

// Stopping while the device waits for the request that the thread has not seen.
TEST(DoorbellFaultTest, StopDoesNotLeaveTheDeviceWaiting) {
  FaultRig rig;
  LayerStep step = rig.Step(1);
  std::thread gpu([&] { rig.gpu.RunLayer(SoloGroup(), 0, rig.cold, &step); });  // no step has begun: nobody answers
  while (cuda::LoadAcquireSystem(rig.channel.header->req_seq) == 0) std::this_thread::yield();
  rig.service->Stop();
  gpu.join();
  EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kAborted);
}

TEST(DoorbellFaultTest, ARingWhileAnotherIsOutstandingIsRefused) {
  FaultRig rig;
  rig.runner.hang = true;
  ASSERT_TRUE(rig.service->BeginStep().ok());
  LayerStep first = rig.Step(1), second = rig.Step(1);
  rig.gpu.Classify(SoloGroup(), 0, rig.cold, &first);
  const uint64_t rung = cuda::LoadAcquireSystem(rig.channel.header->req_seq);
  const std::vector<float> y = second.y;
  rig.gpu.Classify(SoloGroup(), 1, rig.cold, &second);
  EXPECT_EQ(cuda::LoadAcquireSystem(rig.channel.header->req_seq), rung);
  EXPECT_EQ(rig.channel.header->request.layer, 0);  // the payload of the first is untouched
  EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kOverflow);
  rig.gpu.Wait(SoloGroup(), 1, &second);
  EXPECT_EQ(second.y, y);
  rig.runner.hang = false;
  EXPECT_EQ(rig.service->EndStep().code(), StatusCode::kInternal);
}

TEST(DoorbellFaultTest, MoreRowsOrRoutesThanTheChannelHoldsAreRefused) {
  for (const bool rows : {true, false}) {
    FaultRig rig;
    LayerStep step =
        RandomLayerStep(&rig.random, rows ? cuda::kDoorbellMaxRows + 1 : 1, rows ? kUsed : kUsed + 1, kExperts);
    ASSERT_TRUE(rig.service->BeginStep().ok());
    rig.gpu.RunLayer(SoloGroup(), 0, rig.cold, &step);
    EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kOverflow);
    EXPECT_EQ(step.route_slots, std::vector<int32_t>(step.ids.size(), cuda::kDroppedRoute));
    const Status status = rig.service->EndStep();
    EXPECT_NE(status.message().find("32 and 4"), std::string::npos) << status.ToString();
    EXPECT_EQ(rig.service->served(), 0u);
  }
}

TEST(DoorbellFaultTest, ARowWithoutNumbersFailsAlone) {
  FaultRig rig;
  for (int kind = 0; kind < 4; ++kind) {
    ASSERT_TRUE(rig.service->BeginStep().ok());
    rig.gpu.BeginStep(SoloGroup());
    LayerStep step = rig.Step(3);
    const std::vector<float> y = step.y;
    if (kind == 0) step.weights[5] = std::numeric_limits<float>::quiet_NaN();
    if (kind == 1) step.weights[6] = std::numeric_limits<float>::infinity();
    if (kind == 2) step.ids[4] = -1;
    if (kind == 3) step.ids[7] = kExperts;
    rig.gpu.RunLayer(SoloGroup(), 1, rig.cold, &step);
    LayerStep later = rig.Step(3);
    rig.gpu.RunLayer(SoloGroup(), 2, rig.cold, &later);  // the row stays out for the rest of the step
    for (int32_t r = kUsed; r < 2 * kUsed; ++r) {
      EXPECT_EQ(step.route_slots[static_cast<size_t>(r)], cuda::kDroppedRoute);
      EXPECT_EQ(later.route_slots[static_cast<size_t>(r)], cuda::kDroppedRoute);
    }
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(step.y[i], i / kTestHidden == 1 ? y[i] : y[i] + 2) << i;
    EXPECT_TRUE(rig.service->EndStep().ok());
    const cuda::RowError error = rig.gpu.state().rows[1];
    EXPECT_EQ(error.code, RowErrorCode::kRouter);
    EXPECT_EQ(error.layer, 1);
    EXPECT_NE(cuda::DoorbellRowStatus(error).message().find("layer 1"), std::string::npos);
    EXPECT_TRUE(cuda::DoorbellRowStatus(rig.gpu.state().rows[0]).ok());
  }
  EXPECT_EQ(rig.gpu.state().counters.dropped, 4u * 2 * kUsed);
}

TEST(DoorbellFaultTest, AnExpertThatCannotBeReadFailsItsRowsAlone) {
  FaultRig rig;
  ASSERT_TRUE(rig.service->BeginStep().ok());
  rig.gpu.BeginStep(SoloGroup());
  rig.runner.fail_rows = 0b0101;
  LayerStep step = rig.Step(4);
  const std::vector<float> y = step.y;
  rig.gpu.RunLayer(SoloGroup(), 0, rig.cold, &step);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(step.y[i], i / kTestHidden % 2 == 0 ? y[i] : y[i] + 2) << i;
  EXPECT_TRUE(rig.service->EndStep().ok());
  EXPECT_EQ(rig.gpu.state().rows[0].code, RowErrorCode::kExpert);
  EXPECT_EQ(rig.gpu.state().rows[1].code, RowErrorCode::kNone);
  EXPECT_EQ(rig.gpu.state().rows[2].code, RowErrorCode::kExpert);
  EXPECT_EQ(cuda::DoorbellRowStatus(rig.gpu.state().rows[2]).code(), StatusCode::kIo);
  // The next step's rows belong to other sequences.
  rig.runner.fail_rows = 0;
  ASSERT_TRUE(rig.service->BeginStep().ok());
  rig.gpu.BeginStep(SoloGroup());
  LayerStep next = rig.Step(4);
  const std::vector<float> next_y = next.y;
  rig.gpu.RunLayer(SoloGroup(), 0, rig.cold, &next);
  EXPECT_TRUE(rig.service->EndStep().ok());
  for (size_t i = 0; i < next_y.size(); ++i) EXPECT_EQ(next.y[i], next_y[i] + 2);
}

TEST(DoorbellFaultTest, AFailedExpertLoadReachesItsRowThroughTheColdPath) {
  TestLayers layers({kExperts});
  TestLayers::Path path = layers.MakePath(1, kUsed);
  std::vector<std::atomic<ExpertReady>> ready(kExperts);
  for (auto& state : ready) state.store(ExpertReady::kReady);
  ready[3].store(ExpertReady::kFailed);
  ColdPathRunner runner(path.cold.get(), {ready.data()});
  PageMemory memory(TestChannelBytes(kUsed));
  const cuda::DoorbellChannel channel = MakeTestChannel(memory, kUsed);
  auto service = DoorbellService::Create(channel, &runner, {.experts_per_layer = {kExperts}});
  ASSERT_TRUE(service.ok());
  FakeGpu gpu(channel);
  std::mt19937 random(2);
  const TestPlacement cold = TestPlacement::Random({kExperts}, {0.0}, 1);
  LayerStep step = RandomLayerStep(&random, 2, kUsed, kExperts);
  step.ids = {0, 1, 2, 4, 0, 3, 2, 1};
  const std::vector<float> y = step.y, expected = ExpectedY(path.cold.get(), 0, cold, step);
  ASSERT_TRUE((*service)->BeginStep().ok());
  gpu.RunLayer(SoloGroup(), 0, cold, &step);
  EXPECT_TRUE((*service)->EndStep().ok());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(step.y[i], i < kTestHidden ? expected[i] : y[i]) << i;
  EXPECT_EQ(gpu.state().rows[1].code, RowErrorCode::kExpert);
}

TEST(DoorbellFaultTest, AStepThatTheCpuCannotRunPoisons) {
  FaultRig rig;
  rig.runner.fail = true;
  ASSERT_TRUE(rig.service->BeginStep().ok());
  LayerStep step = rig.Step(1);
  rig.gpu.RunLayer(SoloGroup(), 1, rig.cold, &step);
  EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kService);
  EXPECT_NE(rig.service->EndStep().message().find("cold path failed"), std::string::npos);
}

// Requests that a damaged device would make; the fake GPU writes them by hand.
TEST(DoorbellFaultTest, RequestsThatCannotBeRunAreRefused) {
  for (int kind = 0; kind < 6; ++kind) {
    FaultRig rig;
    LayerStep step = rig.Step(2);
    rig.gpu.Classify(SoloGroup(), 0, rig.cold, &step);  // rings before the step has begun, so nobody looks yet
    cuda::DoorbellRequest& request = rig.channel.header->request;
    if (kind == 0) request.layer = 3;
    if (kind == 1) request.rows = cuda::kDoorbellMaxRows + 1;
    if (kind == 2) request.used = kUsed + 1;
    if (kind == 3) rig.channel.ids[1] = kExperts;
    if (kind == 4) request.miss_rows = 1;
    if (kind == 5) request.seq = 7;
    ASSERT_TRUE(rig.service->BeginStep().ok());
    rig.gpu.Wait(SoloGroup(), 0, &step);
    EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kService) << kind;
    EXPECT_NE(rig.service->EndStep().message().find("does not exist"), std::string::npos) << kind;
    EXPECT_FALSE(rig.runner.entered.load());
  }
}

// What a request left in a place is gone before a later one's sums are looked for there.
TEST(DoorbellFaultTest, SumsOfEarlierRequestsAreNeverTaken) {
  PageMemory memory(TestChannelBytes(kUsed));
  const cuda::DoorbellChannel channel = MakeTestChannel(memory, kUsed);
  cuda::DoorbellSums sums(channel);
  const std::vector<float> row(kTestHidden, 1.0f);
  const auto slot = [&](uint64_t seq) { return channel.sums + cuda::SumSlot(channel, seq); };
  for (uint64_t seq = 1; seq < 20; ++seq) {
    const auto rows = static_cast<int32_t>(1 + seq % 3);
    // While this one is answered, the device may still be reading the one before, and soon looks for the next.
    for (int64_t i = 0; i < channel.max_rows * channel.stride; ++i) {
      ASSERT_EQ(slot(seq)[i], cuda::kNoSum) << seq;
      ASSERT_EQ(slot(seq + 1)[i], cuda::kNoSum) << seq;
    }
    ASSERT_TRUE(seq == 1 || slot(seq - 1)[0] != cuda::kNoSum);
    const MatView<uint32_t> to = sums.Of(seq, rows);
    if (seq % 5 == 0) {
      sums.Refuse(seq, cuda::ServiceError::kFailed);
    } else {
      for (int32_t m = 0; m < rows; ++m) cuda::PublishSums(row.data(), kTestHidden, to.Row(m));
    }
    sums.Answered(seq);
    EXPECT_NE(slot(seq)[0], cuda::kNoSum);
  }
}

// NaNs of all kinds arrive as NaNs, everything else as it is.
TEST(DoorbellFaultTest, NoSumIsTakenForAMark) {
  for (const int64_t n : {1, 3, 4, 7, 64}) {
    std::vector<float> sums;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits[] = {cuda::kFirstMark, cuda::kFirstMark - 1, cuda::kFailedMark, cuda::kNoSum,
                               0x7FFFFFFFu,      0xFF800000u,          0x80000000u,       0x3F800000u};
      sums.push_back(std::bit_cast<float>(bits[static_cast<size_t>(i) % 8]));
    }
    for (const size_t shift : {0, 1}) {
      alignas(16) uint32_t words[80] = {};
      cuda::PublishSums(sums.data(), n, words + shift);
      for (int64_t i = 0; i < n; ++i) {
        const auto bits = std::bit_cast<uint32_t>(sums[static_cast<size_t>(i)]);
        ASSERT_EQ(words[shift + static_cast<size_t>(i)], bits >= cuda::kFirstMark ? 0x7FC00000u : bits) << i;
      }
      EXPECT_EQ(words[shift + static_cast<size_t>(n)], 0u);
    }
  }
}

// A GPU of several threads: all give up, one error is kept.
TEST(DoorbellFaultTest, EveryThreadOfABlockGivesUp) {
  constexpr int kThreads = 3;
  FaultRig rig;
  rig.runner.hang = true;
  rig.gpu.state().deadline_ns = 10'000'000;
  ASSERT_TRUE(rig.service->BeginStep().ok());
  LayerStep step = rig.Step(3);
  const std::vector<float> y = step.y;
  sys::PhaseBarrier barrier(kThreads);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] { rig.gpu.RunLayer(ThreadGroup(rank, kThreads, &barrier), 1, rig.cold, &step); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(step.y, y);
  EXPECT_EQ(rig.gpu.state().error.code, DeviceErrorCode::kDeadline);
  EXPECT_EQ(rig.gpu.state().error.layer, 1);
  EXPECT_EQ(rig.service->EndStep().code(), StatusCode::kCuda);
  rig.runner.hang = false;
}

TEST(DoorbellFaultTest, AStepAllocatesNothing) {
  TestLayers layers({kExperts});
  TestLayers::Path path = layers.MakePath(1, kUsed);
  ColdPathRunner runner(path.cold.get());
  PageMemory memory(TestChannelBytes(kUsed));
  const cuda::DoorbellChannel channel = MakeTestChannel(memory, kUsed);
  auto service = DoorbellService::Create(channel, &runner, {.experts_per_layer = {kExperts}});
  ASSERT_TRUE(service.ok());
  FakeGpu gpu(channel);
  gpu.state().timers = 1;
  std::mt19937 random(3);
  const TestPlacement half = TestPlacement::Random({kExperts}, {0.5}, 2);
  std::vector<LayerStep> steps;
  for (int32_t s = 0; s < 64; ++s) steps.push_back(RandomLayerStep(&random, 1 + s % 32, kUsed, kExperts));
  int64_t before = 0;
  for (size_t s = 0; s < steps.size(); ++s) {
    if (s == 8) before = AllocationCount();
    ASSERT_TRUE((*service)->BeginStep().ok());
    gpu.BeginStep(SoloGroup());
    gpu.RunLayer(SoloGroup(), 0, half, &steps[s]);
    ASSERT_TRUE((*service)->EndStep().ok());
  }
  EXPECT_EQ(AllocationCount() - before, 0);
  EXPECT_GT(gpu.state().counters.wait_ns, 0u);
  int* volatile p = new int(1);  // the counter counts
  delete p;
  EXPECT_EQ(AllocationCount() - before, 1);
}

}  // namespace
}  // namespace bellhop::moe
