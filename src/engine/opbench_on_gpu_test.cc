// The GPU's benchmark on a GPU: every placement, family of kernels and kind of format runs, and counts what it ran.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/device_info.h"
#include "engine/opbench_gpu.h"

namespace bellhop::engine {
namespace {

TEST(OpbenchOnGpuTest, EveryModeRunsTheRoutesThatItSays) {
  if (!cuda::ListDevices().ok()) GTEST_SKIP() << "no GPU";
  constexpr int32_t kExperts = 24, kUsed = 4, kReplays = 2;
  config::OpbenchOptions options;
  options.device = config::Device::kCuda;
  options.hidden = 256;
  options.inter = 128;
  options.experts = kExperts;
  options.topk = kUsed;
  options.layers = 2;
  options.repetitions = kReplays;
  options.threads = {1};
  options.rows = {1, 5, 40};
  options.modes = {"resident", "off_all", "off_cpu", "off_gpu"};
  options.hit_rates = {50};
  // Tiles of planar and of GGUF matrices, and file rows.
  options.formats = {"int4_b32", "int3_b64", "int8_b64", "mxfp4_b32", "q8_0", "bf16", "iq4_nl"};
  const auto report = RunGpuOpbench(options, {});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->failure.ok()) << report->failure.ToString();
  EXPECT_EQ(report->cases.size(), options.formats.size() * options.modes.size() * options.rows.size());
  for (const GpuOpbenchCase& test : report->cases) {
    SCOPED_TRACE(testing::Message() << test.format << " " << OpbenchModeName(test.mode) << " " << test.rows);
    EXPECT_EQ(test.prompt, test.rows > 32);
    for (const auto* times : {&test.layer_us, &test.kernel_us, &test.router_us}) {
      ASSERT_EQ(times->size(), static_cast<size_t>(kReplays));
      EXPECT_GT(*std::min_element(times->begin(), times->end()), 0);
    }
    EXPECT_DOUBLE_EQ(test.hits + test.misses, test.rows * kUsed);
    const double distinct = test.hot_experts + test.cold_experts;
    EXPECT_GE(distinct, kUsed);
    EXPECT_LE(distinct, std::min(test.rows * kUsed, kExperts));
    if (test.mode == OpbenchMode::kResident || test.mode == OpbenchMode::kOffAll) {
      EXPECT_EQ(test.misses, 0);
      EXPECT_EQ(test.cold_experts, 0);
    } else {
      EXPECT_GT(test.misses, 0);
      EXPECT_GT(test.cold_experts, 0);
      EXPECT_LE(test.cold_experts, kExperts / 2);
      EXPECT_LE(test.hot_experts, kExperts / 2);
    }
  }
}

}  // namespace
}  // namespace bellhop::engine
