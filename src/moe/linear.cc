#include "moe/linear.h"

#include <algorithm>
#include <atomic>

#include "base/units.h"

namespace bellhop::moe {
namespace {

constexpr int64_t kDecodeGrain = 16;  // output rows: one or more cache lines of y per worker, no false sharing

void AddBiasAndScale(const Linear& linear, MatView<float> y, RowRange range) {
  if (linear.scale != 1) {
    for (int64_t m = 0; m < y.rows; ++m) {
      for (int64_t r = range.begin; r < range.end; ++r) y.Row(m)[r] *= linear.scale;
    }
  }
  if (linear.bias != nullptr) {
    for (int64_t m = 0; m < y.rows; ++m) {
      for (int64_t r = range.begin; r < range.end; ++r) y.Row(m)[r] += linear.bias[r];
    }
  }
}

}  // namespace

Result<std::unique_ptr<CpuContext>> CpuContext::Create(sys::WorkerPool* pool, const sys::CpuCaps& caps,
                                                       int64_t max_cols, int64_t max_rows) {
  auto cpu = std::make_unique<CpuContext>();
  cpu->pool = pool;
  cpu->caps = caps;
  cpu->ops = &kernels::SelectVecOps(caps);
  cpu->gemm = kernels::SelectGemm(caps);
  cpu->max_cols = max_cols;
  cpu->max_rows = max_rows;
  for (int w = 0; w < pool->size(); ++w) {
    const auto floats = static_cast<size_t>(kTileRows * (max_cols + max_rows));
    BELLHOP_TRY_ASSIGN(sys::AlignedBuffer tile,
                       sys::AlignedBuffer::Create(floats * sizeof(float), MemoryTag::kWorkspace));
    cpu->tiles.push_back(std::move(tile));
  }
  return cpu;
}

Result<Linear> MakeLinear(const quant::QuantView& weights, const float* bias, float scale, const sys::CpuCaps& caps,
                          std::vector<std::string>* notes) {
  Linear linear{weights, bias, scale, kernels::SelectDot(weights.format, caps),
                kernels::SelectRowDecode(weights.format, caps)};
  const std::string_view format = quant::Traits(weights.format).name;
  if (linear.dot == nullptr || linear.decode == nullptr) {
    return Unsupported("format {} has no CPU kernels; re-quantize the file", format);
  }
  if (notes != nullptr && caps.isa != sys::Isa::kReference && linear.dot->isa == sys::Isa::kReference) {
    std::string note = fmt::format("format {} runs on the reference kernel (no SIMD version): slow", format);
    if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(std::move(note));
  }
  return linear;
}

void LinearDecode(const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range,
                  const std::byte* next) {
  linear.dot->fn({.weights = linear.weights, .x = x, .y = y, .range = range, .next = next});
  AddBiasAndScale(linear, y, range);
}

void LinearPrompt(const CpuContext& cpu, const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range,
                  int worker) {
  float* tile = cpu.Tile(worker);
  for (int64_t r = range.begin; r < range.end; r += CpuContext::kTileRows) {
    const int64_t n = std::min(CpuContext::kTileRows, range.end - r);
    for (int64_t i = 0; i < n; ++i) {
      linear.decode->fn(linear.weights.Row(r + i), linear.cols(), tile + i * linear.cols());
    }
    cpu.gemm->fn({.w = {tile, n, linear.cols(), linear.cols()}, .x = x, .y = {y.data + r, y.rows, n, y.stride}});
  }
  AddBiasAndScale(linear, y, range);
}

namespace {

// Calls fn(job, rows) for the part of the jobs' concatenated output rows that lies in `range`.
template <typename Fn>
void ForEachJobPart(HostSpan<const LinearJob> jobs, RowRange range, Fn&& fn) {
  int64_t base = 0;
  for (const LinearJob& job : jobs) {
    const int64_t rows = job.linear->rows();
    const RowRange part{std::max<int64_t>(range.begin - base, 0), std::min(range.end - base, rows)};
    if (part.begin < part.end) fn(job, part);
    base += rows;
  }
}

void RunPrompt(const CpuContext& cpu, HostSpan<const LinearJob> jobs, MatView<const float> x, int64_t total) {
  // Tiles are taken from a shared counter; which worker computes a tile does not change its result.
  std::atomic<int64_t> next{0};
  cpu.pool->Run([&](int worker, int) {
    for (;;) {
      const int64_t begin = next.fetch_add(CpuContext::kTileRows, std::memory_order_relaxed);
      if (begin >= total) return;
      const RowRange range{begin, std::min(begin + CpuContext::kTileRows, total)};
      ForEachJobPart(jobs, range, [&](const LinearJob& job, RowRange part) {
        LinearPrompt(cpu, *job.linear, x, job.y, part, worker);
      });
    }
  });
}

}  // namespace

void RunLinears(const CpuContext& cpu, NumericClass numeric_class, HostSpan<const LinearJob> jobs,
                MatView<const float> x) {
  int64_t total = 0;
  for (const LinearJob& job : jobs) total += job.linear->rows();
  if (numeric_class == NumericClass::kPrompt) return RunPrompt(cpu, jobs, x, total);
  cpu.pool->ParallelFor(total, kDecodeGrain, [&](RowRange range) {
    ForEachJobPart(jobs, range,
                   [&](const LinearJob& job, RowRange part) { LinearDecode(*job.linear, x, job.y, part); });
  });
}

}  // namespace bellhop::moe
