#include "moe/linear.h"

#include <algorithm>
#include <atomic>

#include "base/units.h"
#include "quant/planar.h"

namespace bellhop::moe {
namespace {

constexpr int64_t kLooseRows = 64;  // rows that LinearPrompt packs at once when nobody did

// Output rows of a decode unit: whole cache lines of y, and about this many weight bytes, which one core reads in 3 us.
constexpr int64_t kLineRows = 16;
constexpr int64_t kFewRows = 4;  // the smallest share that is worth a worker
constexpr int64_t kDecodeUnitBytes = 16 << 10;

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

// Kernels prefetch codes of the rows that come next, but scales only within a call: those of the first rows they would
// wait for.
void PrefetchFirstScales(const RowsAhead& ahead) {
  constexpr int64_t kRows = 8;  // whose scales a kernel reads before it prefetches any
  const int64_t rows = std::min(kRows, ahead.rows.size());
  for (int i = quant::kCodesPlane + 1; i < quant::kMaxPlanes; ++i) {
    const quant::QuantPlane& plane = ahead.linear->weights.planes[i];
    if (plane.data == nullptr) continue;
    const std::byte* at = plane.data + ahead.rows.begin * plane.row_bytes;
    for (int64_t left = rows * plane.row_bytes; left > 0; left -= 64, at += 64) __builtin_prefetch(at, 0, 2);
  }
}

}  // namespace

int64_t CpuContext::ChunkRows(int64_t cols) {
  constexpr int64_t kChunkBytes = 1 << 20, kMinRows = 64;  // fewer would decode weights more often than multiply
  const int64_t fitting = kChunkBytes / (2 * kernels::GemmPaddedColumns(cols)) / kMinRows * kMinRows;
  return std::clamp(fitting, kMinRows, kMaxChunkRows);
}

uint64_t CpuContext::WorkerBytes(int64_t max_cols) {
  return static_cast<uint64_t>(kernels::GemmTileBytes(max_cols, kMaxTerms) +
                               kernels::GemmPackedBytes(kLooseRows, max_cols)) +
         sizeof(float) * kTileRows * kMaxChunkRows;
}

uint64_t CpuContext::WorkspaceBytes(int workers, int64_t max_cols, int64_t max_rows) {
  return static_cast<uint64_t>(workers) * WorkerBytes(max_cols) +
         static_cast<uint64_t>(kernels::GemmPackedBytes(max_rows, max_cols));
}

Result<std::unique_ptr<CpuContext>> CpuContext::Create(sys::WorkerPool* pool, const sys::CpuCaps& caps,
                                                       int64_t max_cols, int64_t max_rows) {
  auto cpu = std::make_unique<CpuContext>();
  cpu->pool = pool;
  cpu->caps = caps;
  cpu->ops = &kernels::SelectVecOps(caps);
  cpu->gemm = kernels::SelectGemm(caps);
  cpu->max_cols = max_cols;
  cpu->max_rows = max_rows;
  cpu->work_ = std::make_unique<sys::WorkRanges>(pool->size());
  cpu->barrier_ = std::make_unique<sys::PhaseBarrier>(pool->size());
  for (int w = 0; w < pool->size(); ++w) {
    BELLHOP_TRY_ASSIGN(sys::AlignedBuffer scratch,
                       sys::AlignedBuffer::Create(WorkerBytes(max_cols), MemoryTag::kWorkspace));
    cpu->scratch_.push_back(std::move(scratch));
  }
  BELLHOP_TRY_ASSIGN(cpu->packed_,
                     sys::AlignedBuffer::Create(static_cast<uint64_t>(kernels::GemmPackedBytes(max_rows, max_cols)),
                                                MemoryTag::kWorkspace));
  return cpu;
}

Result<Linear> MakeLinear(const quant::QuantView& weights, const float* bias, float scale, const sys::CpuCaps& caps,
                          std::vector<std::string>* notes) {
  Linear linear{weights, bias, scale, kernels::SelectDot(weights.format, caps),
                kernels::SelectRowDecode(weights.format, caps)};
  if (weights.format == quant::WeightFormat::kBF16) linear.terms = 1;  // exact
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

// A panel is stored column pair by column pair, so columns of one panel are packed as a matrix of their own.
void PackGroups(const kernels::GemmKernel& gemm, MatView<const float> x, const int32_t* rows, int64_t count,
                RowRange groups, std::byte* packed) {
  using kernels::kGemmGroup, kernels::kGemmPanelRows;
  const int64_t per_panel = kernels::GemmPaddedColumns(x.cols) / kGemmGroup;
  for (int64_t g = groups.begin; g < groups.end;) {
    const int64_t panel = g / per_panel, end = std::min(groups.end, (panel + 1) * per_panel);
    const int64_t first_row = panel * kGemmPanelRows, n = std::min(kGemmPanelRows, count - first_row);
    const int64_t column = g % per_panel * kGemmGroup;
    const int64_t columns = std::min((end - panel * per_panel) * kGemmGroup, x.cols) - column;
    const float* from = x.data + column + (rows == nullptr ? first_row * x.stride : 0);
    gemm.pack({from, rows == nullptr ? n : x.rows, columns, x.stride}, rows == nullptr ? nullptr : rows + first_row,
              {0, n}, packed + panel * kernels::GemmPanelBytes(x.cols) + kernels::GemmPanelBytes(column));
    g = end;
  }
}

void LinearDecode(const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range, const RowsAhead& next,
                  const float* packed_x) {
  const std::byte* next_codes = nullptr;
  if (next.linear != nullptr) {
    PrefetchFirstScales(next);
    next_codes = next.linear->weights.Row(next.rows.begin);
  }
  linear.dot->fn({.weights = linear.weights, .x = x, .y = y, .range = range, .next = next_codes, .packed_x = packed_x});
  AddBiasAndScale(linear, y, range);
}

void LinearPrompt(const CpuContext& cpu, const Linear& linear, const PackedRows& x, MatView<float> y, RowRange range,
                  int worker) {
  std::byte* tile = cpu.Tile(worker);
  float* yt = cpu.Products(worker);
  const int64_t yt_stride = kernels::GemmPaddedRows(x.rows);
  for (int64_t r = range.begin; r < range.end; r += CpuContext::kTileRows) {
    const int64_t n = std::min(CpuContext::kTileRows, range.end - r);
    const kernels::FillArgs part{
        .decode = linear.decode, .weights = &linear.weights, .terms = linear.terms, .rows = {r, r + n}, .tile = tile};
    cpu.gemm->fill_multiply(&part, 1,
                            {.tile = tile,
                             .terms = linear.terms,
                             .n = n,
                             .packed = x.data,
                             .rows = x.rows,
                             .k = x.cols,
                             .yt = yt,
                             .yt_stride = yt_stride});
    cpu.gemm->transpose_store({.yt = yt,
                               .yt_stride = yt_stride,
                               .n = n,
                               .rows = x.rows,
                               .scale = linear.scale * linear.weights.global_scale,
                               .bias = linear.bias == nullptr ? nullptr : linear.bias + r,
                               .y = y.data + r,
                               .y_stride = y.stride});
  }
}

void LinearPrompt(const CpuContext& cpu, const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range,
                  int worker) {
  std::byte* packed =
      reinterpret_cast<std::byte*>(cpu.Products(worker) + CpuContext::kTileRows * CpuContext::kMaxChunkRows);
  for (int64_t m = 0; m < x.rows; m += kLooseRows) {
    const int64_t rows = std::min(kLooseRows, x.rows - m);
    cpu.gemm->pack({x.Row(m), rows, x.cols, x.stride}, nullptr, {0, rows}, packed);
    LinearPrompt(cpu, linear, PackedRows{packed, rows, x.cols}, {y.Row(m), rows, y.cols, y.stride}, range, worker);
  }
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

// Tiles of 32 rows decode and multiply best; halves balance better when a worker gets few.
int64_t UnitRows(int64_t total, int64_t chunks, int workers) {
  constexpr int64_t kManyUnits = 4;
  const int64_t units = CeilDiv(total, CpuContext::kTileRows) * chunks;
  return units >= kManyUnits * workers ? CpuContext::kTileRows : CpuContext::kTileRows / 2;
}

void RunPrompt(const CpuContext& cpu, HostSpan<const LinearJob> jobs, MatView<const float> x, int64_t total) {
  const int64_t groups = PackedGroups(x.rows, x.cols);
  const int64_t chunk_rows = CpuContext::ChunkRows(x.cols), chunks = CeilDiv(x.rows, chunk_rows);
  const int64_t unit_rows = UnitRows(total, chunks, cpu.pool->size()), units_per_chunk = CeilDiv(total, unit_rows);
  // Units are taken from a shared counter, chunk by chunk, so that the rows of a chunk stay in a worker's L2. Which
  // worker computes a unit does not change its result.
  std::atomic<int64_t> next{0};
  cpu.pool->Run([&](int worker, int workers) {
    PackGroups(*cpu.gemm, x, nullptr, x.rows, sys::WorkerPool::Split(groups, 1, worker, workers), cpu.packed());
    cpu.barrier().Wait(worker);
    for (int64_t unit; (unit = next.fetch_add(1, std::memory_order_relaxed)) < chunks * units_per_chunk;) {
      const int64_t first = unit / units_per_chunk * chunk_rows, rows = std::min(chunk_rows, x.rows - first);
      const PackedRows chunk{cpu.packed() + kernels::GemmPackedBytes(first, x.cols), rows, x.cols};
      const int64_t begin = unit % units_per_chunk * unit_rows;
      ForEachJobPart(jobs, {begin, std::min(begin + unit_rows, total)}, [&](const LinearJob& job, RowRange part) {
        LinearPrompt(cpu, *job.linear, chunk, {job.y.Row(first), rows, job.y.cols, job.y.stride}, part, worker);
      });
    }
  });
}

int64_t WeightBytes(HostSpan<const LinearJob> jobs) {
  int64_t bytes = 0;
  for (const LinearJob& job : jobs) bytes += static_cast<int64_t>(quant::ViewBytes(job.linear->weights));
  return bytes;
}

// Rows of a unit: enough bytes to be worth taking, few enough for every worker to get several.
int64_t DecodeUnitRows(HostSpan<const LinearJob> jobs, int64_t total, int workers) {
  // A router has few rows of many bytes: every worker reads some, though two may then write to one line of y.
  if (total < kLineRows * workers) return std::max<int64_t>(total / workers / kFewRows, 1) * kFewRows;
  constexpr int64_t kUnitsPerWorker = 4;
  const int64_t by_bytes = total * kDecodeUnitBytes / std::max<int64_t>(WeightBytes(jobs), 1);
  const int64_t by_workers = total / (kUnitsPerWorker * workers);
  return std::max<int64_t>(std::min(by_bytes, by_workers) / kLineRows, 1) * kLineRows;
}

// From output row `row` of the concatenated jobs on.
RowsAhead RowsFrom(HostSpan<const LinearJob> jobs, int64_t row) {
  for (const LinearJob& job : jobs) {
    if (row < job.linear->rows()) return {job.linear, {row, job.linear->rows()}};
    row -= job.linear->rows();
  }
  return {};
}

// A small matrix and many rows, such as a router's in a prompt: the rows are shared out, and every worker reads the
// matrix once. Otherwise every worker would read all rows.
bool SharesRows(HostSpan<const LinearJob> jobs, int64_t rows, int workers) {
  constexpr int64_t kSmallBytes = 4 << 20, kRowsPerWorker = 8;
  return rows >= kRowsPerWorker * workers && WeightBytes(jobs) <= kSmallBytes;
}

void RunDecode(const CpuContext& cpu, HostSpan<const LinearJob> jobs, MatView<const float> x, int64_t total) {
  auto run = [&](RowRange range, const RowsAhead& next) {
    ForEachJobPart(jobs, range,
                   [&](const LinearJob& job, RowRange part) { LinearDecode(*job.linear, x, job.y, part, next); });
  };
  const int workers = cpu.pool->size();
  if (workers == 1 || total <= kFewRows) return run({0, total}, {});
  if (SharesRows(jobs, x.rows, workers)) {
    cpu.pool->ParallelFor(x.rows, kFewRows, [&](RowRange rows) {
      for (const LinearJob& job : jobs) {
        LinearDecode(*job.linear, {x.Row(rows.begin), rows.size(), x.cols, x.stride},
                     {job.y.Row(rows.begin), rows.size(), job.y.cols, job.y.stride}, {0, job.linear->rows()});
      }
    });
    return;
  }
  const int64_t unit_rows = DecodeUnitRows(jobs, total, workers);
  sys::WorkRanges& work = cpu.work();
  work.Reset(CeilDiv(total, unit_rows));
  cpu.pool->Run([&](int worker, int) {
    for (int64_t unit; (unit = work.Next(worker)) >= 0;) {
      const int64_t following = work.First(worker);
      run({unit * unit_rows, std::min((unit + 1) * unit_rows, total)},
          following < 0 ? RowsAhead{} : RowsFrom(jobs, following * unit_rows));
    }
  });
}

}  // namespace

void RunLinears(const CpuContext& cpu, NumericClass numeric_class, HostSpan<const LinearJob> jobs,
                MatView<const float> x) {
  int64_t total = 0;
  for (const LinearJob& job : jobs) total += job.linear->rows();
  if (numeric_class == NumericClass::kPrompt && x.rows > 0) return RunPrompt(cpu, jobs, x, total);
  RunDecode(cpu, jobs, x, total);
}

}  // namespace bellhop::moe
