#include "engine/opbench_seed.h"

#include <array>
#include <cmath>
#include <string_view>

namespace bellhop::engine {
namespace {

constexpr std::array<int32_t, 6> kRows = {1, 8, 16, 512, 2048, 8192};

struct SeedRow {
  std::string_view format;
  OpbenchMode mode;
  double hit_rate;
  std::array<double, kRows.size()> ms;  // by kRows; 0: not published
};
constexpr SeedRow kSeed[] = {
    {"int3_b64", OpbenchMode::kResident, 1, {0.032, 0.054, 0.344, 1.647, 2.609, 6.470}},
    {"int3_b64", OpbenchMode::kOffAll, 1, {0.043, 0.065, 0.088, 2.106, 7.201, 27.54}},
    {"int3_b64", OpbenchMode::kOffCpu, 0.19, {0.165, 0.694, 5.862, 15.31, 20.29, 29.64}},
    {"int3_b64", OpbenchMode::kOffCpu, 0.60, {0.118, 0.358, 5.318, 8.061, 13.14, 26.63}},
    {"int3_b64", OpbenchMode::kOffGpu, 0.19, {0, 0, 0, 28.30, 112.3, 445.7}},
    {"int4_b32", OpbenchMode::kResident, 1, {0.038, 0.047, 0.161, 1.008, 1.826, 4.545}},
    {"int4_b32", OpbenchMode::kOffAll, 1, {0.042, 0.056, 0.085, 4.016, 14.63, 56.87}},
    {"int4_b32", OpbenchMode::kOffCpu, 0.19, {0.223, 0.747, 5.868, 18.96, 28.95, 38.47}},
    {"int4_b32", OpbenchMode::kOffCpu, 0.60, {0.109, 0.382, 5.272, 9.948, 17.19, 28.53}},
    {"int4_b32", OpbenchMode::kOffGpu, 0.19, {0, 0, 0, 40.93, 158.2, 630.9}},
};
// Its hit rates are measured ones of 18 to 20 and 59 to 60 percent.
constexpr double kHitRateStep = 0.01;

}  // namespace

std::optional<double> SeedLayerMs(const GpuOpbenchCase& test) {
  if (test.hidden != 2560 || test.inter != 640 || test.experts != 512 || test.topk != 10) return std::nullopt;
  for (const SeedRow& row : kSeed) {
    if (row.format != test.format || row.mode != test.mode) continue;
    if (std::abs(row.hit_rate - test.hit_rate) > kHitRateStep + 1e-9) continue;
    for (size_t i = 0; i < kRows.size(); ++i) {
      if (kRows[i] == test.rows && row.ms[i] > 0) return row.ms[i];
    }
  }
  return std::nullopt;
}

}  // namespace bellhop::engine
