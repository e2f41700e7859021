// Speed of the CPU kernels, one core: every row of dot.def, row_decode.def and gemm.def that this CPU can run.
//
//   kernels_bench --benchmark_filter='dot_q4_0.*/m:1/'
//
// Names: <kernel>/m:<x rows>/<place>, where the place is how much weight memory one pass covers: `l2` 1 MiB, which
// stays in the L2 cache, or `mem` 1 GiB, larger than any last-level cache this was run on. Counters:
//   bytes_per_second   weight bytes (what a memory-bound kernel is limited by)
//   Gweights           10^9 weights per second, times x rows for the products
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "kernels/random_weights_for_test.h"

namespace bellhop::kernels {
namespace {

constexpr int64_t kCols = 2048;

// Random rows of a format, repeated until they fill `bytes`.
std::vector<std::byte> MakeWeights(quant::WeightFormat format, int64_t bytes, int64_t row_bytes) {
  constexpr int64_t kDistinctRows = 16;
  std::mt19937_64 random(1);
  std::vector<std::byte> pattern(static_cast<size_t>(kDistinctRows * row_bytes));
  for (int64_t r = 0; r < kDistinctRows; ++r) {
    FillRandomWeights(format, kCols, ScaleRange::kModerate, random, pattern.data() + r * row_bytes);
  }
  std::vector<std::byte> weights(static_cast<size_t>(bytes));
  for (size_t i = 0; i < weights.size(); i += pattern.size()) {
    std::memcpy(weights.data() + i, pattern.data(), std::min(pattern.size(), weights.size() - i));
  }
  return weights;
}

// Rows of kCols values, 64-byte aligned as the engine's workspaces are.
class Floats {
 public:
  explicit Floats(int64_t rows) : data_(static_cast<size_t>(rows * kCols) + 16) {
    std::mt19937_64 random(2);
    std::normal_distribution<float> normal;
    for (float& v : data_) v = normal(random);
  }
  float* data() { return data_.data() + (64 - reinterpret_cast<uintptr_t>(data_.data()) % 64) % 64 / sizeof(float); }

 private:
  std::vector<float> data_;
};

void SetCounters(benchmark::State& state, int64_t weight_bytes, int64_t weights, int64_t rows) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * weight_bytes);
  state.counters["Gweights"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(weights * rows) * 1e-9,
                         benchmark::Counter::kIsRate);
}

void DotBenchmark(benchmark::State& state, const DotKernel& kernel, int64_t x_rows, int64_t bytes) {
  const int64_t row_bytes = static_cast<int64_t>(quant::RowBytes(kernel.format, kCols).value());
  const int64_t rows = bytes / row_bytes;
  const std::vector<std::byte> weights = MakeWeights(kernel.format, rows * row_bytes, row_bytes);
  Floats x(x_rows);
  std::vector<float> y(static_cast<size_t>(x_rows * rows));
  const DotArgs args = {
      .weights = {.format = kernel.format, .rows = rows, .cols = kCols, .planes = {{weights.data(), row_bytes}}},
      .x = {x.data(), x_rows, kCols, kCols},
      .y = {y.data(), x_rows, rows, rows},
      .range = {0, rows}};
  for (auto _ : state) {
    kernel.fn(args);
    benchmark::ClobberMemory();
  }
  SetCounters(state, rows * row_bytes, rows * kCols, x_rows);
}

void RowDecodeBenchmark(benchmark::State& state, const RowDecodeKernel& kernel, int64_t bytes) {
  const int64_t row_bytes = static_cast<int64_t>(quant::RowBytes(kernel.format, kCols).value());
  const int64_t rows = bytes / row_bytes;
  const std::vector<std::byte> weights = MakeWeights(kernel.format, rows * row_bytes, row_bytes);
  std::vector<float> y(kCols);
  for (auto _ : state) {
    for (int64_t r = 0; r < rows; ++r) kernel.fn(weights.data() + r * row_bytes, kCols, y.data());
    benchmark::ClobberMemory();
  }
  SetCounters(state, rows * row_bytes, rows * kCols, 1);
}

// A tile of 96 decoded rows, as the prompt path uses it.
void GemmBenchmark(benchmark::State& state, const GemmKernel& kernel, int64_t x_rows) {
  constexpr int64_t kTileRows = 96;
  Floats w(kTileRows), x(x_rows);
  std::vector<float> y(static_cast<size_t>(kTileRows * x_rows));
  const GemmArgs args = {.w = {w.data(), kTileRows, kCols, kCols},
                         .x = {x.data(), x_rows, kCols, kCols},
                         .y = {y.data(), x_rows, kTileRows, kTileRows}};
  for (auto _ : state) {
    kernel.fn(args);
    benchmark::ClobberMemory();
  }
  SetCounters(state, kTileRows * kCols * 4, kTileRows * kCols, x_rows);
}

void RegisterAll(sys::Isa best) {
  constexpr int64_t kL2Bytes = 1 << 20, kMemoryBytes = 1 << 30;
  for (const DotKernel& kernel : AllDotKernels()) {
    if (kernel.isa > best) continue;
    for (int64_t m : {1, 2, 4, 8, 32}) {
      const std::string name = std::string(kernel.name) + "/m:" + std::to_string(m);
      benchmark::RegisterBenchmark((name + "/l2").c_str(), DotBenchmark, kernel, m, kL2Bytes);
      if (kernel.isa == sys::Isa::kReference) continue;  // a minute per pass
      benchmark::RegisterBenchmark((name + "/mem").c_str(), DotBenchmark, kernel, m, kMemoryBytes);
    }
  }
  for (const RowDecodeKernel& kernel : AllRowDecodeKernels()) {
    if (kernel.isa > best) continue;
    benchmark::RegisterBenchmark((std::string(kernel.name) + "/l2").c_str(), RowDecodeBenchmark, kernel, kL2Bytes);
  }
  for (const GemmKernel& kernel : AllGemmKernels()) {
    if (kernel.isa > best) continue;
    for (int64_t m : {16, 64, 256}) {
      const std::string name = std::string(kernel.name) + "/m:" + std::to_string(m);
      benchmark::RegisterBenchmark(name.c_str(), GemmBenchmark, kernel, m);
    }
  }
}

}  // namespace
}  // namespace bellhop::kernels

int main(int argc, char** argv) {
  bellhop::kernels::RegisterAll(bellhop::sys::DetectCpu().isa);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
