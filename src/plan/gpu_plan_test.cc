#include "plan/gpu_plan.h"

#include <gtest/gtest.h>

namespace bellhop::plan {
namespace {

using config::RuntimeConfig;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Two layers of four experts, of 3 MiB each.
manifest::Manifest Model() {
  manifest::Manifest m;
  m.hparams.layers = 2;
  m.hparams.experts.count = 4;
  m.hparams.experts.used = 1;
  for (int32_t l = 0; l < 2; ++l) {
    manifest::ExpertLayer layer;
    layer.layer = LayerId(l);
    for (int32_t* stack : {&layer.gate, &layer.up, &layer.down}) {
      *stack = static_cast<int32_t>(m.tensors.size());
      m.tensors.emplace_back();
      m.tensors.back().bytes = 4 * kMiB;
    }
    m.expert_layers.push_back(layer);
  }
  return m;
}

GpuInfo Gpu(uint64_t free_bytes) {
  return {.free_bytes = free_bytes,
          .rates = {.hbm_gbps = 4000,
                    .dram_gbps = 90,
                    .pcie_gbps = 50,
                    .both_dram_gbps = 80,
                    .both_pcie_gbps = 45,
                    .sync_us = 4,
                    .cpu_us = 2,
                    .fetch_us = 10}};
}

constexpr GpuNeeds kNeeds{
    .charges = {.dense_bytes = 10 * kMiB, .kv_bytes = 4 * kMiB, .workspace_bytes = 1 * kMiB, .graph_bytes = 1 * kMiB},
    .token_bytes = 12 * kMiB};
constexpr uint64_t kCharged = 16 * kMiB;

RuntimeConfig Vram(uint64_t bytes) {
  RuntimeConfig runtime;
  runtime.vram_bytes = bytes;
  return runtime;
}

TEST(GpuPlanTest, ExpertsGetWhatIsLeft) {
  const auto plan = PlanGpu(Model(), Vram(kCharged + 13 * kMiB), Gpu(1024 * kMiB), kNeeds, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->used);
  EXPECT_EQ(plan->experts.bank_bytes, 12 * kMiB);
  EXPECT_EQ(plan->experts.placement.resident(LayerId(0)), 2);
  EXPECT_EQ(plan->experts.placement.resident(LayerId(1)), 2);
  EXPECT_DOUBLE_EQ(plan->prediction.hit_rate, 0.5);
  EXPECT_EQ(plan->lane.lane, config::MissLane::kSplit);
  EXPECT_EQ(plan->deadline_ns, 10'000'000'000u);
  ASSERT_EQ(plan->notes.size(), 1u);
  EXPECT_NE(plan->notes[0].find("--profile"), std::string::npos);
}

TEST(GpuPlanTest, AutoLeavesAReserve) {
  EXPECT_EQ(VramReserve(100 * kMiB), 100 * kMiB);
  EXPECT_EQ(VramReserve(1024 * kMiB), 256 * kMiB);
  EXPECT_EQ(VramReserve(100 * 1024 * kMiB), 2 * 1024 * kMiB);
  const auto plan = PlanGpu(Model(), {}, Gpu(256 * kMiB + kCharged + 24 * kMiB), kNeeds, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->vram_bytes, kCharged + 24 * kMiB);
  EXPECT_EQ(plan->experts.placement.resident(), 8);
  EXPECT_TRUE(plan->notes.empty());  // nothing to win by a profile
  EXPECT_DOUBLE_EQ(plan->prediction.ringing_layers, 0);
}

TEST(GpuPlanTest, AProfileDecidesWhich) {
  const auto profile = RankExperts({{0, 9, 0, 1}, {0, 0, 0, 20}}, 4);
  ASSERT_TRUE(profile.ok());
  const auto plan = PlanGpu(Model(), Vram(kCharged + 6 * kMiB), Gpu(1024 * kMiB), kNeeds, &*profile);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->experts.placement.IsHit(LayerId(0), ExpertId(1)));
  EXPECT_TRUE(plan->experts.placement.IsHit(LayerId(1), ExpertId(3)));
  EXPECT_GT(plan->prediction.hit_rate, 0.5);
  const ExpertProfile other{.layers = 3, .experts = 4, .ranked = {}};
  EXPECT_NE(PlanGpu(Model(), {}, Gpu(1024 * kMiB), kNeeds, &other).status().message().find("--profile"),
            std::string::npos);
}

TEST(GpuPlanTest, WhatDoesNotFitIsANoteOrAnErrorAsTheFlagsSay) {
  const GpuInfo small = Gpu(256 * kMiB + kCharged - 1);
  const auto fallback = PlanGpu(Model(), {}, small, kNeeds, nullptr);
  ASSERT_TRUE(fallback.ok());
  EXPECT_FALSE(fallback->used);
  EXPECT_NE(fallback->notes.at(0).find("KV cache"), std::string::npos) << fallback->notes[0];
  std::vector<RuntimeConfig> asks(4);
  asks[0].device = config::Device::kCuda;
  asks[1].offload = config::OffloadMode::kRequired;
  asks[2].gpu_experts = 1;
  asks[3].vram_bytes = kCharged - 1;
  for (const RuntimeConfig& runtime : asks) {
    const auto plan = PlanGpu(Model(), runtime, small, kNeeds, nullptr);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory) << plan.status().ToString();
  }
  const auto more = PlanGpu(Model(), Vram(2048 * kMiB), Gpu(1024 * kMiB), kNeeds, nullptr);
  EXPECT_NE(more.status().message().find("--vram"), std::string::npos);
}

TEST(GpuPlanTest, OffloadOffIsAllOrNothing) {
  RuntimeConfig runtime;
  runtime.offload = config::OffloadMode::kOff;
  const GpuInfo partly = Gpu(256 * kMiB + kCharged + 23 * kMiB);
  auto plan = PlanGpu(Model(), runtime, partly, kNeeds, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->used);
  runtime.device = config::Device::kCuda;
  EXPECT_EQ(PlanGpu(Model(), runtime, partly, kNeeds, nullptr).status().code(), StatusCode::kOutOfMemory);
  plan = PlanGpu(Model(), runtime, Gpu(256 * kMiB + kCharged + 24 * kMiB), kNeeds, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->experts.placement.resident(), 8);
  runtime.gpu_experts = 2;
  EXPECT_EQ(PlanGpu(Model(), runtime, partly, kNeeds, nullptr).status().code(), StatusCode::kInvalidArgument);
}

TEST(GpuPlanTest, TheCpuAloneWhenAskedFor) {
  RuntimeConfig cpu;
  cpu.device = config::Device::kCpu;
  for (RuntimeConfig runtime : {cpu, Vram(0)}) {
    const auto plan = PlanGpu(Model(), runtime, Gpu(1024 * kMiB), kNeeds, nullptr);
    ASSERT_TRUE(plan.ok());
    EXPECT_FALSE(plan->used);
    EXPECT_EQ(plan->notes.size(), 1u);
    runtime.gpu_experts = 0;
    EXPECT_TRUE(PlanGpu(Model(), runtime, Gpu(1024 * kMiB), kNeeds, nullptr).ok());
    runtime.gpu_experts_percent = 10;
    EXPECT_EQ(PlanGpu(Model(), runtime, Gpu(1024 * kMiB), kNeeds, nullptr).status().code(),
              StatusCode::kInvalidArgument);
  }
}

// Of one bank for the misses of a step, beside four of eight experts in slots.
TEST(GpuPlanTest, StagingIsChargedWhereTheGpuReadsMisses) {
  GpuNeeds needs = kNeeds;
  needs.charges.staging_bytes = 6 * kMiB;
  RuntimeConfig runtime = Vram(kCharged + 13 * kMiB);
  const auto residents = [&](config::MissLane lane, uint64_t staging, size_t notes) {
    runtime.miss_lane = lane;
    const auto plan = PlanGpu(Model(), runtime, Gpu(1024 * kMiB), needs, nullptr);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    if (!plan.ok()) return -1;
    EXPECT_EQ(plan->staging_bytes, staging);
    EXPECT_EQ(plan->lane.lane == config::MissLane::kCpu, staging == 0);
    EXPECT_EQ(plan->notes.size(), notes);
    return plan->experts.placement.resident();
  };
  EXPECT_EQ(residents(config::MissLane::kAuto, 6 * kMiB, 1), 2);
  EXPECT_EQ(residents(config::MissLane::kPcie, 6 * kMiB, 1), 2);
  EXPECT_EQ(residents(config::MissLane::kCpu, 0, 1), 4);
  needs.charges.staging_bytes = 14 * kMiB;
  EXPECT_EQ(residents(config::MissLane::kAuto, 0, 2), 4);
  runtime.miss_lane = config::MissLane::kSplit;
  const auto refused = PlanGpu(Model(), runtime, Gpu(1024 * kMiB), needs, nullptr);
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("--miss-lane cpu"), std::string::npos) << refused.status().ToString();
  // Every expert in a slot: no misses, no staging.
  runtime.vram_bytes = kCharged + 24 * kMiB;
  const auto whole = PlanGpu(Model(), runtime, Gpu(1024 * kMiB), needs, nullptr);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->experts.placement.resident(), 8);
  EXPECT_EQ(whole->staging_bytes, 0u);
}

TEST(GpuPlanTest, ShareOfExpertsAndDeterminism) {
  RuntimeConfig runtime;
  runtime.gpu_experts_percent = 50;
  runtime.deterministic = true;
  const auto plan = PlanGpu(Model(), runtime, Gpu(1024 * kMiB), kNeeds, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->experts.placement.resident(), 4);
  EXPECT_EQ(plan->lane.lane, config::MissLane::kCpu);
  EXPECT_EQ(plan->prediction.bound, "host memory");
  runtime.miss_lane = config::MissLane::kSplit;
  EXPECT_EQ(PlanGpu(Model(), runtime, Gpu(1024 * kMiB), kNeeds, nullptr).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace bellhop::plan
