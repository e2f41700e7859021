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

void AttentionMixer::FinishRow(const StepContext& step, int64_t m) const {
  const kernels::VecOps& ops = *step.cpu->ops;
  const AttentionSpec& a = spec_;
  struct Part {
    float* data;
    int64_t width;
    int32_t heads;
    const float* norm;
    float epsilon;
  };
  const std::array<Part, 2> parts = {
      Part{step.q + m * q_.rows(), q_.rows(), a.heads, q_norm_, a.q_norm.epsilon},
      Part{step.k + m * k_.rows(), k_.rows(), a.kv_heads, k_norm_, a.k_norm.epsilon},
  };
  for (const Part& part : parts) {
    if (a.qk_norm == QkNorm::kFullWidth) ops.rms_norm(part.data, part.norm, part.epsilon, part.width, part.data);
    for (int32_t h = 0; h < part.heads; ++h) {
      float* head = part.data + int64_t{h} * a.key_dim;
      if (a.qk_norm == QkNorm::kPerHead) ops.rms_norm(head, part.norm, part.epsilon, a.key_dim, head);
      if (a.rope < 0) continue;
      const float* table = step.rope_tables[a.rope] + m * rope_dims_;
      if (rope_kind_ == RopeKind::kNorm) ops.rope_norm(head, table, rope_dims_);
      if (rope_kind_ == RopeKind::kNeox) ops.rope_neox(head, table, rope_dims_);
    }
  }
  const StepRow& row = step.rows[static_cast<size_t>(m)];
  const int32_t page = row.sequence->pages()[static_cast<size_t>(row.position / kernels::kKvPageTokens)];
  const int64_t in_page = row.position % kernels::kKvPageTokens;
  KvPool& kv = *step.kv;
  StoreKv(ops, kv.type(), parts[1].data, k_.rows(), kv.Keys(layer_, page) + in_page * kv.KeyRowBytes(layer_));
  StoreKv(ops, kv.type(), step.v + m * v_.rows(), v_.rows(),
          kv.Values(layer_, page) + in_page * kv.ValueRowBytes(layer_));
}

void AttentionMixer::AttendRow(const StepContext& step, int64_t m, int32_t kv_head, int32_t first, int32_t count,
                               int worker) const {
  const StepRow& row = step.rows[static_cast<size_t>(m)];
  KvPool& kv = *step.kv;
  const int64_t element = kernels::KvTypeBytes(kv.type());
  const std::byte** keys = step.page_pointers + int64_t{worker} * 2 * step.max_pages;
  const std::byte** values = keys + step.max_pages;
  const int64_t end = row.position + 1;
  const int64_t begin = spec_.window > 0 ? std::max<int64_t>(0, end - spec_.window) : 0;
  for (int64_t p = begin / kernels::kKvPageTokens; p * kernels::kKvPageTokens < end; ++p) {
    const int32_t page = row.sequence->pages()[static_cast<size_t>(p)];
    keys[p] = kv.Keys(layer_, page) + int64_t{kv_head} * spec_.key_dim * element;
    values[p] = kv.Values(layer_, page) + int64_t{kv_head} * spec_.value_dim * element;
  }
  kernel_->fn({
      .q = step.q + m * q_.rows() + int64_t{first} * spec_.key_dim,
      .q_stride = spec_.key_dim,
      .group = count,
      .key_dim = spec_.key_dim,
      .value_dim = spec_.value_dim,
      .type = kv.type(),
      .k_pages = keys,
      .v_pages = values,
      .k_row_bytes = kv.KeyRowBytes(layer_),
      .v_row_bytes = kv.ValueRowBytes(layer_),
      .begin = begin,
      .end = end,
      .scale = spec_.scale,
      .sinks = sinks_ == nullptr ? nullptr : sinks_ + first,
      .scratch = step.attention_scratch[worker],
      .out = step.heads_out + m * output_.cols() + int64_t{first} * spec_.value_dim,
      .out_stride = spec_.value_dim,
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
  moe::RunLinears(cpu, step.numeric_class, {qkv.data(), qkv.size()}, step.MatrixInput(x));
  cpu.pool->ParallelFor(rows, 1, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) FinishRow(step, m);
  });

  // A unit of work is one row and one KV head with its query heads, or single query heads when units are few; the
  // result is the same bits either way.
  const int32_t group = spec_.heads / spec_.kv_heads;
  const bool split = rows * spec_.kv_heads < 2 * cpu.pool->size();
  const int32_t heads_per_unit = split ? 1 : group;
  const int64_t units_per_row = spec_.heads / heads_per_unit;
  std::atomic<int64_t> next{0};
  cpu.pool->Run([&](int worker, int) {
    for (int64_t unit; (unit = next.fetch_add(1, std::memory_order_relaxed)) < rows * units_per_row;) {
      const auto first = static_cast<int32_t>(unit % units_per_row) * heads_per_unit;
      AttendRow(step, unit / units_per_row, first / group, first, heads_per_unit, worker);
    }
  });
  const moe::LinearJob out{&output_, y};
  const int64_t width = output_.cols();
  moe::RunLinears(cpu, step.numeric_class, {&out, 1}, step.MatrixInput({step.heads_out, rows, width, width}));
}

}  // namespace bellhop::model
