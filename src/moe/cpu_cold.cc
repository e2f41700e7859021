#include "moe/cpu_cold.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"

namespace bellhop::moe {
namespace {

constexpr int64_t kLineFloats = 16;  // floats of a cache line

// Weight rows of a unit of work. Large enough that a unit streams tens of KiB, small enough that the last units of a
// phase end together even where one core is half as fast as the others: 8 gate and 8 up rows of 2,560 INT4 weights are
// 23 KB, 4 us of one core's bandwidth. With several rows of x a unit is bound by arithmetic, and its weight rows share
// what it costs to fetch those rows from L2 and, in fc2, to pack them.
struct UnitRows {
  int64_t fc1;  // of gate and as many of up
  int64_t fc2;
};
constexpr UnitRows kFewRows{8, 16}, kManyRows{16, 64};
constexpr int32_t kFewXRows = 2;
// Rows of fc2 that an idle worker prefetches: tens of KiB, far below L2.
constexpr int64_t kIdlePrefetchRows = 64;

int64_t WholeLines(int64_t floats) { return CeilDiv(floats, kLineFloats) * kLineFloats; }

// Code bytes of row r, for prefetching.
const std::byte* RowBytesAt(const Linear& linear, int64_t row) { return linear.weights.Row(row); }

// Rows i of a job are rows rows[i] of x: evenly spaced ones need no copy.
bool EvenlySpaced(const int32_t* rows, int32_t count) {
  for (int32_t i = 2; i < count; ++i) {
    if (rows[i] - rows[i - 1] != rows[1] - rows[0]) return false;
  }
  return true;
}

// After the experts of the call have left kLoading.
bool HasFailed(const ColdRequest& request, int32_t expert) {
  return request.ready != nullptr && request.ready[expert].load(std::memory_order_relaxed) == ExpertReady::kFailed;
}
bool RowHasFailed(const ColdRequest& request, int32_t row) {
  if (request.ready == nullptr) return false;
  const Routes& routes = request.routes;
  for (int32_t r = row * routes.used; r < (row + 1) * routes.used; ++r) {
    const bool miss = routes.skip == nullptr || routes.skip[r] == 0;
    if (miss && HasFailed(request, routes.ids[r])) return true;
  }
  return false;
}

}  // namespace

CpuColdPath::CpuColdPath(const CpuContext& cpu, const Options& options)
    : cpu_(cpu),
      options_(options),
      fc1_work_(cpu.pool->size()),
      fc2_work_(cpu.pool->size()),
      barrier_(cpu.pool->size()) {}

Result<std::unique_ptr<CpuColdPath>> CpuColdPath::Create(const store::ExpertStore& store, const CpuContext& cpu,
                                                         const Options& options, std::vector<std::string>* notes) {
  std::vector<std::vector<Expert>> layers(static_cast<size_t>(store.layers()));
  for (int32_t l = 0; l < store.layers(); ++l) {
    for (int32_t e = 0; e < store.experts(LayerId(l)); ++e) {
      BELLHOP_TRY_ASSIGN(Expert expert,
                         MakeExpert(store.Host(LayerId(l), ExpertId(e)), options.numerics.activation, cpu.caps, notes));
      layers[static_cast<size_t>(l)].push_back(expert);
    }
  }
  return Create(std::move(layers), cpu, options);
}

Result<std::unique_ptr<CpuColdPath>> CpuColdPath::Create(std::vector<std::vector<Expert>> layers, const CpuContext& cpu,
                                                         const Options& options) {
  // Routes are counted in int32.
  if (int64_t{options.max_rows} * options.max_used > INT32_MAX) {
    return InvalidArgument("{} rows of {} experts each are too many for one step; lower --batch-size", options.max_rows,
                           options.max_used);
  }
  auto path = std::unique_ptr<CpuColdPath>(new CpuColdPath(cpu, options));
  path->layers_ = std::move(layers);
  BELLHOP_TRY(path->AllocateBuffers());
  return path;
}

Status CpuColdPath::AllocateBuffers() {
  size_t max_experts = 0;
  for (const std::vector<Expert>& layer : layers_) {
    max_experts = std::max(max_experts, layer.size());
    for (const Expert& expert : layer) {
      if (expert.hidden() != options_.hidden) {
        return InvalidArgument("an expert of hidden size {} in a layer of {}", expert.hidden(), options_.hidden);
      }
      inner_ = std::max(inner_, expert.inner());
    }
  }
  inner_stride_ = WholeLines(inner_);
  hidden_stride_ = WholeLines(options_.hidden);
  const auto routes = static_cast<uint64_t>(options_.max_rows) * static_cast<uint64_t>(options_.max_used);
  const auto row_floats = static_cast<uint64_t>(2 * hidden_stride_ + 3 * inner_stride_);
  BELLHOP_TRY_ASSIGN(workspace_,
                     sys::AlignedBuffer::Create(routes * row_floats * sizeof(float), MemoryTag::kWorkspace));
  x_ = workspace_.as<float>().data();
  fc1_ = x_ + static_cast<int64_t>(routes) * hidden_stride_;
  hidden_ = fc1_ + static_cast<int64_t>(routes) * 2 * inner_stride_;
  out_ = hidden_ + static_cast<int64_t>(routes) * inner_stride_;
  groups_ = std::make_unique<ColdGroups>(static_cast<int32_t>(max_experts), static_cast<int32_t>(routes));
  jobs_.reserve(max_experts);
  prompt_groups_.reserve(max_experts);
  BELLHOP_TRY_ASSIGN(prompt_, ColdPrompt::Create(cpu_,
                                                 {.hidden = options_.hidden,
                                                  .inner = inner_,
                                                  .routes = static_cast<int64_t>(routes),
                                                  .groups = static_cast<int64_t>(max_experts)},
                                                 options_.numerics));
  return Status();
}

void CpuColdPath::PrepareJobs(const ColdRequest& request) {
  const std::vector<Expert>& experts = layers_[request.layer.index()];
  groups_->Build(request.routes, static_cast<int32_t>(experts.size()), request.ready);
  const bool sliced = request.inner.begin != request.inner.end;
  jobs_.clear();
  for (const ColdGroup& group : groups_->groups()) {
    const Expert& whole = experts[static_cast<size_t>(group.expert)];
    const int32_t* rows = groups_->rows() + group.first;
    Job job{.expert = sliced ? InnerSlice(whole, request.inner) : whole,
            .x = {x_ + group.first * hidden_stride_, group.count, options_.hidden, hidden_stride_},
            .fc1 = fc1_ + group.first * 2 * inner_stride_,
            .hidden = hidden_ + group.first * inner_stride_,
            .out = out_ + group.first * hidden_stride_,
            .id = group.expert,
            .count = group.count,
            .gather = !EvenlySpaced(rows, group.count),
            .packed = nullptr};
    // The outputs' place is free until fc2.
    if (group.count >= kernels::kPackedXRows) job.packed = job.out;
    if (!job.gather) {
      const int64_t step = group.count > 1 ? rows[1] - rows[0] : 1;
      job.x = {request.x.data + rows[0] * request.x.stride, group.count, options_.hidden, step * request.x.stride};
    }
    jobs_.push_back(job);
  }
}

// Copies and packs the inputs that jobs want so.
void CpuColdPath::ArrangeRows(const ColdRequest& request, int worker, int workers) {
  const RowRange range = sys::WorkerPool::Split(groups_->misses(), 1, worker, workers);
  for (const Job& job : jobs_) {
    if (!job.gather && job.packed == nullptr) continue;
    const int64_t first = (job.out - out_) / hidden_stride_;
    const int64_t begin = std::max(range.begin, first), end = std::min(range.end, first + job.count);
    for (int64_t i = begin; i < end; ++i) {
      const float* row = request.x.Row(groups_->rows()[i]);
      if (job.gather) std::memcpy(x_ + i * hidden_stride_, row, static_cast<size_t>(options_.hidden) * sizeof(float));
      if (job.packed != nullptr) kernels::PackRow(row, options_.hidden, i - first, job.count, job.packed);
    }
  }
}

// A worker's share of units is contiguous. On one node that is a stretch of few experts, which it streams. On several
// the units of a share are the same rows of every expert, because those rows are on the worker's node.
CpuColdPath::Place CpuColdPath::PlaceOf(int64_t unit, int64_t units_per_job, int64_t unit_rows) const {
  const auto jobs = static_cast<int64_t>(jobs_.size());
  const bool by_rows = cpu_.numa_nodes > 1;
  const int64_t job = by_rows ? unit % jobs : unit / units_per_job;
  const int64_t tile = by_rows ? unit / jobs : unit % units_per_job;
  return {&jobs_[static_cast<size_t>(job)], tile * unit_rows};
}

void CpuColdPath::Fc1Unit(const ColdRequest& request, int64_t unit, int64_t next_unit) {
  const auto [place, begin] = PlaceOf(unit, fc1_units_per_job_, fc1_unit_rows_);
  const Job& job = *place;
  const Expert& expert = job.expert;
  const int64_t inner = expert.inner();
  const RowRange rows{begin, std::min(begin + fc1_unit_rows_, inner)};
  if (rows.begin >= rows.end || !WaitUntilReady(request.ready, job.id)) return;
  const std::byte* next = nullptr;
  if (next_unit >= 0) {
    const Place at = PlaceOf(next_unit, fc1_units_per_job_, fc1_unit_rows_);
    next = RowBytesAt(at.job->expert.gate, std::min(at.row, inner - 1));
  }

  const kernels::VecOps& ops = *cpu_.ops;
  const int64_t stride = 2 * inner_stride_;
  if (expert.layout == store::Fc1Layout::kInterleaved) {
    const RowRange both{2 * rows.begin, 2 * rows.end};
    LinearDecode(expert.gate, job.x, {job.fc1, job.count, 2 * inner, stride}, both, next, job.packed);
    for (int32_t m = 0; m < job.count; ++m) {
      alignas(64) float gate[kManyRows.fc1], up[kManyRows.fc1];
      ops.deinterleave(job.fc1 + m * stride + both.begin, rows.size(), gate, up);
      ApplyActivation(ops, options_.numerics.activation, gate, up, rows.size(),
                      job.hidden + m * inner_stride_ + rows.begin);
    }
  } else {
    const bool has_up = expert.layout == store::Fc1Layout::kSeparate;
    float* up = job.fc1 + inner_stride_;
    LinearDecode(expert.gate, job.x, {job.fc1, job.count, inner, stride}, rows,
                 has_up ? RowBytesAt(expert.up, rows.begin) : next, job.packed);
    if (has_up) LinearDecode(expert.up, job.x, {up, job.count, inner, stride}, rows, next, job.packed);
    for (int32_t m = 0; m < job.count; ++m) {
      ApplyActivation(ops, options_.numerics.activation, job.fc1 + m * stride + rows.begin,
                      up + m * stride + rows.begin, rows.size(), job.hidden + m * inner_stride_ + rows.begin);
    }
  }
  if (options_.numerics.hidden == Rounding::kNone) return;
  for (int32_t m = 0; m < job.count; ++m) {
    ApplyRounding(ops, options_.numerics.hidden, rows.size(), job.hidden + m * inner_stride_ + rows.begin);
  }
}

void CpuColdPath::Fc2Unit(const ColdRequest& request, int64_t unit, int64_t next_unit) {
  const auto [place, begin] = PlaceOf(unit, fc2_units_per_job_, fc2_unit_rows_);
  const Job& job = *place;
  const RowRange rows{begin, std::min(begin + fc2_unit_rows_, options_.hidden)};
  if (rows.begin >= rows.end || HasFailed(request, job.id)) return;
  const std::byte* next = nullptr;
  if (next_unit >= 0) {
    const Place at = PlaceOf(next_unit, fc2_units_per_job_, fc2_unit_rows_);
    next = RowBytesAt(at.job->expert.down, std::min(at.row, options_.hidden - 1));
  }
  const MatView<const float> h{job.hidden, job.count, job.expert.inner(), inner_stride_};
  LinearDecode(job.expert.down, h, {job.out, job.count, options_.hidden, hidden_stride_}, rows, next);
  if (options_.numerics.output == Rounding::kNone) return;
  for (int32_t m = 0; m < job.count; ++m) {
    ApplyRounding(*cpu_.ops, options_.numerics.output, rows.size(), job.out + m * hidden_stride_ + rows.begin);
  }
}

void CpuColdPath::Combine(const ColdRequest& request, RowRange columns) const {
  const Routes& routes = request.routes;
  for (int32_t m = 0; m < routes.rows; ++m) {
    float* row = request.y.Row(m) + columns.begin;
    std::fill(row, row + columns.size(), 0.0f);
    if (RowHasFailed(request, m)) continue;
    for (int32_t k = 0; k < routes.used; ++k) {
      const int32_t at = groups_->positions()[m * routes.used + k];
      if (at < 0) continue;
      cpu_.ops->add_scaled(out_ + at * hidden_stride_ + columns.begin, routes.weights[m * routes.used + k],
                           columns.size(), row);
    }
  }
}

// For the wait for the slowest fc1 unit: the worker's first weights of fc2, which do not depend on fc1.
RowPrefetch CpuColdPath::FirstFc2Prefetch(int worker) const {
  const int64_t first = fc2_work_.First(worker);
  if (first < 0) return {};
  const Place place = PlaceOf(first, fc2_units_per_job_, fc2_unit_rows_);
  const Linear& down = place.job->expert.down;
  if (place.row >= down.rows()) return {};
  return {down, {place.row, std::min(place.row + kIdlePrefetchRows, down.rows())}};
}

void CpuColdPath::RunDecode(const ColdRequest& request) {
  const auto jobs = static_cast<int64_t>(jobs_.size());
  int64_t inner = 0;
  int32_t most = 0;  // rows of one expert
  bool arrange = false;
  for (const Job& job : jobs_) {
    inner = std::max(inner, job.expert.inner());
    most = std::max(most, job.count);
    arrange |= job.gather || job.packed != nullptr;
  }
  const UnitRows unit_rows = most <= kFewXRows ? kFewRows : kManyRows;
  fc1_unit_rows_ = unit_rows.fc1;
  fc2_unit_rows_ = unit_rows.fc2;
  fc1_units_per_job_ = CeilDiv(inner, fc1_unit_rows_);
  fc1_work_.Reset(jobs * fc1_units_per_job_);
  fc2_units_per_job_ = CeilDiv(options_.hidden, fc2_unit_rows_);
  fc2_work_.Reset(jobs * fc2_units_per_job_);
  cpu_.pool->Run([&](int worker, int workers) {
    if (arrange) {
      ArrangeRows(request, worker, workers);
      barrier_.Wait(worker);
    }
    for (int64_t unit; (unit = fc1_work_.Next(worker)) >= 0;) Fc1Unit(request, unit, fc1_work_.First(worker));
    barrier_.Wait(worker, FirstFc2Prefetch(worker));
    for (int64_t unit; (unit = fc2_work_.Next(worker)) >= 0;) Fc2Unit(request, unit, fc2_work_.First(worker));
    barrier_.Wait(worker);
    const RowRange columns = sys::WorkerPool::Split(options_.hidden, kLineFloats, worker, workers);
    if (columns.size() > 0) Combine(request, columns);
  });
}

void CpuColdPath::RunPrompt(const ColdRequest& request) {
  prompt_groups_.clear();
  for (const Job& job : jobs_) {
    const int64_t first = (job.out - out_) / hidden_stride_;
    prompt_groups_.push_back(
        {.expert = &job.expert, .id = job.id, .count = job.count, .rows = groups_->rows() + first, .out = job.out});
  }
  prompt_->Run({prompt_groups_.data(), prompt_groups_.size()}, request.x, hidden_stride_, request.ready);
  cpu_.pool->ParallelFor(options_.hidden, kLineFloats, [&](RowRange columns) { Combine(request, columns); });
}

void CpuColdPath::Run(const ColdRequest& request) {
  const Routes& routes = request.routes;
  if (routes.rows == 0) return;
  PrepareJobs(request);
  if (request.numeric_class == NumericClass::kPrompt) {
    RunPrompt(request);
  } else {
    RunDecode(request);
  }
  if (request.failed_rows == nullptr) return;
  for (int32_t m = 0; m < routes.rows; ++m) {
    if (RowHasFailed(request, m)) request.failed_rows[m] = 1;
  }
}

uint64_t CpuColdPath::WeightBytes(LayerId layer, const Routes& routes) const {
  const std::vector<Expert>& experts = layers_[layer.index()];
  std::vector<bool> seen(experts.size());
  uint64_t bytes = 0;
  for (int32_t r = 0; r < routes.rows * routes.used; ++r) {
    const auto id = static_cast<size_t>(routes.ids[r]);
    if ((routes.skip != nullptr && routes.skip[r] != 0) || seen[id]) continue;
    seen[id] = true;
    bytes += experts[id].bytes();
  }
  return bytes;
}

}  // namespace bellhop::moe
