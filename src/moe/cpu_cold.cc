#include "moe/cpu_cold.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "cuda/doorbell_sums.h"
#include "quant/format.h"
#include "quant/planar.h"

namespace bellhop::moe {
namespace {

constexpr int64_t kLineFloats = 16;  // floats of a cache line

// Weight rows of a unit of work. Small enough that the last units of a step end together even where one core is half as
// fast as the others: 8 gate and 8 up rows of 2,560 INT4 weights are 23 KB, 4 us of one core's bandwidth. With several
// rows of x a unit is bound by arithmetic, and its weight rows share what it costs to fetch those rows from L2 and, in
// fc2, to pack them.
struct UnitRows {
  int64_t fc1;  // of gate and as many of up
  int64_t fc2;
};
constexpr UnitRows kFewRows{8, 16}, kManyRows{16, 64};
// Of fc1 where workers would get few units: the last of those is what they wait for each other's. 4 rows are what
// kernels compute at once.
constexpr int64_t kShortRows = 4, kShortUnits = 16;
// Of codes that lie column by column: a unit reads whole cache lines, 128 rows of a column.
constexpr UnitRows kKMajorRows{128, 128}, kKMajorInterleaved{64, 128};
constexpr int64_t kMostInterleaved = kKMajorInterleaved.fc1;
constexpr int32_t kFewXRows = 2;
// Rows of a prompt for each worker from which on they are combined row by row.
constexpr int64_t kCombineRows = 16;
// Units of its own share that a worker takes at once: what each call of a kernel begins with is paid less often.
constexpr int64_t kUnitsAtOnce = 4;
// Rows of fc2 that an idle worker prefetches: tens of KiB, far below L2. And of fc1 before a worker looks at anything
// else: what a kernel begins with.
constexpr int64_t kIdlePrefetchRows = 64, kFirstPrefetchRows = 4;

int64_t WholeLines(int64_t floats) { return CeilDiv(floats, kLineFloats) * kLineFloats; }

RowsAhead FirstOf(RowsAhead ahead, int64_t rows) {
  ahead.rows.end = std::min(ahead.rows.end, ahead.rows.begin + rows);
  return ahead;
}

bool IsKMajor(const Linear& linear) {
  const quant::WeightFormat format = linear.weights.format;
  return quant::Traits(format).planar && quant::Planar(format).k_major;
}

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
    : cpu_(cpu), options_(options), work_(cpu.pool->size()), barrier_(cpu.pool->size()) {}

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
  fc2_done_ = std::make_unique<TileCount[]>(static_cast<size_t>(CeilDiv(options_.hidden, kFewRows.fc2)));
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
            .loading = request.ready != nullptr &&
                       request.ready[group.expert].load(std::memory_order_acquire) == ExpertReady::kLoading,
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

CpuColdPath::Step CpuColdPath::MakeStep(RowRange jobs, int64_t width, int64_t rows, int set) {
  const int64_t tiles = CeilDiv(width, rows);
  work_.Reset(tiles * jobs.size(), jobs.size(), set);
  return {jobs, width, rows, tiles, set};
}

// The part of a run that is in its first job.
CpuColdPath::Stretch CpuColdPath::FirstStretch(const Step& step, const sys::WorkRanges::Run& run) const {
  const RowRange share = sys::WorkerPool::Split(step.tiles, 1, run.share, cpu_.pool->size());
  const int64_t at = run.begin - share.begin * step.jobs.size();
  const int64_t job = at / share.size(), first = share.begin + at % share.size();
  return {step.jobs.begin + job, {first, std::min(first + run.end - run.begin, share.end)}};
}

// What the worker's own share of a step goes on with: no tiles when nothing is left of it.
CpuColdPath::Stretch CpuColdPath::OwnNext(const Step& step, int worker) const {
  const int64_t first = work_.First(worker, step.set);
  if (first < 0) return {};
  const RowRange share = sys::WorkerPool::Split(step.tiles, 1, worker, cpu_.pool->size());
  return FirstStretch(step, {worker, first, first + share.size()});
}

RowsAhead CpuColdPath::Fc1Ahead(const Step& fc1, const Stretch& stretch) const {
  if (stretch.tiles.size() == 0) return {};
  const Expert& expert = jobs_[static_cast<size_t>(stretch.job)].expert;
  if (IsKMajor(expert.gate)) return {};  // rows are not contiguous
  const int64_t per_inner = expert.layout == store::Fc1Layout::kInterleaved ? 2 : 1;
  const int64_t begin = stretch.tiles.begin * fc1.rows, end = std::min(stretch.tiles.end * fc1.rows, expert.inner());
  if (begin >= end) return {};  // a smaller expert than others
  return {&expert.gate, {per_inner * begin, per_inner * end}};
}

RowsAhead CpuColdPath::Fc2Ahead(const Step& fc2, const Stretch& stretch) const {
  if (stretch.tiles.size() == 0) return {};
  const Linear& down = jobs_[static_cast<size_t>(stretch.job)].expert.down;
  if (IsKMajor(down)) return {};
  return {&down, {stretch.tiles.begin * fc2.rows, std::min(stretch.tiles.end * fc2.rows, down.rows())}};
}

void CpuColdPath::Fc1Stretch(const ColdRequest& request, const Step& fc1, const Stretch& stretch,
                             const RowsAhead& next) {
  const Job& job = jobs_[static_cast<size_t>(stretch.job)];
  const Expert& expert = job.expert;
  const int64_t inner = expert.inner();
  const RowRange rows{stretch.tiles.begin * fc1.rows, std::min(stretch.tiles.end * fc1.rows, inner)};
  if (rows.begin >= rows.end || !WaitUntilReady(request.ready, job.id)) return;

  const kernels::VecOps& ops = *cpu_.ops;
  const int64_t stride = 2 * inner_stride_;
  if (expert.layout == store::Fc1Layout::kInterleaved) {
    const RowRange both{2 * rows.begin, 2 * rows.end};
    LinearDecode(expert.gate, job.x, {job.fc1, job.count, 2 * inner, stride}, both, next, job.packed);
    for (int32_t m = 0; m < job.count; ++m) {
      alignas(64) float gate[kUnitsAtOnce * kMostInterleaved], up[kUnitsAtOnce * kMostInterleaved];
      ops.deinterleave(job.fc1 + m * stride + both.begin, rows.size(), gate, up);
      ApplyActivation(ops, options_.numerics.activation, gate, up, rows.size(),
                      job.hidden + m * inner_stride_ + rows.begin);
    }
  } else {
    const bool has_up = expert.layout == store::Fc1Layout::kSeparate;
    float* up = job.fc1 + inner_stride_;
    LinearDecode(expert.gate, job.x, {job.fc1, job.count, inner, stride}, rows,
                 has_up ? RowsAhead{&expert.up, rows} : next, job.packed);
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

void CpuColdPath::Fc2Stretch(const ColdRequest& request, const Step& fc2, const Stretch& stretch,
                             const RowsAhead& next) {
  const Job& job = jobs_[static_cast<size_t>(stretch.job)];
  if (!HasFailed(request, job.id)) {
    const RowRange rows{stretch.tiles.begin * fc2.rows, std::min(stretch.tiles.end * fc2.rows, fc2.width)};
    const MatView<const float> h{job.hidden, job.count, job.expert.inner(), inner_stride_};
    LinearDecode(job.expert.down, h, {job.out, job.count, options_.hidden, hidden_stride_}, rows, next);
    if (options_.numerics.output != Rounding::kNone) {
      for (int32_t m = 0; m < job.count; ++m) {
        ApplyRounding(*cpu_.ops, options_.numerics.output, rows.size(), job.out + m * hidden_stride_ + rows.begin);
      }
    }
  }
  const auto jobs = static_cast<int64_t>(jobs_.size());
  for (int64_t tile = stretch.tiles.begin; tile < stretch.tiles.end; ++tile) {
    std::atomic<int64_t>& done = fc2_done_[static_cast<size_t>(tile)].jobs;
    // Release of this job's columns, acquire of the others'. A word that is nearly always in its worker's own cache.
    if (jobs > 1 && done.fetch_add(1, std::memory_order_acq_rel) + 1 < jobs) continue;
    done.store(0, std::memory_order_relaxed);
    Combine(request, {0, request.routes.rows}, {tile * fc2.rows, std::min((tile + 1) * fc2.rows, fc2.width)});
  }
}

void CpuColdPath::RunFc1(const ColdRequest& request, const Step& fc1, const Step& fc2, int worker) {
  for (sys::WorkRanges::Run run; (run = work_.NextRun(worker, kUnitsAtOnce, fc1.set)).begin < run.end;) {
    do {
      const Stretch stretch = FirstStretch(fc1, run);
      run.begin += stretch.tiles.size();
      RowsAhead next = Fc1Ahead(fc1, run.begin < run.end ? FirstStretch(fc1, run) : OwnNext(fc1, worker));
      // Weights of fc2 do not depend on fc1: memory goes on working where the two meet.
      if (next.linear == nullptr) next = Fc2Ahead(fc2, OwnNext(fc2, worker));
      Fc1Stretch(request, fc1, stretch, next);
    } while (run.begin < run.end);
  }
}

void CpuColdPath::RunFc2(const ColdRequest& request, const Step& fc2, int worker) {
  for (sys::WorkRanges::Run run; (run = work_.NextRun(worker, kUnitsAtOnce, fc2.set)).begin < run.end;) {
    do {
      const Stretch stretch = FirstStretch(fc2, run);
      run.begin += stretch.tiles.size();
      Fc2Stretch(request, fc2, stretch,
                 Fc2Ahead(fc2, run.begin < run.end ? FirstStretch(fc2, run) : OwnNext(fc2, worker)));
    } while (run.begin < run.end);
  }
}

void CpuColdPath::AddExperts(const ColdRequest& request, int32_t row, RowRange columns, float* sums) const {
  const Routes& routes = request.routes;
  std::fill(sums, sums + columns.size(), 0.0f);
  for (int32_t r = row * routes.used; r < (row + 1) * routes.used; ++r) {
    const int32_t at = groups_->positions()[r];
    if (at < 0) continue;
    cpu_.ops->add_scaled(out_ + at * hidden_stride_ + columns.begin, routes.weights[r], columns.size(), sums);
  }
}

void CpuColdPath::Combine(const ColdRequest& request, RowRange rows, RowRange columns) const {
  if (request.sums.data != nullptr) return Publish(request, columns);
  for (auto m = static_cast<int32_t>(rows.begin); m < rows.end; ++m) {
    float* const row = request.y.Row(m) + columns.begin;
    if (RowHasFailed(request, m)) {
      std::fill(row, row + columns.size(), 0.0f);
    } else {
      AddExperts(request, m, columns, row);
    }
  }
}

// Sums are added up elsewhere: whoever reads a word takes it for the sum.
void CpuColdPath::Publish(const ColdRequest& request, RowRange columns) const {
  constexpr int64_t kAtOnce = 128;
  alignas(64) float sums[kAtOnce];
  const int32_t used = request.routes.used;
  for (int32_t m = 0; m < request.routes.rows; ++m) {
    const int32_t* const positions = groups_->positions() + m * used;
    if (std::all_of(positions, positions + used, [](int32_t at) { return at < 0; })) continue;
    const bool failed = RowHasFailed(request, m);
    for (RowRange part{columns.begin, 0}; part.begin < columns.end; part.begin = part.end) {
      part.end = std::min(part.begin + kAtOnce, columns.end);
      uint32_t* const words = request.sums.Row(m) + part.begin;
      if (failed) {
        cuda::PublishMark(cuda::kFailedMark, part.size(), words);
      } else {
        AddExperts(request, m, part, sums);
        cuda::PublishSums(sums, part.size(), words);
      }
    }
  }
}

void CpuColdPath::RunDecode(const ColdRequest& request) {
  const auto jobs = static_cast<int64_t>(jobs_.size());
  if (jobs == 0) return Combine(request, {0, request.routes.rows}, {0, options_.hidden});
  int64_t inner = 0, loading = 0;
  int32_t most = 0;  // rows of one expert
  bool arrange = false;
  for (const Job& job : jobs_) {
    inner = std::max(inner, job.expert.inner());
    most = std::max(most, job.count);
    arrange |= job.gather || job.packed != nullptr;
    loading += job.loading || loading > 0;  // and those behind it
  }
  UnitRows unit_rows = most <= kFewXRows ? kFewRows : kManyRows;
  if (IsKMajor(jobs_[0].expert.gate)) {  // like all experts of a layer
    unit_rows = jobs_[0].expert.layout == store::Fc1Layout::kInterleaved ? kKMajorInterleaved : kKMajorRows;
  }
  if (unit_rows.fc1 == kFewRows.fc1 && jobs * inner < kShortUnits * kFewRows.fc1 * cpu_.pool->size()) {
    unit_rows.fc1 = kShortRows;
  }
  // Two waves, if some experts still load: all that can be done without them, then they.
  struct Wave {
    Step fc1, fc2;
  } waves[2];
  int wave_count = 0;
  for (const RowRange& wave : {RowRange{0, jobs - loading}, RowRange{jobs - loading, jobs}}) {
    if (wave.size() == 0) continue;
    const int set = 2 * wave_count;
    waves[wave_count++] = {MakeStep(wave, inner, unit_rows.fc1, set),
                           MakeStep(wave, options_.hidden, unit_rows.fc2, set + 1)};
  }
  cpu_.pool->Run([&](int worker, int workers) {
    RowPrefetch first(FirstOf(Fc1Ahead(waves[0].fc1, OwnNext(waves[0].fc1, worker)), kFirstPrefetchRows));
    while (first()) {
    }
    if (arrange) {
      ArrangeRows(request, worker, workers);
      barrier_.Wait(worker);
    }
    for (int w = 0; w < wave_count; ++w) {
      const auto& [fc1, fc2] = waves[w];
      RunFc1(request, fc1, fc2, worker);
      barrier_.Wait(worker, RowPrefetch(FirstOf(Fc2Ahead(fc2, OwnNext(fc2, worker)), kIdlePrefetchRows)));
      RunFc2(request, fc2, worker);
    }
  });
}

void CpuColdPath::RunPrompt(const ColdRequest& request) {
  prompt_groups_.clear();
  for (const Job& job : jobs_) {
    const int64_t first = (job.out - out_) / hidden_stride_;
    prompt_groups_.push_back(
        {.expert = &job.expert, .id = job.id, .count = job.count, .rows = groups_->rows() + first, .out = job.out});
  }
  prompt_->Run({prompt_groups_.data(), prompt_groups_.size()}, request.x, hidden_stride_, request.ready,
               [&](int worker, int workers) {
                 // Many rows are spread over more pages than a TLB holds; of few, a worker's columns are what it wrote.
                 const int32_t count = request.routes.rows;
                 const bool by_rows = count >= kCombineRows * workers;
                 Combine(request, by_rows ? sys::WorkerPool::Split(count, 1, worker, workers) : RowRange{0, count},
                         by_rows ? RowRange{0, options_.hidden}
                                 : sys::WorkerPool::Split(options_.hidden, kLineFloats, worker, workers));
               });
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
