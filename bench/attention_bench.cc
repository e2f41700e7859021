#include "attention_bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"

namespace bellhop::kernels {
namespace {

// A block of rows of one KV head, as a prompt or a decode step has it.
struct Shape {
  const char* name;
  int64_t rows;
  int32_t group, dim;
  int64_t positions;
};

// Counters: bytes_per_second of K and V, and GFLOP/s of the two products.
void AttentionBenchmark(benchmark::State& state, const AttentionKernel& kernel, const Shape& shape) {
  const int64_t page_count = (shape.positions + kKvPageTokens - 1) / kKvPageTokens;
  const int64_t row_bytes = shape.dim * 2, page_bytes = row_bytes * kKvPageTokens;
  std::mt19937 random(1);
  std::vector<uint16_t> keys(static_cast<size_t>(page_count * page_bytes / 2)), values(keys.size());
  const auto half = [&random] { return static_cast<uint16_t>(0x3000 | (random() & 0x83FF)); };  // magnitude 1/8 to 1/4
  std::generate(keys.begin(), keys.end(), half);
  std::generate(values.begin(), values.end(), half);
  std::vector<int32_t> pages(static_cast<size_t>(page_count));
  std::iota(pages.begin(), pages.end(), 0);

  const int64_t row_floats = int64_t{shape.group} * shape.dim;
  std::vector<float> q(static_cast<size_t>(shape.rows * row_floats)), out(q.size());
  std::normal_distribution<float> normal;
  std::generate(q.begin(), q.end(), [&] { return normal(random); });
  std::vector<AttentionRow> rows;
  for (int64_t r = 0; r < shape.rows; ++r) {
    rows.push_back({q.data() + r * row_floats, out.data() + r * row_floats, 0, shape.positions - (shape.rows - 1 - r)});
  }
  std::vector<float> scratch(
      static_cast<size_t>(AttentionScratchFloats(shape.rows, shape.group, shape.dim, shape.dim)) + 16);
  float* const aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / sizeof(float);
  const AttentionArgs args{.rows = rows.data(),
                           .row_count = shape.rows,
                           .group = shape.group,
                           .key_dim = shape.dim,
                           .value_dim = shape.dim,
                           .type = KvType::kF16,
                           .q_stride = shape.dim,
                           .out_stride = shape.dim,
                           .keys = {reinterpret_cast<const std::byte*>(keys.data()), page_bytes, row_bytes},
                           .values = {reinterpret_cast<const std::byte*>(values.data()), page_bytes, row_bytes},
                           .pages = pages.data(),
                           .scale = 0.088f,
                           .sinks = nullptr,
                           .scratch = aligned};
  for (auto _ : state) {
    kernel.attend(args);
    benchmark::ClobberMemory();
  }
  const auto iterations = static_cast<int64_t>(state.iterations());
  state.SetBytesProcessed(iterations * shape.positions * row_bytes * 2);
  const double flops = 4.0 * static_cast<double>(shape.rows * shape.group * shape.positions * shape.dim);
  state.counters["GFLOP/s"] =
      benchmark::Counter(static_cast<double>(iterations) * flops * 1e-9, benchmark::Counter::kIsRate);
}

}  // namespace

void RegisterAttentionBenchmarks(sys::Isa best) {
  static constexpr Shape kShapes[] = {
      {"prompt/gqa8/dim128/pos512", 8, 8, 128, 512},  {"prompt/gqa8/dim128/pos8192", 8, 8, 128, 8192},
      {"prompt/mha/dim128/pos512", 64, 1, 128, 512},  {"prompt/gqa8/dim64/pos2048", 8, 8, 64, 2048},
      {"decode/gqa8/dim128/pos256", 1, 8, 128, 256},  {"decode/gqa8/dim128/pos8192", 1, 8, 128, 8192},
      {"decode/mha/dim128/pos8192", 1, 1, 128, 8192}, {"decode/gqa8/dim128/mem", 1, 8, 128, int64_t{1} << 18},
  };
  for (const AttentionKernel& kernel : AllAttentionKernels()) {
    if (kernel.isa > best || kernel.isa == sys::Isa::kReference) continue;
    for (const Shape& shape : kShapes) {
      const std::string name = std::string(kernel.name) + "/" + shape.name;
      benchmark::RegisterBenchmark(name.c_str(), AttentionBenchmark, kernel, shape);
    }
  }
}

}  // namespace bellhop::kernels
