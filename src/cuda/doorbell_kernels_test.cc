// The doorbell on a GPU: two layers in one captured graph, replayed with other routes each time, and a thread that
// answers by hand. Without a GPU the device's absence is what is checked.
#include "cuda/doorbell_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "cuda/cuda_try.h"
#include "cuda/doorbell_channel.h"
#include "cuda/doorbell_sums.h"
#include "cuda/memory.h"

namespace bellhop::cuda {
namespace {

constexpr int32_t kRows = 4, kUsed = 2, kExperts = 6, kLayers = 2;
constexpr int64_t kHidden = 200;  // no multiple of a line
constexpr size_t kRoutes = size_t{kRows} * kUsed, kFloats = size_t{kRows} * kHidden;

// The inputs and outputs of a step, as they lie in pinned memory and, copied by the graph, on the device.
struct StepData {
  int32_t ids[kLayers][kRoutes];
  float weights[kLayers][kRoutes];
  int32_t expert_to_slot[kLayers][kExperts];
  int32_t route_slots[kLayers][kRoutes];
  float x[kFloats];
  float y[kLayers][kFloats];
};

// Misses of a row add twice its x.
class Responder {
 public:
  explicit Responder(const DoorbellChannel& channel) : channel_(channel), thread_([this] { Loop(); }) {}
  ~Responder() {
    stop_.store(true);
    thread_.join();
  }
  uint64_t answered() const { return answered_.load(); }

 private:
  void Loop() {
    DoorbellSums sums(channel_);
    std::vector<float> row(kHidden);
    for (uint64_t last = 0; !stop_.load();) {
      const uint64_t seq = LoadAcquireSystem(channel_.header->req_seq);
      if (seq == last) continue;
      for (int32_t m = 0; m < channel_.header->request.rows; ++m) {
        if ((channel_.header->request.miss_rows >> m & 1u) == 0) continue;
        for (int64_t c = 0; c < kHidden; ++c) {
          row[static_cast<size_t>(c)] = 2 * channel_.x[m * channel_.stride + c];
        }
        PublishSums(row.data(), kHidden, sums.Of(seq, kRows).Row(m));
      }
      answered_.store(last = seq);
      sums.Answered(seq);
    }
  }
  DoorbellChannel channel_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> answered_{0};
  std::thread thread_;
};

class DoorbellKernelsTest : public testing::Test {
 protected:
  // False where there is no GPU, after checking that this is what the error says.
  bool SetUpDevice() {
    auto opened = Device::Open(DeviceId(0), &ledger_);
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().code(), StatusCode::kNotFound) << opened.status().ToString();
      return false;
    }
    device_ = std::move(*opened);
    const Status made = MakeResources();
    EXPECT_TRUE(made.ok()) << made.ToString();
    return made.ok();
  }
  Status MakeResources() {
    const DoorbellShape shape{.rows = kRows, .used = kUsed, .hidden = kHidden};
    BELLHOP_TRY_ASSIGN(const uint64_t bytes, DoorbellChannelBytes(shape));
    BELLHOP_TRY_ASSIGN(channel_memory_, PinnedBuffer::Create(device_.get(), bytes, MemoryTag::kDoorbell));
    BELLHOP_TRY_ASSIGN(channel_, MakeDoorbellChannel(channel_memory_.bytes(), shape));
    BELLHOP_TRY_ASSIGN(host_, PinnedBuffer::Create(device_.get(), sizeof(StepData), MemoryTag::kStaging));
    BELLHOP_TRY_ASSIGN(host_state_, PinnedBuffer::Create(device_.get(), sizeof(DoorbellState), MemoryTag::kStaging));
    BELLHOP_TRY_ASSIGN(step_, DeviceBuffer::Create(device_.get(), sizeof(StepData), MemoryTag::kWorkspace));
    BELLHOP_TRY_ASSIGN(state_, DeviceBuffer::Create(device_.get(), sizeof(DoorbellState), MemoryTag::kDoorbell));
    return Status();
  }
  StepData& host() { return *host_.as<StepData>().data(); }
  DoorbellState& host_state() { return *host_state_.as<DoorbellState>().data(); }

  Status SubmitStep(const Stream& stream) {
    auto* step = step_.as<StepData>().data();
    auto* state = state_.as<DoorbellState>().data();
    BELLHOP_TRY(CopyToDevice(step_.bytes(), host_.bytes(), stream));
    BELLHOP_CUDA_CHECK(device_.get(), LaunchBeginStep(state, stream.queue()));
    for (int32_t l = 0; l < kLayers; ++l) {
      const ClassifyArgs classify{.layer = l,
                                  .rows = kRows,
                                  .used = kUsed,
                                  .experts = kExperts,
                                  .ids = step->ids[l],
                                  .weights = step->weights[l],
                                  .expert_to_slot = step->expert_to_slot[l],
                                  .x = step->x,
                                  .x_stride = kHidden,
                                  .route_slots = step->route_slots[l]};
      const WaitArgs wait{.layer = l, .y = step->y[l], .y_stride = kHidden};
      BELLHOP_CUDA_CHECK(device_.get(), LaunchClassifyAndRing(classify, channel_, state, stream.queue()));
      BELLHOP_CUDA_CHECK(device_.get(), LaunchWaitAndAccumulate(wait, channel_, state, stream.queue()));
    }
    BELLHOP_TRY(CopyToHost(host_.bytes(), step_.bytes(), stream));
    return CopyToHost(host_state_.bytes(), state_.bytes(), stream);
  }

  // `deadline_ns` of the device state, everything else 0.
  Status ResetState(uint64_t deadline_ns, const Stream& stream) {
    host_state() = DoorbellState{};
    host_state().deadline_ns = deadline_ns;
    BELLHOP_TRY(CopyToDevice(state_.bytes(), host_state_.bytes(), stream));
    return stream.Synchronize();
  }

  MemoryLedger ledger_;
  std::unique_ptr<Device> device_;
  PinnedBuffer channel_memory_, host_, host_state_;
  DeviceBuffer step_, state_;
  DoorbellChannel channel_;
};

TEST_F(DoorbellKernelsTest, AGraphReplaysWithOtherRoutes) {
  if (!SetUpDevice()) return;
  const auto stream = Stream::Create(device_.get());
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(ResetState(10'000'000'000, *stream).ok());
  const auto graph = Graph::Capture(*stream, [&] { return SubmitStep(*stream); });
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto exec = GraphExec::Create(*graph, *stream);
  ASSERT_TRUE(exec.ok()) << exec.status().ToString();
  const Responder responder(channel_);
  std::mt19937 random(1);
  uint64_t rings = 0;
  for (int s = 0; s < 10000; ++s) {
    StepData& data = host();
    bool miss[kLayers][kRows] = {};
    for (size_t l = 0; l < kLayers; ++l) {
      const uint32_t share = random() % 4;
      for (int32_t e = 0; e < kExperts; ++e) data.expert_to_slot[l][e] = random() % 4 < share ? e : -1;
      for (size_t r = 0; r < kRoutes; ++r) {
        data.ids[l][r] = static_cast<int32_t>(random() % kExperts);
        data.weights[l][r] = 1;
        if (data.expert_to_slot[l][data.ids[l][r]] < 0) miss[l][r / kUsed] = true;
      }
      rings += std::any_of(miss[l], miss[l] + kRows, [](bool b) { return b; }) ? 1 : 0;
      for (size_t i = 0; i < kFloats; ++i) data.y[l][i] = static_cast<float>(random() % 100);
    }
    for (size_t i = 0; i < kFloats; ++i) data.x[i] = static_cast<float>(random() % 1000);
    const StepData before = data;
    ASSERT_TRUE(exec->Launch(*stream).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    ASSERT_EQ(host_state().error.code, DeviceErrorCode::kNone);
    for (size_t l = 0; l < kLayers; ++l) {
      for (size_t i = 0; i < kFloats; ++i) {
        ASSERT_EQ(data.y[l][i], before.y[l][i] + (miss[l][i / kHidden] ? 2 * before.x[i] : 0.0f)) << s;
      }
    }
  }
  EXPECT_EQ(host_state().rings, rings);
  EXPECT_EQ(responder.answered(), rings);
  EXPECT_EQ(device_->launch_totals().launches, 1u + 2 * kLayers);  // captured once
  EXPECT_EQ(host_state().counters.rings + host_state().counters.zero_cold, 10000u * kLayers);
}

TEST_F(DoorbellKernelsTest, WithoutAnAnswerTheDeadlineEndsTheStep) {
  if (!SetUpDevice()) return;
  const auto stream = Stream::Create(device_.get());
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(ResetState(20'000'000, *stream).ok());
  for (auto& layer : host().expert_to_slot) std::fill(layer, layer + kExperts, -1);
  ASSERT_TRUE(SubmitStep(*stream).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(host_state().error.code, DeviceErrorCode::kDeadline);
  EXPECT_EQ(host_state().rings, 1u);
  EXPECT_EQ(DoorbellDeviceStatus(channel_).code(), StatusCode::kCuda);
  EXPECT_TRUE(device_->poison().status().ok());  // the device itself is well
}

}  // namespace
}  // namespace bellhop::cuda
