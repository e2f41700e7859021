// What of the GPU's benchmark needs no GPU: what it will measure, what that costs, and what it compares with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cuda/device_info.h"
#include "engine/opbench_gpu.h"
#include "engine/opbench_gpu_plan.h"
#include "engine/opbench_seed.h"

namespace bellhop::engine {
namespace {

config::OpbenchOptions Options() {
  config::OpbenchOptions options;
  options.device = config::Device::kCuda;
  options.formats = {"int4_b32"};
  options.rows = {8, 1, 8, 512};
  return options;
}

GpuOpbenchPlan Plan(const config::OpbenchOptions& options, std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> own;
  auto plan = PlanGpuOpbench(options, notes != nullptr ? notes : &own);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? *std::move(plan) : GpuOpbenchPlan();
}

TEST(OpbenchGpuPlanTest, DefaultsAreTheLayerOfThePublishedFigures) {
  const GpuOpbenchPlan plan = Plan(Options());
  ASSERT_EQ(plan.banks.size(), 1u);
  const GpuOpbenchBank& bank = plan.banks[0];
  EXPECT_EQ(bank.expert.hidden, 2560);
  EXPECT_EQ(bank.expert.inter, 640);
  EXPECT_EQ(bank.experts, 512);
  EXPECT_EQ(bank.topk, 10);
  EXPECT_EQ(bank.layers, 4);
  EXPECT_EQ(bank.resident, 512);
  EXPECT_FALSE(bank.misses());
  EXPECT_EQ(bank.rows, (std::vector<int32_t>{1, 8, 512}));
  EXPECT_EQ(plan.cases, 3);
  // 4.5 bits a weight, on the device too, where a slot's matrices are whole tiles here.
  EXPECT_EQ(bank.expert.bytes(), 2764800u);
  EXPECT_EQ(bank.slot_bytes, 2764800u);
  EXPECT_EQ(bank.device_bytes(), uint64_t{4} * 512 * 2764800);
  EXPECT_EQ(bank.host_bytes(), uint64_t{GpuOpbenchBank::kShared} * bank.expert.stride);
}

TEST(OpbenchGpuPlanTest, ThreeBitsTakeNoMoreOnTheDeviceThanInTheFile) {
  config::OpbenchOptions options = Options();
  options.formats = {"int3_b64"};
  const GpuOpbenchPlan plan = Plan(options);
  ASSERT_EQ(plan.banks.size(), 1u);
  EXPECT_EQ(plan.banks[0].expert.bytes(), 1996800u);
  EXPECT_EQ(plan.banks[0].slot_bytes, 1996800u);
}

TEST(OpbenchGpuPlanTest, ModesAndHitRatesMultiplyWhereThereAreMisses) {
  config::OpbenchOptions options = Options();
  options.modes = {"off_cpu", "resident", "off_all", "off_cpu", "off_gpu"};
  options.hit_rates = {60, 19, 60};
  options.rows = {1};
  const GpuOpbenchPlan plan = Plan(options);
  std::vector<std::pair<OpbenchMode, int32_t>> got;
  for (const GpuOpbenchBank& bank : plan.banks) got.emplace_back(bank.mode, bank.resident);
  EXPECT_EQ(got, (std::vector<std::pair<OpbenchMode, int32_t>>{{OpbenchMode::kOffCpu, 97},
                                                               {OpbenchMode::kOffCpu, 307},
                                                               {OpbenchMode::kResident, 512},
                                                               {OpbenchMode::kOffAll, 512},
                                                               {OpbenchMode::kOffGpu, 97},
                                                               {OpbenchMode::kOffGpu, 307}}));
  EXPECT_EQ(plan.cases, 6);
  const GpuOpbenchBank& misses = plan.banks[0];
  EXPECT_EQ(misses.device_bytes(), uint64_t{4} * 97 * misses.slot_bytes);
  EXPECT_EQ(misses.host_bytes(), (uint64_t{GpuOpbenchBank::kShared} + 4 * (512 - 97)) * misses.expert.stride);
  options.hit_rates = {0, 100};
  options.modes = {"off_cpu"};
  EXPECT_EQ(Plan(options).banks[0].resident, 0);
  EXPECT_FALSE(Plan(options).banks[1].misses());
}

TEST(OpbenchGpuPlanTest, ListsLeaveOutWhatTheGpuDoesNotTakeAndRoundWidths) {
  config::OpbenchOptions options = Options();
  options.formats = {"all"};
  std::vector<std::string> notes;
  const GpuOpbenchPlan plan = Plan(options, &notes);
  std::set<std::string> names;
  for (const GpuOpbenchBank& bank : plan.banks) {
    names.insert(bank.expert.format.name);
    EXPECT_EQ(bank.expert.inter, bank.expert.format.name == "q4_k" ? 768 : bank.expert.inter);
  }
  for (const char* name : {"q4_0", "q4_k", "q6_k", "q8_0", "iq1_s", "iq2_xs", "iq3_xxs", "iq4_xs", "mxfp4", "f16",
                           "bf16", "int4_b32", "int3_b64", "int8_b32", "mxfp4_b32"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("int4sm80_b32"));
  const auto has = [&](const std::string& text) {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& n) { return n.find(text) != n.npos; });
  };
  EXPECT_TRUE(has("left out: --format int4sm80_b32"));
  EXPECT_TRUE(has("hidden 2560 and inter 768, which are whole blocks, for "));
}

TEST(OpbenchGpuPlanTest, WhatCannotBeMeasuredIsAnErrorWithARemedy) {
  const auto error = [](const config::OpbenchOptions& options) {
    std::vector<std::string> notes;
    const auto plan = PlanGpuOpbench(options, &notes);
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? "" : plan.status().ToString();
  };
  config::OpbenchOptions options = Options();
  options.formats = {"int4_b32_zp"};
  EXPECT_NE(error(options).find("--device cpu"), std::string::npos) << error(options);
  options.formats = {"int3_b32"};
  EXPECT_NE(error(options).find("--format int3_b32"), std::string::npos) << error(options);
  options = Options();
  options.inter = 648;
  options.formats = {"f16"};
  EXPECT_NE(error(options).find("--inter 648"), std::string::npos) << error(options);
  options = Options();
  options.experts = 2000;
  EXPECT_NE(error(options).find("--experts 2000"), std::string::npos) << error(options);
  options = Options();
  options.topk = 33;
  EXPECT_NE(error(options).find("--topk 33"), std::string::npos) << error(options);
  options = Options();
  options.experts = 4;
  options.topk = 5;
  EXPECT_NE(error(options).find("--topk 5"), std::string::npos) << error(options);
  options = Options();
  options.modes = {"elsewhere"};
  EXPECT_NE(error(options).find("--mode 'elsewhere'"), std::string::npos) << error(options);
  options = Options();
  options.formats = {"q4_k"};
  EXPECT_NE(error(options).find("--inter 640"), std::string::npos) << error(options);
}

TEST(OpbenchGpuPlanTest, PlacementsHaveEveryResidentOnceAndOffloadedOnesInAnyOrder) {
  config::OpbenchOptions options = Options();
  options.modes = {"resident", "off_all", "off_gpu"};
  options.hit_rates = {25};
  options.experts = 64;
  for (const GpuOpbenchBank& bank : Plan(options).banks) {
    SCOPED_TRACE(OpbenchModeName(bank.mode));
    const plan::GpuPlacement placement = PlaceOpbenchExperts(bank, 3);
    ASSERT_EQ(placement.banks.size(), 4u);
    std::set<std::vector<int32_t>> tables;
    for (int32_t l = 0; l < 4; ++l) {
      const auto& experts = placement.banks[static_cast<size_t>(l)].experts;
      EXPECT_EQ(static_cast<int32_t>(experts.size()), bank.resident);
      EXPECT_EQ(placement.placement.resident(LayerId(l)), bank.resident);
      for (size_t s = 0; s < experts.size(); ++s) {
        EXPECT_EQ(placement.placement.Slot(LayerId(l), experts[s]).value, static_cast<int32_t>(s));
      }
      tables.insert(placement.placement.ExpertToSlot(LayerId(l)));
    }
    EXPECT_EQ(tables.size(), bank.mode == OpbenchMode::kResident ? 1u : 4u);
    EXPECT_EQ(placement.bank_bytes, bank.device_bytes());
  }
}

GpuOpbenchCase Case(const char* format, OpbenchMode mode, double hit_rate, int32_t rows) {
  return {.format = format,
          .mode = mode,
          .hit_rate = hit_rate,
          .hidden = 2560,
          .inter = 640,
          .experts = 512,
          .topk = 10,
          .rows = rows};
}

TEST(OpbenchSeedTest, FiguresBelongToTheirCases) {
  EXPECT_EQ(SeedLayerMs(Case("int4_b32", OpbenchMode::kResident, 1, 1)), 0.038);
  EXPECT_EQ(SeedLayerMs(Case("int4_b32", OpbenchMode::kOffAll, 1, 8192)), 56.87);
  EXPECT_EQ(SeedLayerMs(Case("int3_b64", OpbenchMode::kOffCpu, 0.19, 8)), 0.694);
  EXPECT_EQ(SeedLayerMs(Case("int3_b64", OpbenchMode::kOffCpu, 0.6, 8)), 0.358);
  EXPECT_EQ(SeedLayerMs(Case("int4_b32", OpbenchMode::kOffGpu, 0.19, 512)), 40.93);
  EXPECT_FALSE(SeedLayerMs(Case("int4_b32", OpbenchMode::kOffGpu, 0.19, 8)));
  EXPECT_FALSE(SeedLayerMs(Case("int4_b32", OpbenchMode::kOffCpu, 0.4, 8)));
  EXPECT_FALSE(SeedLayerMs(Case("int4_b32", OpbenchMode::kResident, 1, 32)));
  EXPECT_FALSE(SeedLayerMs(Case("q4_0", OpbenchMode::kResident, 1, 1)));
  GpuOpbenchCase other = Case("int4_b32", OpbenchMode::kResident, 1, 1);
  other.inter = 768;
  EXPECT_FALSE(SeedLayerMs(other));
}

TEST(OpbenchGpuCaseTest, BytesAndFlopsOfTheKernelsAreThoseThatTheyRun) {
  GpuOpbenchCase test = Case("int4_b32", OpbenchMode::kOffCpu, 0.6, 8);
  test.expert_bytes = 100;
  test.hot_experts = 45;
  test.cold_experts = 30;
  test.hits = 48;
  test.misses = 32;
  EXPECT_DOUBLE_EQ(test.measured_hit_rate(), 0.6);
  EXPECT_DOUBLE_EQ(test.weight_bytes(), 7500);
  EXPECT_DOUBLE_EQ(test.kernel_bytes(), 4500);  // the CPU reads the others
  EXPECT_DOUBLE_EQ(test.kernel_flops(), 2.0 * 3 * 2560 * 640 * 48);
  test.mode = OpbenchMode::kOffGpu;
  EXPECT_DOUBLE_EQ(test.kernel_bytes(), 7500);
  EXPECT_DOUBLE_EQ(test.kernel_flops(), 2.0 * 3 * 2560 * 640 * 80);
  test.mode = OpbenchMode::kOffCpu;
  test.prompt = true;  // they are copied
  EXPECT_DOUBLE_EQ(test.kernel_bytes(), 7500);
}

TEST(OpbenchGpuTest, WithoutAGpuTheErrorSaysWhatToDo) {
  if (cuda::ListDevices().ok()) GTEST_SKIP() << "there is a GPU";
  config::OpbenchOptions options = Options();
  options.layers = 1;
  options.experts = 16;
  const auto report = RunGpuOpbench(options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("--device c"), std::string::npos) << report.status().ToString();
}

}  // namespace
}  // namespace bellhop::engine
