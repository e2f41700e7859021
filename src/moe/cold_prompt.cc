#include "moe/cold_prompt.h"

#include <algorithm>

#include "base/units.h"

namespace bellhop::moe {
namespace {

using kernels::GemmPackedBytes;
using kernels::GemmPaddedRows;
using kernels::kGemmPanelRows;

// Rows of all groups, each padded to whole panels.
int64_t PaddedRoutes(const ColdPrompt::Limits& limits) {
  return limits.routes + (kGemmPanelRows - 1) * std::min(limits.groups, limits.routes);
}

float Factor(const Linear& linear) { return linear.scale * linear.weights.global_scale; }

}  // namespace

ColdPrompt::ColdPrompt(const CpuContext& cpu, const Limits& limits, const ExpertNumerics& numerics)
    : cpu_(cpu),
      limits_(limits),
      numerics_(numerics),
      ones_(static_cast<size_t>(CpuContext::kMaxChunkRows), 1.0f),
      fc1_work_(cpu.pool->size()),
      fc2_work_(cpu.pool->size()),
      barrier_(cpu.pool->size()) {
  jobs_.reserve(static_cast<size_t>(limits.groups));
}

uint64_t ColdPrompt::WorkspaceBytes(const Limits& limits) {
  const int64_t rows = PaddedRoutes(limits);
  return static_cast<uint64_t>(GemmPackedBytes(rows, limits.hidden) + GemmPackedBytes(rows, limits.inner));
}

Result<std::unique_ptr<ColdPrompt>> ColdPrompt::Create(const CpuContext& cpu, const Limits& limits,
                                                       const ExpertNumerics& numerics) {
  auto prompt = std::unique_ptr<ColdPrompt>(new ColdPrompt(cpu, limits, numerics));
  BELLHOP_TRY_ASSIGN(prompt->workspace_, sys::AlignedBuffer::Create(WorkspaceBytes(limits), MemoryTag::kWorkspace));
  return prompt;
}

// Inner rows of a fc1 unit: a tile holds them twice when there is an up half.
int64_t ColdPrompt::Fc1Rows(const Expert& expert) const {
  const int64_t tile = small_tiles_fc1_ ? CpuContext::kTileRows / 2 : CpuContext::kTileRows;
  return expert.layout == store::Fc1Layout::kSingle ? tile : tile / 2;
}

// Full tiles decode and multiply best; halves balance better when a worker gets few of them.
void ColdPrompt::ChooseUnitSizes(HostSpan<const PromptGroup> groups) {
  constexpr int64_t kManyUnits = 4;
  const int64_t many = kManyUnits * cpu_.pool->size();
  int64_t fc1 = 0, fc2 = 0;
  small_tiles_fc1_ = small_tiles_fc2_ = false;
  for (const PromptGroup& group : groups) {
    fc1 += CeilDiv(group.expert->inner(), Fc1Rows(*group.expert));
    fc2 += CeilDiv(group.expert->hidden(), CpuContext::kTileRows);
  }
  small_tiles_fc1_ = fc1 < many;
  small_tiles_fc2_ = fc2 < many;
}

void ColdPrompt::PrepareJobs(HostSpan<const PromptGroup> groups, const std::atomic<ExpertReady>* ready) {
  ChooseUnitSizes(groups);
  jobs_.clear();
  for (const PromptGroup& group : groups) {
    if (group.count == 0) continue;
    const bool loading = ready != nullptr && ready[group.id].load(std::memory_order_relaxed) == ExpertReady::kLoading;
    jobs_.push_back({.group = &group, .loading = loading});
  }
  // Large groups first, so that the last units are short ones; equal ones in the order given.
  std::sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) {
    if (a.loading != b.loading) return b.loading;
    if (a.group->count != b.group->count) return a.group->count > b.group->count;
    return a.group < b.group;
  });
  std::byte* at = workspace_.bytes().data();
  pack_groups_ = fc1_units_ = fc2_units_ = 0;
  const int64_t fc2_rows = small_tiles_fc2_ ? CpuContext::kTileRows / 2 : CpuContext::kTileRows;
  for (Job& job : jobs_) {
    const Expert& expert = *job.group->expert;
    const int64_t count = job.group->count, hidden = expert.hidden(), inner = expert.inner();
    job.packed_x = at;
    job.packed_h = at + GemmPackedBytes(count, hidden);
    at = job.packed_h + GemmPackedBytes(count, inner);
    job.first_pack = pack_groups_;
    job.first_fc1 = fc1_units_;
    job.first_fc2 = fc2_units_;
    pack_groups_ += PackedGroups(count, hidden);
    fc1_units_ += CeilDiv(count, CpuContext::ChunkRows(hidden)) * CeilDiv(inner, Fc1Rows(expert));
    fc2_units_ += CeilDiv(count, CpuContext::ChunkRows(inner)) * CeilDiv(hidden, fc2_rows);
  }
  fc1_work_.Reset(fc1_units_);
  fc2_work_.Reset(fc2_units_);
}

void ColdPrompt::Pack(MatView<const float> x, RowRange groups) const {
  for (const Job& job : jobs_) {
    const int64_t count = job.group->count;
    const int64_t begin = std::max<int64_t>(groups.begin - job.first_pack, 0);
    const int64_t end = std::min(groups.end - job.first_pack, PackedGroups(count, x.cols));
    if (begin < end) PackGroups(*cpu_.gemm, x, job.group->rows, count, {begin, end}, job.packed_x);
  }
}

namespace {

// Unit `index` of a job: chunk by chunk, so that a worker keeps the rows of a chunk in its L2.
template <typename Unit, typename Job>
Unit PlaceUnit(const Job& job, int64_t index, int64_t chunk_rows, int64_t width, int64_t unit_outputs) {
  const int64_t per_chunk = CeilDiv(width, unit_outputs);
  const int64_t first = index / per_chunk * chunk_rows, begin = index % per_chunk * unit_outputs;
  return {&job,
          first,
          std::min<int64_t>(chunk_rows, job.group->count - first),
          {begin, std::min(begin + unit_outputs, width)}};
}

}  // namespace

ColdPrompt::Unit ColdPrompt::Fc1UnitAt(int64_t index) const {
  const Job& job = *std::prev(
      std::upper_bound(jobs_.begin(), jobs_.end(), index, [](int64_t i, const Job& j) { return i < j.first_fc1; }));
  const Expert& expert = *job.group->expert;
  return PlaceUnit<Unit>(job, index - job.first_fc1, CpuContext::ChunkRows(expert.hidden()), expert.inner(),
                         Fc1Rows(expert));
}

ColdPrompt::Unit ColdPrompt::Fc2UnitAt(int64_t index) const {
  const Job& job = *std::prev(
      std::upper_bound(jobs_.begin(), jobs_.end(), index, [](int64_t i, const Job& j) { return i < j.first_fc2; }));
  const Expert& expert = *job.group->expert;
  const int64_t unit_rows = small_tiles_fc2_ ? CpuContext::kTileRows / 2 : CpuContext::kTileRows;
  return PlaceUnit<Unit>(job, index - job.first_fc2, CpuContext::ChunkRows(expert.inner()), expert.hidden(), unit_rows);
}

auto ColdPrompt::FirstFc1Prefetch(int worker) const {
  RowPrefetch gate, up;
  if (const int64_t first = fc1_work_.First(worker); first >= 0) {
    const Unit unit = Fc1UnitAt(first);
    const Expert& expert = *unit.job->group->expert;
    const bool interleaved = expert.layout == store::Fc1Layout::kInterleaved;
    gate = RowPrefetch(
        {&expert.gate, interleaved ? RowRange{2 * unit.outputs.begin, 2 * unit.outputs.end} : unit.outputs});
    if (expert.layout == store::Fc1Layout::kSeparate) up = RowPrefetch({&expert.up, unit.outputs});
  }
  return [gate, up]() mutable { return gate() || up(); };
}

RowPrefetch ColdPrompt::FirstFc2Prefetch(int worker) const {
  const int64_t first = fc2_work_.First(worker);
  if (first < 0) return {};
  const Unit unit = Fc2UnitAt(first);
  return RowPrefetch({&unit.job->group->expert->down, unit.outputs});
}

void ColdPrompt::RunFc1(const Unit& unit, int worker) const {
  const Expert& expert = *unit.job->group->expert;
  const kernels::GemmKernel& gemm = *cpu_.gemm;
  const int64_t n = unit.outputs.size(), begin = unit.outputs.begin;
  const bool interleaved = expert.layout == store::Fc1Layout::kInterleaved;
  const bool separate = expert.layout == store::Fc1Layout::kSeparate;
  std::byte* tile = cpu_.Tile(worker);
  const RowRange first = interleaved ? RowRange{2 * begin, 2 * unit.outputs.end} : unit.outputs;
  const kernels::FillArgs parts[2] = {
      {.decode = expert.gate.decode, .weights = &expert.gate.weights, .rows = first, .tile = tile},
      {.decode = expert.up.decode, .weights = &expert.up.weights, .rows = unit.outputs, .first_row = n, .tile = tile}};
  const int64_t hidden = expert.hidden(), inner = expert.inner(), stride = GemmPaddedRows(unit.rows);
  const int64_t tile_rows = first.size() + (separate ? n : 0);
  float* yt = cpu_.Products(worker);
  gemm.fill_multiply(parts, separate ? 2 : 1,
                     {.tile = tile,
                      .n = tile_rows,
                      .packed = unit.job->packed_x + GemmPackedBytes(unit.first_row, hidden),
                      .rows = unit.rows,
                      .k = hidden,
                      .yt = yt,
                      .yt_stride = stride});

  // Row j of yt is a gate or up row over all activation rows: bias and scale are constants of a row.
  const kernels::VecOps& ops = *cpu_.ops;
  for (int64_t j = 0; j < tile_rows; ++j) {
    const bool is_up = separate && j >= n;
    const Linear& linear = is_up ? expert.up : expert.gate;
    if (Factor(linear) != 1) ops.scale(Factor(linear), stride, yt + j * stride);
    if (linear.bias == nullptr) continue;
    ops.add_scaled(ones_.data(), linear.bias[first.begin + (is_up ? j - n : j)], stride, yt + j * stride);
  }
  const int64_t step = interleaved ? 2 : 1;  // rows of yt from one inner row to the next
  if (interleaved) {
    for (int64_t j = 0; j < n; ++j) {
      float* gate = yt + 2 * j * stride;
      ApplyActivation(ops, numerics_.activation, gate, gate + stride, stride, gate);
      ApplyRounding(ops, numerics_.hidden, stride, gate);
    }
  } else {  // the rows are one piece
    ApplyActivation(ops, numerics_.activation, yt, yt + n * stride, n * stride, yt);
    ApplyRounding(ops, numerics_.hidden, n * stride, yt);
  }
  gemm.pack_transposed({yt, n, unit.rows, step * stride}, begin, inner,
                       unit.job->packed_h + GemmPackedBytes(unit.first_row, inner));
}

void ColdPrompt::RunFc2(const Unit& unit, int64_t out_stride, int worker) const {
  const PromptGroup& group = *unit.job->group;
  const Linear& down = group.expert->down;
  const PackedRows h{unit.job->packed_h + GemmPackedBytes(unit.first_row, down.cols()), unit.rows, down.cols()};
  const MatView<float> out{group.out + unit.first_row * out_stride, unit.rows, down.rows(), out_stride};
  LinearPrompt(cpu_, down, h, out, unit.outputs, worker);
  if (numerics_.output == Rounding::kNone) return;
  for (int64_t m = 0; m < unit.rows; ++m) {
    ApplyRounding(*cpu_.ops, numerics_.output, unit.outputs.size(), out.Row(m) + unit.outputs.begin);
  }
}

void ColdPrompt::RunJobs(MatView<const float> x, int64_t out_stride, const std::atomic<ExpertReady>* ready, int worker,
                         int workers) {
  Pack(x, sys::WorkerPool::Split(pack_groups_, 1, worker, workers));
  barrier_.Wait(worker, FirstFc1Prefetch(worker));
  for (int64_t index; (index = fc1_work_.Next(worker)) >= 0;) {
    const Unit unit = Fc1UnitAt(index);
    if (WaitUntilReady(ready, unit.job->group->id)) RunFc1(unit, worker);
  }
  barrier_.Wait(worker, FirstFc2Prefetch(worker));
  for (int64_t index; (index = fc2_work_.Next(worker)) >= 0;) {
    const Unit unit = Fc2UnitAt(index);
    if (WaitUntilReady(ready, unit.job->group->id)) RunFc2(unit, out_stride, worker);
  }
  barrier_.Wait(worker);
}

}  // namespace bellhop::moe
