// Speed of the CPU kernels, one core: every row of dot.def, row_decode.def, planar.def and gemm.def that this CPU can
// run.
//
//   kernels_bench --benchmark_filter='dot_q4_0.*/m:1/'
//
// Names: <kernel>/m:<x rows>/<place>, where the place is how much weight memory one pass covers: `l2` 1 MiB, which
// stays in the L2 cache, or `mem` 1 GiB, larger than any last-level cache this was run on.
// Planar formats have groups of 32 (INT3: 64) and bf16 scales. Counters:
//   bytes_per_second   weight bytes (what a memory-bound kernel is limited by)
//   Gweights           10^9 weights per second, times x rows for the products
// The prompt class has <kernel>/<format>/m:<x rows>/mem from packed weights to results, <kernel>/<format>/fill/<place>
// for decoding tiles alone, <kernel>_multiply and <kernel>_pack for the other parts; TFLOPs are 2 * weights * x rows.
// fma_peak_<isa> is what registers alone allow, on one CPU and on all of them at once: no product by FMA is faster.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "attention_bench.h"
#include "fma_peak_bench.h"
#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "quant/random_weights.h"

namespace bellhop::kernels {
namespace {

constexpr int64_t kCols = 2048;

// Random matrices of kCols columns, as many as fit in `bytes`, none larger than an expert's: the rows of K-major
// formats are far apart otherwise.
class Weights {
 public:
  Weights(quant::WeightFormat format, int64_t bytes) {
    constexpr int64_t kMaxRows = 1536;
    quant::MatrixSpec spec = {.format = format, .rows = kGemmTileRows, .cols = kCols};
    if (quant::Traits(format).planar) {
      const quant::PlanarTraits& p = quant::Planar(format);
      spec.group = p.fp4 ? p.fp4_group : p.bits == 3 ? 64 : 32;
      spec.scale_type = !p.fp4              ? quant::ScaleType::kBF16
                        : p.fp4_group == 32 ? quant::ScaleType::kE8M0
                                            : quant::ScaleType::kE4M3;
    }
    const int64_t tiles = std::max<int64_t>(1, bytes / static_cast<int64_t>(quant::MatrixBytes(spec)));
    spec.rows *= std::min(tiles, kMaxRows / kGemmTileRows);
    const auto matrix_bytes = static_cast<int64_t>(quant::MatrixBytes(spec));
    const int64_t count = std::max<int64_t>(1, bytes / matrix_bytes);
    memory_.resize(static_cast<size_t>(count * matrix_bytes));
    for (int64_t i = 0; i < count; ++i) {
      const HostSpan<std::byte> at(memory_.data() + i * matrix_bytes, static_cast<size_t>(matrix_bytes));
      views_.push_back(quant::FillRandomMatrix(spec, at, static_cast<uint64_t>(i)));
    }
  }
  const std::vector<quant::QuantView>& views() const { return views_; }
  int64_t rows() const { return views_[0].rows; }  // of each matrix
  int64_t elements() const { return static_cast<int64_t>(views_.size()) * rows() * kCols; }
  int64_t bytes() const { return static_cast<int64_t>(views_.size() * quant::ViewBytes(views_[0])); }

 private:
  std::vector<std::byte> memory_;
  std::vector<quant::QuantView> views_;
};

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
  const Weights weights(kernel.format, bytes);
  const int64_t rows = weights.rows();
  Floats x(x_rows);
  std::vector<float> y(static_cast<size_t>(x_rows * rows));
  for (auto _ : state) {
    for (size_t i = 0; i < weights.views().size(); ++i) {
      const quant::QuantView& next = weights.views()[i + 1 < weights.views().size() ? i + 1 : 0];
      kernel.fn({.weights = weights.views()[i],
                 .x = {x.data(), x_rows, kCols, kCols},
                 .y = {y.data(), x_rows, rows, rows},
                 .range = {0, rows},
                 .next = next.planes[0].data});
    }
    benchmark::ClobberMemory();
  }
  SetCounters(state, weights.bytes(), weights.elements(), x_rows);
}

void RowDecodeBenchmark(benchmark::State& state, const RowDecodeKernel& kernel, int64_t bytes) {
  const Weights weights(kernel.format, bytes);
  std::vector<float> y(kCols);
  for (auto _ : state) {
    for (const quant::QuantView& w : weights.views()) {
      for (int64_t r = 0; r < w.rows; ++r) {
        if (kernel.slice != nullptr) {
          kernel.slice(w, r, 0, kCols, y.data());
        } else {
          kernel.fn(w.Row(r), kCols, y.data());
        }
      }
    }
    benchmark::ClobberMemory();
  }
  SetCounters(state, weights.bytes(), weights.elements(), 1);
}

// The prompt class from the weights' bytes to y: tiles of 32 rows are decoded, multiplied with packed rows and stored.
// `bytes` of weights are covered in a pass; with `fill_only` the tiles are just decoded.
void GemmBenchmark(benchmark::State& state, const GemmKernel& kernel, quant::WeightFormat format, int64_t x_rows,
                   int64_t bytes, bool fill_only) {
  sys::CpuCaps caps;
  caps.isa = kernel.isa;
  const RowDecodeKernel* decode = SelectRowDecode(format, caps);
  const Weights weights(format, bytes);
  const int64_t rows = weights.rows();
  Floats x(x_rows), tile(kGemmTileRows), packed(GemmPaddedRows(x_rows)), yt(kGemmTileRows * x_rows / kCols + 1);
  Floats y(x_rows);
  kernel.pack({x.data(), x_rows, kCols, kCols}, nullptr, {0, x_rows}, reinterpret_cast<std::byte*>(packed.data()));
  auto* tile_bytes = reinterpret_cast<std::byte*>(tile.data());
  for (auto _ : state) {
    for (const quant::QuantView& w : weights.views()) {
      for (int64_t r = 0; r < rows; r += kGemmTileRows) {
        const FillArgs fill{.decode = decode, .weights = &w, .rows = {r, r + kGemmTileRows}, .tile = tile_bytes};
        if (fill_only) {
          kernel.fill_tile(fill);
          continue;
        }
        kernel.fill_multiply(&fill, 1,
                             {.tile = tile_bytes,
                              .n = kGemmTileRows,
                              .packed = reinterpret_cast<const std::byte*>(packed.data()),
                              .rows = x_rows,
                              .k = kCols,
                              .yt = yt.data(),
                              .yt_stride = x_rows});
        kernel.transpose_store({.yt = yt.data(),
                                .yt_stride = x_rows,
                                .n = kGemmTileRows,
                                .rows = x_rows,
                                .y = y.data() + r % kCols,
                                .y_stride = kCols});
      }
    }
    benchmark::ClobberMemory();
  }
  SetCounters(state, weights.bytes(), weights.elements(), fill_only ? 1 : x_rows);
  if (fill_only) return;
  state.counters["TFLOPs"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(2 * weights.elements() * x_rows) * 1e-12,
      benchmark::Counter::kIsRate);
}

// The product alone, one tile again and again.
void MultiplyBenchmark(benchmark::State& state, const GemmKernel& kernel, int64_t x_rows) {
  Floats x(x_rows), w(kGemmTileRows), tile(kGemmTileRows), packed(x_rows), yt(kGemmTileRows * x_rows / kCols + 1);
  const quant::QuantView weights{.format = quant::WeightFormat::kF32,
                                 .rows = kGemmTileRows,
                                 .cols = kCols,
                                 .planes = {{reinterpret_cast<const std::byte*>(w.data()), kCols * 4}}};
  sys::CpuCaps caps;
  auto* tile_bytes = reinterpret_cast<std::byte*>(tile.data());
  kernel.fill_tile({.decode = SelectRowDecode(quant::WeightFormat::kF32, caps),
                    .weights = &weights,
                    .rows = {0, kGemmTileRows},
                    .tile = tile_bytes});
  kernel.pack({x.data(), x_rows, kCols, kCols}, nullptr, {0, x_rows}, reinterpret_cast<std::byte*>(packed.data()));
  for (auto _ : state) {
    kernel.multiply({.tile = tile_bytes,
                     .n = kGemmTileRows,
                     .packed = reinterpret_cast<const std::byte*>(packed.data()),
                     .rows = x_rows,
                     .k = kCols,
                     .yt = yt.data(),
                     .yt_stride = x_rows});
    benchmark::ClobberMemory();
  }
  state.counters["TFLOPs"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(2 * kGemmTileRows * kCols * x_rows) * 1e-12,
      benchmark::Counter::kIsRate);
}

void PackBenchmark(benchmark::State& state, const GemmKernel& kernel) {
  constexpr int64_t kRows = 64;
  Floats x(kRows), packed(kRows);
  for (auto _ : state) {
    kernel.pack({x.data(), kRows, kCols, kCols}, nullptr, {0, kRows}, reinterpret_cast<std::byte*>(packed.data()));
    benchmark::ClobberMemory();
  }
  SetCounters(state, kRows * kCols * 4, kRows * kCols, 1);
}

void RegisterGemm(const GemmKernel& kernel, int64_t l2_bytes, int64_t memory_bytes) {
  const std::string name = kernel.name;
  benchmark::RegisterBenchmark((name + "_pack").c_str(), PackBenchmark, kernel);
  for (int64_t m : {16, 32, 64, 256}) {
    benchmark::RegisterBenchmark((name + "_multiply/m:" + std::to_string(m)).c_str(), MultiplyBenchmark, kernel, m);
  }
  for (const auto format :
       {quant::WeightFormat::kQ4_0, quant::WeightFormat::kQ4K, quant::WeightFormat::kQ8_0, quant::WeightFormat::kF16,
        quant::WeightFormat::kInt4, quant::WeightFormat::kInt4Sm80, quant::WeightFormat::kInt3}) {
    const std::string with_format = name + "/" + std::string(quant::Traits(format).name);
    benchmark::RegisterBenchmark((with_format + "/fill/l2").c_str(), GemmBenchmark, kernel, format, 16, l2_bytes, true);
    if (kernel.isa == sys::Isa::kReference) continue;
    benchmark::RegisterBenchmark((with_format + "/fill/mem").c_str(), GemmBenchmark, kernel, format, 16, memory_bytes,
                                 true);
    for (int64_t m : {16, 32, 64, 256}) {
      benchmark::RegisterBenchmark((with_format + "/m:" + std::to_string(m) + "/mem").c_str(), GemmBenchmark, kernel,
                                   format, m, memory_bytes / 8, false);
    }
  }
}

void RegisterAll(sys::Isa best) {
  constexpr int64_t kL2Bytes = 1 << 20, kMemoryBytes = 1 << 30;
  for (const DotKernel& kernel : AllDotKernels()) {
    if (!CanRun(kernel, sys::DetectCpu())) continue;
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
    if (kernel.isa <= best) RegisterGemm(kernel, kL2Bytes, kMemoryBytes);
  }
  RegisterAttentionBenchmarks(best);
  RegisterFmaPeakBenchmarks(best);
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
