#include "model/attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace bellhop::model {
namespace {

void StoreKv(const kernels::VecOps& ops, kernels::KvType type, const float* x, int64_t n, std::byte* dst) {
  switch (type) {
    case kernels::KvType::kF32: std::memcpy(dst, x, static_cast<size_t>(n) * sizeof(float)); break;
    case kernels::KvType::kF16: ops.f32_to_f16(x, n, reinterpret_cast<uint16_t*>(dst)); break;
    case kernels::KvType::kBF16: ops.f32_to_bf16(x, n, reinterpret_cast<uint16_t*>(dst)); break;
  }
}

}  // namespace

Result<std::unique_ptr<AttentionMixer>> AttentionMixer::Create(const AttentionSpec& spec, const RopeSpec* rope,
                                                               int32_t layer, const sys::CpuCaps& caps,
                                                               WeightBinder* binder) {
  auto mixer = std::unique_ptr<AttentionMixer>(new AttentionMixer(spec, layer));
  BELLHOP_TRY_ASSIGN(mixer->q_, binder->Bind(spec.q));
  BELLHOP_TRY_ASSIGN(mixer->k_, binder->Bind(spec.k));
  BELLHOP_TRY_ASSIGN(mixer->v_, binder->Bind(spec.v));
  BELLHOP_TRY_ASSIGN(mixer->output_, binder->Bind(spec.output));
  const bool full = spec.qk_norm == QkNorm::kFullWidth;
  if (spec.qk_norm != QkNorm::kNone) {
    BELLHOP_TRY_ASSIGN(mixer->q_norm_, binder->BindVector(spec.q_norm.weight, full ? spec.q.rows : spec.key_dim));
    BELLHOP_TRY_ASSIGN(mixer->k_norm_, binder->BindVector(spec.k_norm.weight, full ? spec.k.rows : spec.key_dim));
  }
  BELLHOP_TRY_ASSIGN(mixer->sinks_, binder->BindVector(spec.sinks, spec.heads));
  if (rope != nullptr) {
    mixer->rope_kind_ = rope->kind;
    mixer->rope_dims_ = rope->dims;
    if (rope->dims > spec.key_dim) {
      return Corrupt("layer {}: rotary width {} exceeds the head size {}", layer, rope->dims, spec.key_dim);
    }
  }
  mixer->kernel_ = kernels::SelectAttention(caps);
  return mixer;
}

void AttentionMixer::FinishHeads(const StepContext& step, int64_t m, const HeadRange& heads, const NormSpec& norm,
                                 const float* weights) const {
  const kernels::VecOps& ops = *step.cpu->ops;
  const int64_t dim = spec_.key_dim;
  if (spec_.qk_norm == QkNorm::kFullWidth) {
    ops.rms_norm(heads.data, weights, norm.epsilon, heads.count * dim, heads.data);
  }
  for (int32_t h = 0; h < heads.count; ++h) {
    float* const head = heads.data + h * dim;
    if (spec_.qk_norm == QkNorm::kPerHead) ops.rms_norm(head, weights, norm.epsilon, dim, head);
    if (spec_.rope < 0) continue;
    const float* table = step.rope_tables[spec_.rope] + m * rope_dims_;
    if (rope_kind_ == RopeKind::kNorm) ops.rope_norm(head, table, rope_dims_);
    if (rope_kind_ == RopeKind::kNeox) ops.rope_neox(head, table, rope_dims_);
  }
}

void AttentionMixer::Append(const StepContext& step, int64_t m, int32_t first_head, int32_t count) const {
  const AttentionSpec& a = spec_;
  const StepRow& row = step.rows[static_cast<size_t>(m)];
  const int32_t page = row.sequence->pages()[static_cast<size_t>(row.position / kernels::kKvPageTokens)];
  const int64_t in_page = row.position % kernels::kKvPageTokens;
  KvPool& kv = *step.kv;
  for (int32_t h = first_head; h < first_head + count; ++h) {
    StoreKv(*step.cpu->ops, kv.type(), step.k + m * k_.rows() + int64_t{h} * a.key_dim, a.key_dim,
            kv.KeyRow(layer_, h, page, in_page));
    StoreKv(*step.cpu->ops, kv.type(), step.v + m * v_.rows() + int64_t{h} * a.value_dim, a.value_dim,
            kv.ValueRow(layer_, h, page, in_page));
  }
}

int32_t AttentionMixer::FinishTasks() const {
  return spec_.qk_norm == QkNorm::kFullWidth ? 2 : spec_.heads + spec_.kv_heads;
}

void AttentionMixer::Finish(const StepContext& step, int64_t m, int32_t task) const {
  const AttentionSpec& a = spec_;
  // A norm over the full width needs all heads in one task.
  const bool full = a.qk_norm == QkNorm::kFullWidth;
  const int32_t query_tasks = full ? 1 : a.heads;
  float* const q = step.q + m * q_.rows();
  float* const k = step.k + m * k_.rows();
  if (task < query_tasks) {
    const int32_t count = full ? a.heads : 1;
    return FinishHeads(step, m, {q + int64_t{task} * a.key_dim, count}, a.q_norm, q_norm_);
  }
  const int32_t first = task - query_tasks, count = full ? a.kv_heads : 1;
  FinishHeads(step, m, {k + int64_t{first} * a.key_dim, count}, a.k_norm, k_norm_);
  Append(step, m, first, count);
}

void AttentionMixer::RunUnit(const StepContext& step, const AttentionCut& cut, int64_t unit, int worker) const {
  const AttentionSpec& a = spec_;
  AttentionWorkspace& workspace = *step.attention;
  const std::vector<AttentionBlock>& blocks = workspace.blocks();
  // Blocks are few, or their units are long.
  auto at = blocks.end() - 1;
  while (at->first_unit > unit) --at;
  const AttentionBlock& block = *at;
  const int64_t in_block = unit - block.first_unit;
  const int64_t pieces_of_span = cut.by_span ? block.spans : 1;
  const int64_t piece = in_block / pieces_of_span;
  const auto kv_head = static_cast<int32_t>(piece / cut.parts);
  const int32_t group = a.heads / a.kv_heads;
  const auto part_first = static_cast<int32_t>(piece % cut.parts) * cut.heads_per_part;
  const int32_t heads = std::min(cut.heads_per_part, group - part_first);
  const int64_t first_head = int64_t{kv_head} * group + part_first;

  std::array<kernels::AttentionRow, kernels::kAttentionBlock> rows;
  for (int32_t r = 0; r < block.row_count; ++r) {
    const int64_t m = block.first_row + r, position = step.rows[static_cast<size_t>(m)].position;
    rows[static_cast<size_t>(r)] = {.q = step.q + m * q_.rows() + first_head * a.key_dim,
                                    .out = step.heads_out + m * output_.cols() + first_head * a.value_dim,
                                    .begin = VisibleBegin(a, position),
                                    .end = position + 1};
  }
  const kernels::AttentionArgs args = {
      .rows = rows.data(),
      .row_count = block.row_count,
      .group = heads,
      .key_dim = a.key_dim,
      .value_dim = a.value_dim,
      .type = step.kv->type(),
      .q_stride = a.key_dim,
      .out_stride = a.value_dim,
      .keys = step.kv->KeyHead(layer_, kv_head),
      .values = step.kv->ValueHead(layer_, kv_head),
      .pages = step.rows[static_cast<size_t>(block.first_row)].sequence->pages().data(),
      .scale = a.scale,
      .sinks = sinks_ == nullptr ? nullptr : sinks_ + first_head,
      .scratch = workspace.Scratch(worker),
  };
  if (!cut.by_span) return kernel_->attend(args);
  const int64_t state_floats = kernels::AttentionStateFloats(a.value_dim);
  const int64_t span = in_block % pieces_of_span;
  float* const states =
      workspace.states() + block.first_state + first_head * block.row_count * block.spans * state_floats;
  kernel_->span(args, block.first_span + span, states + span * block.row_count * heads * state_floats);
  // The last of a piece's spans to finish finds all of them written.
  if (workspace.Counter(block.first_counter + piece).fetch_sub(1, std::memory_order_acq_rel) == 1) {
    kernel_->merge(args, block.first_span, states);
  }
}

void AttentionMixer::Attend(const StepContext& step) const {
  AttentionWorkspace& workspace = *step.attention;
  const AttentionCut cut = workspace.Cut(spec_, step.rows);
  const int32_t tasks = FinishTasks();
  std::atomic<int64_t> next{0};
  step.cpu->pool->Run([&](int worker, int workers) {
    const RowRange own = sys::WorkerPool::Split(step.row_count() * tasks, 1, worker, workers);
    for (int64_t t = own.begin; t < own.end; ++t) Finish(step, t / tasks, static_cast<int32_t>(t % tasks));
    workspace.barrier().Wait(worker);
    // From the last unit: later rows of a prompt see more, so the longest units start first.
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < cut.units;) {
      RunUnit(step, cut, cut.units - 1 - i, worker);
    }
  });
}

void AttentionMixer::Forward(const StepContext& step, MatView<const float> x, MatView<float> y) {
  const int64_t rows = step.row_count();
  const moe::CpuContext& cpu = *step.cpu;
  const std::array<moe::LinearJob, 3> qkv = {
      moe::LinearJob{&q_, {step.q, rows, q_.rows(), q_.rows()}},
      moe::LinearJob{&k_, {step.k, rows, k_.rows(), k_.rows()}},
      moe::LinearJob{&v_, {step.v, rows, v_.rows(), v_.rows()}},
  };
  moe::RunLinears(cpu, step.numeric_class, {qkv.data(), qkv.size()}, x);

  Attend(step);
  const moe::LinearJob out{&output_, y};
  const int64_t width = output_.cols();
  moe::RunLinears(cpu, step.numeric_class, {&out, 1}, {step.heads_out, rows, width, width});
}

}  // namespace bellhop::model
