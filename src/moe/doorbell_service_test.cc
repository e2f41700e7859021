#include "moe/doorbell_service.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

#include "moe/doorbell_rig_for_test.h"
#include "store/slot_table.h"

namespace bellhop::moe {
namespace {

using cuda::SoloGroup;

constexpr int32_t kUsed = 6;

struct Rig {
  explicit Rig(const std::vector<int32_t>& experts, int threads = 1)
      : layers(experts),
        memory(TestChannelBytes(kUsed)),
        channel(MakeTestChannel(memory, kUsed)),
        path(layers.MakePath(threads, kUsed)),
        direct(layers.MakePath(1, kUsed)),
        runner(path.cold.get()),
        gpu(channel) {
    Start();
  }
  void Start() {
    auto created = DoorbellService::Create(channel, &runner, {.experts_per_layer = layers.experts()});
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    service = std::move(*created);
  }

  TestLayers layers;
  PageMemory memory;
  cuda::DoorbellChannel channel;
  TestLayers::Path path, direct;
  ColdPathRunner runner;
  FakeGpu gpu;
  std::unique_ptr<DoorbellService> service;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Mostly few rows, sometimes the most.
int32_t RandomRows(std::mt19937* random) {
  const uint32_t r = (*random)() % 64;
  return r == 0 ? cuda::kDoorbellMaxRows : 1 + static_cast<int32_t>(r % 3);
}

TEST(DoorbellServiceTest, TenThousandStepsAreBitEqualToDirectExecution) {
  const std::vector<int32_t> experts{12, 300, 6};
  Rig rig(experts);
  std::mt19937 random(3);
  // The last layer is sometimes whole in slots, sometimes whole on the CPU.
  const std::vector<TestPlacement> placements{TestPlacement::Random(experts, {0.5, 0.8, 1.0}, 1),
                                              TestPlacement::Random(experts, {0.9, 0.2, 0.0}, 2),
                                              TestPlacement::Random(experts, {0.0, 0.5, 0.7}, 3)};
  rig.gpu.CountRoutes(experts);
  uint64_t routes = 0, rings = 0, distinct = 0;
  for (int step = 0; step < 10000; ++step) {
    const TestPlacement& placement = placements[random() % 8 == 0 ? random() % 3 : step / 100 % 3];
    ASSERT_TRUE(rig.service->BeginStep().ok());
    rig.gpu.BeginStep(SoloGroup());
    const int32_t rows = RandomRows(&random);
    for (int32_t l = 0; l < 3; ++l) {
      const int32_t used = 1 + static_cast<int32_t>(random() % kUsed);  // k = E in the last layer, with repeated ids
      LayerStep layer = RandomLayerStep(&random, rows, used, experts[static_cast<size_t>(l)]);
      const std::vector<float> expected = ExpectedY(rig.direct.cold.get(), l, placement, layer);
      const uint64_t before = rig.gpu.state().rings;
      rig.gpu.RunLayer(SoloGroup(), l, placement, &layer);
      ASSERT_TRUE(SameBits(layer.y, expected)) << "step " << step << " layer " << l;
      bool miss = false;
      for (size_t r = 0; r < layer.ids.size(); ++r) {
        const int32_t slot = placement.slots[static_cast<size_t>(l)][static_cast<size_t>(layer.ids[r])];
        ASSERT_EQ(layer.route_slots[r], slot);
        miss |= slot < 0;
      }
      ASSERT_EQ(rig.gpu.state().rings - before, miss ? 1u : 0u);
      rings += miss ? 1 : 0;
      routes += layer.ids.size();
      distinct += std::set<int32_t>(layer.ids.begin(), layer.ids.end()).size();
    }
    ASSERT_TRUE(rig.service->EndStep().ok());
  }
  const cuda::DoorbellCounters& counters = rig.gpu.state().counters;
  EXPECT_EQ(counters.hits + counters.misses, routes);
  EXPECT_EQ(counters.dropped, 0u);
  EXPECT_EQ(counters.experts, distinct);
  EXPECT_EQ(counters.rings, rings);
  EXPECT_EQ(counters.rings + counters.zero_cold, 30000u);
  EXPECT_EQ(rig.gpu.state().rings, rings);
  EXPECT_EQ(rig.service->served(), rings);
  uint64_t counted = 0;
  for (const auto& layer : rig.gpu.route_counts()) {
    for (const uint32_t count : layer) counted += count;
  }
  EXPECT_EQ(counted, routes);
}

// The PCIe lane: misses are counted and marked, and nobody is asked.
TEST(DoorbellServiceTest, MissesThatStayOnTheGpuDoNotRing) {
  const std::vector<int32_t> experts{16};
  Rig rig(experts);
  const TestPlacement placement = TestPlacement::Random(experts, {0.5}, 5);
  std::mt19937 random(4);
  rig.gpu.KeepMisses();
  uint64_t hits = 0, misses = 0;
  for (int step = 0; step < 20; ++step) {
    rig.gpu.BeginStep(SoloGroup());
    LayerStep layer = RandomLayerStep(&random, 3, kUsed, experts[0]);
    const std::vector<float> before = layer.y;
    rig.gpu.RunLayer(SoloGroup(), 0, placement, &layer);
    EXPECT_TRUE(SameBits(layer.y, before));
    for (size_t r = 0; r < layer.ids.size(); ++r) {
      const int32_t slot = placement.slots[0][static_cast<size_t>(layer.ids[r])];
      EXPECT_EQ(layer.route_slots[r], slot);
      ++(slot >= 0 ? hits : misses);
    }
  }
  EXPECT_GT(misses, 0u);
  EXPECT_EQ(rig.gpu.state().counters.misses, misses);
  EXPECT_EQ(rig.gpu.state().counters.hits, hits);
  EXPECT_EQ(rig.gpu.state().counters.rings, 0u);
  EXPECT_EQ(rig.service->served(), 0u);
}

// A block of several threads, a pool of several workers.
TEST(DoorbellServiceTest, GroupsOfThreadsGiveTheSameBits) {
  const std::vector<int32_t> experts{16, 24};
  constexpr int kThreads = 3, kSteps = 200;
  Rig rig(experts, 2);
  const TestPlacement placement = TestPlacement::Random(experts, {0.5, 0.7}, 5);
  std::mt19937 random(8);
  std::vector<std::vector<LayerStep>> steps;
  std::vector<std::vector<std::vector<float>>> expected;
  for (int s = 0; s < kSteps; ++s) {
    steps.emplace_back();
    expected.emplace_back();
    const int32_t rows = RandomRows(&random);
    for (int32_t l = 0; l < 2; ++l) {
      steps.back().push_back(RandomLayerStep(&random, rows, kUsed, experts[static_cast<size_t>(l)]));
      expected.back().push_back(ExpectedY(rig.direct.cold.get(), l, placement, steps.back().back()));
    }
  }
  rig.gpu.CountRoutes(experts);
  sys::PhaseBarrier barrier(kThreads);
  ASSERT_TRUE(rig.service->BeginStep().ok());
  auto run = [&](int32_t rank) {
    const ThreadGroup group(rank, kThreads, &barrier);
    for (auto& step : steps) {
      rig.gpu.BeginStep(group);
      for (int32_t l = 0; l < 2; ++l) rig.gpu.RunLayer(group, l, placement, &step[static_cast<size_t>(l)]);
    }
  };
  std::vector<std::thread> threads;
  for (int32_t rank = 1; rank < kThreads; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(rig.service->EndStep().ok());
  uint64_t distinct = 0;
  for (size_t s = 0; s < steps.size(); ++s) {
    for (size_t l = 0; l < 2; ++l) {
      EXPECT_TRUE(SameBits(steps[s][l].y, expected[s][l])) << s << " " << l;
      distinct += std::set<int32_t>(steps[s][l].ids.begin(), steps[s][l].ids.end()).size();
    }
  }
  EXPECT_EQ(rig.gpu.state().counters.experts, distinct);
}

TEST(DoorbellServiceTest, ManyRowsOfOneExpertAndExpertsWithoutRoutes) {
  Rig rig({512});
  const TestPlacement cold = TestPlacement::Random({512}, {0.0}, 1);
  std::mt19937 random(4);
  LayerStep step = RandomLayerStep(&random, cuda::kDoorbellMaxRows, kUsed, 512);
  std::fill(step.ids.begin(), step.ids.end(), 511);  // all rows, and each of a row's routes
  const std::vector<float> expected = ExpectedY(rig.direct.cold.get(), 0, cold, step);
  ASSERT_TRUE(rig.service->BeginStep().ok());
  rig.gpu.RunLayer(SoloGroup(), 0, cold, &step);
  ASSERT_TRUE(rig.service->EndStep().ok());
  EXPECT_TRUE(SameBits(step.y, expected));
  EXPECT_EQ(rig.gpu.state().counters.misses, 32u * kUsed);
}

// Access to the channel's pages would end the process.
TEST(DoorbellServiceTest, LayersWithoutMissesTouchNoMemoryOfTheChannel) {
  const std::vector<int32_t> experts{8};
  Rig rig(experts);
  const TestPlacement hot = TestPlacement::Random(experts, {1.0}, 1);
  std::mt19937 random(5);
  // No service looks at the channel between steps, once it sleeps.
  while (!rig.service->sleeping()) std::this_thread::yield();
  rig.memory.Forbid();
  for (int s = 0; s < 50; ++s) {
    LayerStep step = RandomLayerStep(&random, RandomRows(&random), kUsed, 8);
    const std::vector<float> y = step.y;
    rig.gpu.BeginStep(SoloGroup());
    rig.gpu.RunLayer(SoloGroup(), 0, hot, &step);
    EXPECT_TRUE(SameBits(step.y, y));
  }
  rig.memory.Allow();
  EXPECT_EQ(rig.gpu.state().counters.zero_cold, 50u);
  EXPECT_EQ(rig.gpu.state().rings, 0u);
}

TEST(DoorbellServiceTest, ARestartedServiceGoesOnWithTheSequence) {
  const std::vector<int32_t> experts{8};
  Rig rig(experts);
  const TestPlacement cold = TestPlacement::Random(experts, {0.0}, 1);
  std::mt19937 random(6);
  for (uint64_t round = 1; round <= 3; ++round) {
    for (int s = 0; s < 10; ++s) {
      LayerStep step = RandomLayerStep(&random, 2, kUsed, 8);
      const std::vector<float> expected = ExpectedY(rig.direct.cold.get(), 0, cold, step);
      ASSERT_TRUE(rig.service->BeginStep().ok());
      rig.gpu.RunLayer(SoloGroup(), 0, cold, &step);
      ASSERT_TRUE(rig.service->EndStep().ok());
      EXPECT_TRUE(SameBits(step.y, expected));
    }
    EXPECT_EQ(rig.gpu.state().rings, 10 * round);
    EXPECT_EQ(rig.service->served(), 10u);
    rig.service->Stop();
    rig.service->Stop();
    const Status refused = rig.service->BeginStep();
    EXPECT_EQ(refused.code(), StatusCode::kCancelled);
    rig.service.reset();
    rig.Start();
  }
}

TEST(DoorbellServiceTest, SleepsBetweenSteps) {
  const std::vector<int32_t> experts{8};
  Rig rig(experts);
  const TestPlacement cold = TestPlacement::Random(experts, {0.0}, 1);
  std::mt19937 random(7);
  for (int s = 0; s < 20; ++s) {
    while (!rig.service->sleeping()) std::this_thread::yield();
    LayerStep step = RandomLayerStep(&random, 1, kUsed, 8);
    const std::vector<float> expected = ExpectedY(rig.direct.cold.get(), 0, cold, step);
    ASSERT_TRUE(rig.service->BeginStep().ok());
    rig.gpu.RunLayer(SoloGroup(), 0, cold, &step);
    ASSERT_TRUE(rig.service->EndStep().ok());
    EXPECT_TRUE(SameBits(step.y, expected));
  }
}

// Promotions between steps: a hit's slot always holds the expert that the route asks for.
TEST(DoorbellServiceTest, ExpertsChangePlacesBetweenSteps) {
  const std::vector<int32_t> experts{10};
  Rig rig(experts);
  auto created = store::SlotTable::Create({{.experts = 10, .slots = {ExpertId(0), ExpertId(1), ExpertId(2)}}});
  ASSERT_TRUE(created.ok());
  store::SlotTable& table = **created;
  std::mt19937 random(9);
  const LayerId layer(0);
  for (int s = 0; s < 1000; ++s) {
    const auto slots = table.ExpertToSlot(layer);
    const TestPlacement placement{.version = table.version(), .slots = {{slots.begin(), slots.end()}}};
    const uint64_t step = table.BeginStep();
    LayerStep work = RandomLayerStep(&random, RandomRows(&random), kUsed, 10);
    const std::vector<float> expected = ExpectedY(rig.direct.cold.get(), 0, placement, work);
    ASSERT_TRUE(rig.service->BeginStep().ok());
    rig.gpu.RunLayer(SoloGroup(), 0, placement, &work);
    ASSERT_TRUE(rig.service->EndStep().ok());
    ASSERT_TRUE(SameBits(work.y, expected)) << s;
    for (size_t r = 0; r < work.ids.size(); ++r) {
      if (work.route_slots[r] < 0) continue;
      EXPECT_EQ(table.content(layer, SlotId(work.route_slots[r])).expert, ExpertId(work.ids[r]));
    }
    ASSERT_TRUE(table.EndStep(step).ok());
    const SlotId slot(static_cast<int32_t>(random() % 3));
    if (table.state(layer, slot) == store::SlotState::kResident) {
      ASSERT_TRUE(table.Evict(layer, slot).ok());
    } else if (table.BeginFill(layer, slot, ExpertId(static_cast<int32_t>(random() % 10))).ok()) {
      ASSERT_TRUE(table.FinishFill(layer, slot, true).ok());
    }
    ASSERT_TRUE(table.Publish());
  }
  EXPECT_GT(table.version(), 800u);
  EXPECT_GT(rig.gpu.state().counters.hits, 500u);
}

TEST(DoorbellServiceTest, RefusesChannelsThatCannotBe) {
  for (const cuda::DoorbellShape& shape :
       {cuda::DoorbellShape{0, 1, 64}, cuda::DoorbellShape{33, 1, 64}, cuda::DoorbellShape{1, 0, 64},
        cuda::DoorbellShape{1, 1, 0}, cuda::DoorbellShape{32, 8, INT64_MAX / 2}}) {
    EXPECT_EQ(cuda::DoorbellChannelBytes(shape).status().code(), StatusCode::kInvalidArgument);
  }
  const cuda::DoorbellShape shape{.rows = 2, .used = 3, .hidden = 5};
  const auto bytes = cuda::DoorbellChannelBytes(shape);
  ASSERT_TRUE(bytes.ok());
  PageMemory memory(*bytes);
  EXPECT_FALSE(cuda::MakeDoorbellChannel(memory.bytes().subspan(0, *bytes - 1), shape).ok());
  EXPECT_FALSE(cuda::MakeDoorbellChannel(memory.bytes().subspan(64), shape).ok());
  const auto channel = cuda::MakeDoorbellChannel(memory.bytes(), shape);
  ASSERT_TRUE(channel.ok());
  EXPECT_EQ(channel->stride, 32);
  EXPECT_EQ(reinterpret_cast<std::byte*>(channel->sums + cuda::kSumSlots * 2 * channel->stride),
            memory.bytes().data() + *bytes);
  EXPECT_EQ(channel->sums[0], cuda::kNoSum);
  EXPECT_FALSE(DoorbellService::Create(*channel, nullptr, {}).ok());
}

}  // namespace
}  // namespace bellhop::moe
