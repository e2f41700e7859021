#include "engine/traffic.h"

#include <gtest/gtest.h>

namespace bellhop::engine {
namespace {

TEST(TrafficTest, DifferencesAndSumsAreThoseOfEveryTotal) {
  const TrafficTotals before{.steps = 1, .hbm_bytes = 10, .rings = 3, .wait_ns = 7};
  TrafficTotals sum = before;
  sum += {.steps = 4, .hbm_bytes = 2, .dram_bytes = 5, .cold_experts = 6};
  const TrafficTotals difference = sum - before;
  EXPECT_EQ(difference.steps, 4u);
  EXPECT_EQ(difference.hbm_bytes, 2u);
  EXPECT_EQ(difference.dram_bytes, 5u);
  EXPECT_EQ(difference.cold_experts, 6u);
  EXPECT_EQ(difference.rings, 0u);
  EXPECT_EQ(difference.wait_ns, 0u);
}

TEST(TrafficTest, ABoundIsEveryByteAtTheRateOfItsPath) {
  const GpuSummary gpu{.device = "", .lane = "cpu", .hbm_gbps = 1000, .miss_gbps = 50, .sync_us = 10};
  const StepBound bound = gpu.Bound(
      {.steps = 2, .hbm_bytes = 4'000'000'000, .pcie_bytes = 50'000'000, .dram_bytes = 50'000'000, .rings = 96});
  EXPECT_DOUBLE_EQ(bound.hbm_ms, 2);
  EXPECT_DOUBLE_EQ(bound.miss_ms, 1);
  EXPECT_DOUBLE_EQ(bound.sync_ms, 0.48);
  EXPECT_DOUBLE_EQ(bound.read_ms(), 3);
  EXPECT_DOUBLE_EQ(bound.ms(), 3.48);
  EXPECT_EQ(gpu.Bound({}).ms(), 0);
}

}  // namespace
}  // namespace bellhop::engine
