#include "plan/plan.h"

#include <gtest/gtest.h>

namespace bellhop::plan {
namespace {

using config::RuntimeConfig;

manifest::Manifest TwoLayerModel() {
  manifest::Manifest m;
  m.hparams.layers = 2;
  m.hparams.experts.count = 8;
  m.tensors.resize(4);
  const uint64_t bytes[] = {100, 1000, 1000, 2000};
  for (size_t i = 0; i < 4; ++i) m.tensors[i].bytes = bytes[i];
  manifest::ExpertLayer layer;
  layer.layer = LayerId(1);
  layer.gate = 1;
  layer.up = 2;
  layer.down = 3;
  m.expert_layers.push_back(layer);
  return m;
}

MachineInfo CpuOnly() { return {.memory_available_bytes = 1 << 20, .no_gpu_reason = "built without CUDA"}; }

TEST(PlanTest, ChargesEverythingAndLeavesExpertsCold) {
  const auto plan = MakePlan(TwoLayerModel(), CpuOnly(), {}, {.kv_bytes = 500, .workspace_bytes = 50}, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->placement.total(), 8);
  EXPECT_EQ(plan->placement.resident(), 0);
  EXPECT_FALSE(plan->placement.IsHit(LayerId(1), ExpertId(7)));
  EXPECT_EQ(plan->host_bytes, 550u);
  EXPECT_EQ(plan->mapped_bytes, 4100u);
  EXPECT_EQ(plan->memory[0].bytes, 100u);
  EXPECT_EQ(plan->memory[1].bytes, 4000u);
  ASSERT_EQ(plan->notes.size(), 1u);
  EXPECT_NE(plan->notes[0].find("built without CUDA"), std::string::npos);
  EXPECT_NE(DescribePlan(*plan)[0].find("0 of 8 in GPU slots"), std::string::npos);
}

TEST(PlanTest, FlagsThatNeedAGpuAreErrorsWithoutOne) {
  std::vector<RuntimeConfig> asks(6);
  asks[0].device = config::Device::kCuda;
  asks[1].vram_bytes = 1;
  asks[2].gpu_experts = 4;
  asks[3].gpu_experts_percent = 50;
  asks[4].miss_lane = config::MissLane::kSplit;
  asks[5].offload = config::OffloadMode::kRequired;
  for (const RuntimeConfig& runtime : asks) {
    const auto plan = MakePlan(TwoLayerModel(), CpuOnly(), runtime, {}, nullptr);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(plan.status().message().find("built without CUDA"), std::string::npos);
  }
  RuntimeConfig zero;
  zero.vram_bytes = 0;
  zero.gpu_experts = 0;
  zero.device = config::Device::kCpu;
  const auto plan = MakePlan(TwoLayerModel(), CpuOnly(), zero, {}, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->notes.empty());
}

TEST(PlanTest, HostBudgetIsAnErrorForStateAndANoteForWeights) {
  RuntimeConfig runtime;
  runtime.device = config::Device::kCpu;
  runtime.ram_bytes = 1000;
  auto plan = MakePlan(TwoLayerModel(), CpuOnly(), runtime, {.kv_bytes = 600, .workspace_bytes = 500}, nullptr);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
  plan = MakePlan(TwoLayerModel(), CpuOnly(), runtime, {.kv_bytes = 600, .workspace_bytes = 400}, nullptr);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->notes.size(), 1u);
  EXPECT_NE(plan->notes[0].find("--ram"), std::string::npos);
}

TEST(PlanTest, AContainersLimitHoldsWhateverRamSays) {
  MachineInfo machine = CpuOnly();
  machine.memory_limit_bytes = 800;
  RuntimeConfig runtime;
  for (const std::optional<uint64_t> ram : {std::optional<uint64_t>(), std::optional<uint64_t>(1 << 20)}) {
    runtime.ram_bytes = ram;
    const auto plan = MakePlan(TwoLayerModel(), machine, runtime, {.kv_bytes = 700, .workspace_bytes = 200}, nullptr);
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.status().message().find("container"), std::string_view::npos) << plan.status().ToString();
  }
  runtime.ram_bytes = 600;  // the smaller of both
  const auto plan = MakePlan(TwoLayerModel(), machine, runtime, {.kv_bytes = 500, .workspace_bytes = 200}, nullptr);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("--ram"), std::string_view::npos) << plan.status().ToString();
}

RuntimeConfig HugePages(config::HugePagesMode mode) {
  RuntimeConfig runtime;
  runtime.device = config::Device::kCpu;
  runtime.huge_pages = mode;
  return runtime;
}

TEST(PlanTest, ACopyOfTheExpertsIsChargedToTheBudget) {
  MachineInfo machine = CpuOnly();
  const MemoryNeeds needs{.kv_bytes = 500, .workspace_bytes = 50, .expert_copy_bytes = 4096};
  for (const auto mode : {config::HugePagesMode::kAuto, config::HugePagesMode::kRequired}) {
    machine.memory_available_bytes = 500 + 50 + 4096 + 100;
    auto plan = MakePlan(TwoLayerModel(), machine, HugePages(mode), needs, nullptr);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_TRUE(plan->copy_experts);
    EXPECT_TRUE(plan->prefault);
    EXPECT_EQ(plan->host_bytes, 550u + 4096u);
    EXPECT_EQ(plan->mapped_bytes, 100u);
    EXPECT_EQ(plan->memory[1].where, "huge pages");
    EXPECT_EQ(plan->memory[1].bytes, 4096u);
    EXPECT_TRUE(plan->notes.empty());

    --machine.memory_available_bytes;
    plan = MakePlan(TwoLayerModel(), machine, HugePages(mode), needs, nullptr);
    if (mode == config::HugePagesMode::kRequired) {
      ASSERT_FALSE(plan.ok());
      EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
      EXPECT_NE(plan.status().message().find("--hugepages required"), std::string_view::npos);
      EXPECT_NE(plan.status().message().find("4.10 kB"), std::string_view::npos) << plan.status().ToString();
      continue;
    }
    ASSERT_TRUE(plan.ok());  // the mapped file still fits
    EXPECT_FALSE(plan->copy_experts);
    EXPECT_TRUE(plan->prefault);
    EXPECT_EQ(plan->mapped_bytes, 4100u);
    EXPECT_EQ(plan->memory[1].where, "mapped file");
    ASSERT_EQ(plan->notes.size(), 1u);
    EXPECT_NE(plan->notes[0].find("--hugepages auto"), std::string::npos);
  }
}

TEST(PlanTest, APoolOfHugePagesIsNotAvailableMemory) {
  MachineInfo machine = CpuOnly();
  machine.reserved_huge_pages = true;
  machine.memory_available_bytes = 700;
  const MemoryNeeds needs{.kv_bytes = 500, .workspace_bytes = 50, .expert_copy_bytes = 4096};
  auto plan = MakePlan(TwoLayerModel(), machine, HugePages(config::HugePagesMode::kRequired), needs, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->copy_experts);
  EXPECT_TRUE(plan->prefault);  // of the other weights
  // --ram limits everything.
  RuntimeConfig runtime = HugePages(config::HugePagesMode::kRequired);
  runtime.ram_bytes = 4000;
  EXPECT_FALSE(MakePlan(TwoLayerModel(), machine, runtime, needs, nullptr).ok());
}

TEST(PlanTest, WithoutHugePagesTheReasonIsGiven) {
  MachineInfo machine = CpuOnly();
  machine.no_huge_pages_reason = "transparent huge pages are off; turn them on";
  const auto required = MakePlan(TwoLayerModel(), machine, HugePages(config::HugePagesMode::kRequired), {}, nullptr);
  ASSERT_FALSE(required.ok());
  EXPECT_EQ(required.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(required.status().message().find("turn them on"), std::string_view::npos);
  const auto wished = MakePlan(TwoLayerModel(), machine, HugePages(config::HugePagesMode::kAuto), {}, nullptr);
  ASSERT_TRUE(wished.ok());
  EXPECT_FALSE(wished->copy_experts);
  EXPECT_NE(wished->notes.at(0).find("turn them on"), std::string::npos);
  const auto off = MakePlan(TwoLayerModel(), machine, HugePages(config::HugePagesMode::kOff), {}, nullptr);
  ASSERT_TRUE(off.ok());
  EXPECT_TRUE(off->notes.empty());
}

TEST(PlanTest, OnlyModelsThatFitAreReadAhead) {
  RuntimeConfig runtime;
  runtime.device = config::Device::kCpu;
  MachineInfo machine = CpuOnly();
  const MemoryNeeds needs{.kv_bytes = 500, .workspace_bytes = 50};
  machine.memory_available_bytes = 4100 + 550;
  EXPECT_TRUE(MakePlan(TwoLayerModel(), machine, runtime, needs, nullptr)->prefault);
  runtime.prefault = config::PrefaultMode::kOff;
  EXPECT_FALSE(MakePlan(TwoLayerModel(), machine, runtime, needs, nullptr)->prefault);
  machine.memory_available_bytes -= 1;
  runtime.prefault = config::PrefaultMode::kAuto;
  EXPECT_FALSE(MakePlan(TwoLayerModel(), machine, runtime, needs, nullptr)->prefault);
  runtime.prefault = config::PrefaultMode::kRequired;
  const auto refused = MakePlan(TwoLayerModel(), machine, runtime, needs, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("--prefault required"), std::string_view::npos);
  // A machine that does not say how much memory it has: only on request.
  machine.memory_available_bytes = 0;
  EXPECT_TRUE(MakePlan(TwoLayerModel(), machine, runtime, needs, nullptr)->prefault);
  runtime.prefault = config::PrefaultMode::kAuto;
  EXPECT_FALSE(MakePlan(TwoLayerModel(), machine, runtime, needs, nullptr)->prefault);
}

TEST(PlanTest, NeedsThatOverflowAreOutOfMemory) {
  for (const MemoryNeeds& needs :
       {MemoryNeeds{UINT64_MAX, UINT64_MAX}, MemoryNeeds{UINT64_MAX, 1}, MemoryNeeds{UINT64_MAX - 100, 50}}) {
    const auto plan = MakePlan(TwoLayerModel(), CpuOnly(), {}, needs, nullptr);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
    EXPECT_NE(plan.status().message().find("--ctx-size"), std::string_view::npos);
  }
}

TEST(PlanTest, RefusesAProfileOfAnotherModel) {
  ExpertProfile profile{.layers = 3, .experts = 8, .ranked = {}};
  EXPECT_FALSE(MakePlan(TwoLayerModel(), CpuOnly(), {}, {}, &profile).ok());
  profile.layers = 2;
  EXPECT_TRUE(MakePlan(TwoLayerModel(), CpuOnly(), {}, {}, &profile).ok());
}

}  // namespace
}  // namespace bellhop::plan
