#include "plan/plan.h"

#include <gtest/gtest.h>

#include <utility>

namespace bellhop::plan {
namespace {

using config::RuntimeConfig;

manifest::Manifest TwoLayerModel() {
  manifest::Manifest m;
  m.hparams.layers = 2;
  m.hparams.experts.count = 8;
  m.hparams.experts.used = 2;
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

// TwoLayerModel's experts have 500 bytes, which take 512 of a bank.
constexpr uint64_t kSlot = 512, kCharged = 700;

MachineInfo WithGpu(uint64_t vram) {
  MachineInfo machine = CpuOnly();
  machine.no_gpu_reason.clear();
  machine.gpu = GpuInfo{.free_bytes = vram, .rates = DefaultConstants()};
  return machine;
}

// An explicit --vram, because the automatic budget leaves more to others than these GPUs have.
RuntimeConfig Vram(uint64_t bytes) {
  RuntimeConfig runtime;
  runtime.vram_bytes = bytes;
  return runtime;
}

MemoryNeeds GpuModelNeeds() {
  return {.kv_bytes = 500,
          .workspace_bytes = 50,
          .gpu = {.charges = {.dense_bytes = 100, .kv_bytes = 400, .workspace_bytes = 150, .graph_bytes = 50},
                  .token_bytes = 120,
                  .host_bytes = 30}};
}

uint64_t BytesOf(const Plan& plan, MemoryTag tag, std::string_view where) {
  uint64_t bytes = 0;
  for (const MemoryLine& line : plan.memory) bytes += line.tag == tag && line.where == where ? line.bytes : 0;
  return bytes;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

TEST(PlanWithGpuTest, SlotsAndChargesAreThePlans) {
  const auto plan = MakePlan(TwoLayerModel(), WithGpu(4096), Vram(kCharged + 3 * kSlot), GpuModelNeeds(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->gpu.used);
  EXPECT_EQ(plan->placement.resident(), 3);
  EXPECT_EQ(plan->placement.total(), 8);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kDenseWeights, "GPU 0"), 100u);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kKvCache, "GPU 0"), 400u);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kWorkspace, "GPU 0"), 150u);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kGraph, "GPU 0"), 50u);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kExpertWeights, "GPU 0"), 3 * kSlot);
  // The host keeps every expert, and nothing else of the model.
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kExpertWeights, "mapped file"), 4000u);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kDenseWeights, "mapped file"), 0u);
  EXPECT_EQ(plan->mapped_bytes, 4000u);
  EXPECT_EQ(plan->host_bytes, 30u);
  const std::string lines = Joined(DescribePlan(*plan));
  for (const char* const words : {"3 of 8 in GPU slots", "prediction: 37.5 % of routes", "ms per token", "(GPU 0)"}) {
    EXPECT_NE(lines.find(words), std::string::npos) << words << " in " << lines;
  }
  EXPECT_EQ(lines.find("no GPU used"), std::string::npos) << lines;
}

TEST(PlanWithGpuTest, LinesNameTheMissLane) {
  RuntimeConfig runtime = Vram(kCharged + kSlot);
  const std::pair<config::MissLane, const char*> cases[] = {
      {config::MissLane::kCpu, "7 computed by the CPU where they lie"},
      {config::MissLane::kPcie, "7 read by the GPU over PCIe"},
      {config::MissLane::kSplit, "7 computed by CPU ("},
  };
  for (const auto& [lane, words] : cases) {
    runtime.miss_lane = lane;
    const auto plan = MakePlan(TwoLayerModel(), WithGpu(4096), runtime, GpuModelNeeds(), nullptr);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->gpu.lane.lane, lane);
    EXPECT_NE(DescribePlan(*plan)[0].find(words), std::string::npos) << DescribePlan(*plan)[0];
  }
}

TEST(PlanWithGpuTest, AutomaticBudgetTakesWhatIsFree) {
  MachineInfo machine = CpuOnly();
  machine.gpu = GpuInfo{.free_bytes = (uint64_t{256} << 20) + kCharged + 2 * kSlot, .rates = DefaultConstants()};
  const auto plan = MakePlan(TwoLayerModel(), machine, {}, GpuModelNeeds(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->placement.resident(), 2);
  EXPECT_EQ(plan->gpu.vram_bytes, kCharged + 2 * kSlot);
}

TEST(PlanWithGpuTest, ExplicitCounts) {
  RuntimeConfig runtime = Vram(4096 + kCharged);
  runtime.gpu_experts = 5;
  auto plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, GpuModelNeeds(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->placement.resident(), 5);
  runtime.gpu_experts.reset();
  runtime.gpu_experts_percent = 25;
  plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, GpuModelNeeds(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->placement.resident(), 2);
  runtime.gpu_experts_percent.reset();
  runtime.gpu_experts = 0;  // the dense part on the GPU, every expert cold
  plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, GpuModelNeeds(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->gpu.used);
  EXPECT_EQ(plan->placement.resident(), 0);
  runtime.gpu_experts = 8;
  runtime.vram_bytes = kCharged + 7 * kSlot;
  plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, GpuModelNeeds(), nullptr);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(plan.status().message().find("--gpu-experts"), std::string_view::npos);
}

TEST(PlanWithGpuTest, WithEveryExpertInASlotTheHostKeepsNone) {
  RuntimeConfig runtime = Vram(kCharged + 8 * kSlot);
  runtime.offload = config::OffloadMode::kOff;
  runtime.huge_pages = config::HugePagesMode::kAuto;
  const auto plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, GpuModelNeeds(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->placement.resident(), 8);
  EXPECT_EQ(plan->mapped_bytes, 0u);
  EXPECT_FALSE(plan->copy_experts);
  EXPECT_FALSE(plan->prefault);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kExpertWeights, "mapped file"), 0u);
}

TEST(PlanWithGpuTest, ACopyToHugePagesIsOfTheHostsExperts) {
  RuntimeConfig runtime = Vram(kCharged + 2 * kSlot);
  runtime.huge_pages = config::HugePagesMode::kAuto;
  MemoryNeeds needs = GpuModelNeeds();
  needs.expert_copy_bytes = 4096;
  const auto plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, needs, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->copy_experts);
  EXPECT_EQ(plan->host_bytes, 30u + 4096u);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kExpertWeights, "huge pages"), 4096u);
  EXPECT_EQ(BytesOf(*plan, MemoryTag::kExpertWeights, "GPU 0"), 2 * kSlot);
}

TEST(PlanWithGpuTest, AGpuThatIsTooSmallIsANoteOrAnErrorAsTheFlagsSay) {
  // Nothing is left beside the reserve.
  MachineInfo machine = WithGpu(kCharged);
  auto plan = MakePlan(TwoLayerModel(), machine, {}, GpuModelNeeds(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_FALSE(plan->gpu.used);
  EXPECT_EQ(plan->placement.resident(), 0);
  EXPECT_EQ(plan->placement.total(), 8);
  EXPECT_EQ(plan->host_bytes, 550u);  // the CPU's model
  ASSERT_EQ(plan->notes.size(), 1u);
  EXPECT_NE(plan->notes[0].find("no GPU used: dense weights"), std::string::npos) << plan->notes[0];
  std::vector<RuntimeConfig> asks(5);
  asks[0].device = config::Device::kCuda;
  asks[1].offload = config::OffloadMode::kRequired;
  asks[2].gpu_experts = 1;
  asks[3].vram_bytes = kCharged - 1;
  asks[4].miss_lane = config::MissLane::kPcie;
  for (const RuntimeConfig& runtime : asks) {
    plan = MakePlan(TwoLayerModel(), machine, runtime, GpuModelNeeds(), nullptr);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kOutOfMemory) << plan.status().ToString();
  }
}

TEST(PlanWithGpuTest, ExcludedGpusAreNotedAndContradictionsRefused) {
  RuntimeConfig cpu;
  cpu.device = config::Device::kCpu;
  for (RuntimeConfig runtime : {cpu, Vram(0)}) {
    auto plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, GpuModelNeeds(), nullptr);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_FALSE(plan->gpu.used);
    ASSERT_EQ(plan->notes.size(), 1u);
    EXPECT_NE(plan->notes[0].find("no GPU used: --"), std::string::npos);
    runtime.miss_lane = config::MissLane::kSplit;
    plan = MakePlan(TwoLayerModel(), WithGpu(8192), runtime, GpuModelNeeds(), nullptr);
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.status().message().find("--miss-lane split"), std::string_view::npos) << plan.status().ToString();
  }
}

TEST(PlanWithGpuTest, AProfileIsNotNotedAsUnused) {
  const auto profile = RankExperts({{}, {0, 9, 1, 0, 0, 3, 0, 0}}, 8);
  ASSERT_TRUE(profile.ok());
  const auto plan = MakePlan(TwoLayerModel(), WithGpu(8192), Vram(kCharged + kSlot), GpuModelNeeds(), &*profile);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->placement.IsHit(LayerId(1), ExpertId(1)));
  EXPECT_TRUE(plan->notes.empty()) << plan->notes[0];
}

}  // namespace
}  // namespace bellhop::plan
