#include "model/transformer.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <variant>

#include "base/units.h"
#include "model/attention.h"
#include "model/feed_forward.h"
#include "model/residual_port.h"
#include "model/rope.h"

namespace bellhop::model {
namespace {

// Widths that the buffers must hold, over all layers.
struct Widths {
  int64_t q = 0, k = 0, v = 0, heads_out = 0, inner = 0, input = 0;
  int64_t expert_inner = 0;
  int32_t experts = 0, used = 0;
};

Widths MeasureWidths(const ModelSpec& spec) {
  Widths w;
  w.input = spec.hidden;
  auto dense = [&](const DenseFfnSpec& ffn) { w.inner = std::max(w.inner, ffn.inner); };
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) {
      w.q = std::max(w.q, a->q.rows);
      w.k = std::max(w.k, a->k.rows);
      w.v = std::max(w.v, a->v.rows);
      w.heads_out = std::max(w.heads_out, a->output.cols);
    }
    if (const auto* ffn = std::get_if<DenseFfnSpec>(&layer.feed_forward)) dense(*ffn);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
      w.experts = std::max(w.experts, moe->experts);
      w.used = std::max(w.used, moe->used);
      w.expert_inner = std::max(w.expert_inner, moe->inner);
      if (moe->shared) dense(*moe->shared);
      w.inner = std::max<int64_t>(w.inner, 1);  // the shared expert's gate value
    }
  }
  w.input = std::max({w.input, w.heads_out, w.inner, w.expert_inner});
  return w;
}

// Floats of one step's buffers: residual, x, y, extra, q, k, v, heads_out, gate, up and the rope tables.
uint64_t BufferFloats(const ModelSpec& spec, const TransformerOptions& options, const Widths& w) {
  uint64_t per_row = 0;
  for (const int64_t width : {spec.streams * spec.hidden, spec.hidden, spec.hidden, spec.hidden, w.q, w.k, w.v,
                              w.heads_out, w.inner, w.inner}) {
    per_row += static_cast<uint64_t>(width);
  }
  for (const RopeSpec& rope : spec.ropes) per_row += static_cast<uint64_t>(rope.dims);
  return per_row * static_cast<uint64_t>(options.max_rows);
}

constexpr int64_t kLogitGrain = 16;  // a cache line of logits belongs to one worker

Result<std::unique_ptr<ResidualPort>> MakePort(const PortSpec& spec, int64_t hidden, WeightBinder* binder) {
  const auto& plain = std::get<ResidualPortSpec>(spec);
  BELLHOP_TRY_ASSIGN(const float* norm, binder->BindVector(plain.norm.weight, hidden));
  return std::unique_ptr<ResidualPort>(std::make_unique<PlainResidualPort>(norm, plain.norm.epsilon, plain.scale));
}

}  // namespace

uint64_t Transformer::KvBytes(const ModelSpec& spec, const TransformerOptions& options) {
  return KvPool::BytesFor(KvShapes(spec), options.kv_type, KvPageCount(options));
}

uint64_t Transformer::WorkspaceBytes(const ModelSpec& spec, const TransformerOptions& options, int threads) {
  const Widths w = MeasureWidths(spec);
  const auto rows = static_cast<uint64_t>(options.max_rows);
  uint64_t floats = BufferFloats(spec, options, w);
  // The cold path's gathered inputs, products, activations and outputs, and the router's scores.
  floats += rows * (static_cast<uint64_t>(w.used) * static_cast<uint64_t>(2 * spec.hidden + 3 * w.expert_inner) +
                    3 * static_cast<uint64_t>(w.experts));
  const uint64_t packed = moe::ColdPrompt::WorkspaceBytes({.hidden = spec.hidden,
                                                           .inner = w.expert_inner,
                                                           .routes = int64_t{options.max_rows} * w.used,
                                                           .groups = w.experts});
  return floats * sizeof(float) + packed + moe::CpuContext::WorkspaceBytes(threads, w.input, options.max_rows) +
         AttentionWorkspace::BytesFor(spec, options.max_rows, options.context_tokens, threads);
}

Status Transformer::BindLayers() {
  for (size_t l = 0; l < spec_.layers.size(); ++l) {
    const LayerSpec& spec = spec_.layers[l];
    Layer layer;
    BELLHOP_TRY_ASSIGN(layer.mixer_port, MakePort(spec.mixer_port, spec_.hidden, &binder_));
    BELLHOP_TRY_ASSIGN(layer.feed_forward_port, MakePort(spec.feed_forward_port, spec_.hidden, &binder_));
    const auto& attention = std::get<AttentionSpec>(spec.mixer);
    const RopeSpec* rope = attention.rope >= 0 ? &spec_.ropes[static_cast<size_t>(attention.rope)] : nullptr;
    BELLHOP_TRY_ASSIGN(layer.mixer, AttentionMixer::Create(attention, rope, static_cast<int32_t>(l), caps_, &binder_));
    if (const auto* dense = std::get_if<DenseFfnSpec>(&spec.feed_forward)) {
      BELLHOP_TRY_ASSIGN(layer.feed_forward, DenseFeedForward::Create(*dense, spec_.activation, &binder_));
    } else {
      BELLHOP_TRY_ASSIGN(layer.feed_forward,
                         MoeFeedForward::Create(std::get<MoeSpec>(spec.feed_forward), LayerId(static_cast<int32_t>(l)),
                                                spec_.activation, &binder_));
    }
    layers_.push_back(std::move(layer));
  }
  return Status();
}

Status Transformer::AllocateBuffers(sys::WorkerPool* pool) {
  const Widths w = MeasureWidths(spec_);
  const auto rows = static_cast<uint64_t>(options_.max_rows);
  // Every buffer starts on its own cache line.
  constexpr uint64_t kLine = 16;
  const uint64_t floats = BufferFloats(spec_, options_, w) + kLine * (16 + spec_.ropes.size());
  BELLHOP_TRY_ASSIGN(workspace_, sys::AlignedBuffer::Create(floats * sizeof(float), MemoryTag::kWorkspace));
  float* at = workspace_.as<float>().data();
  auto take = [&](uint64_t count) {
    float* taken = at;
    at += RoundUp(count, kLine);
    return taken;
  };
  auto take_rows = [&](int64_t width) { return take(rows * static_cast<uint64_t>(width)); };
  residual_ = take_rows(spec_.streams * spec_.hidden);
  x_ = take_rows(spec_.hidden);
  y_ = take_rows(spec_.hidden);
  step_.extra = take_rows(spec_.hidden);
  step_.q = take_rows(w.q);
  step_.k = take_rows(w.k);
  step_.v = take_rows(w.v);
  step_.heads_out = take_rows(w.heads_out);
  step_.gate = take_rows(w.inner);
  step_.up = take_rows(w.inner);
  for (const RopeSpec& rope : spec_.ropes) rope_tables_.push_back(take_rows(rope.dims));
  BELLHOP_TRY_ASSIGN(attention_,
                     AttentionWorkspace::Create(spec_, options_.max_rows, options_.context_tokens, pool->size()));
  bad_rows_.resize(rows);
  logits_rows_.resize(rows);
  step_.cpu = cpu_.get();
  step_.kv = kv_.get();
  step_.moe = moe_.get();
  step_.rope_tables = rope_tables_.data();
  step_.attention = attention_.get();
  step_.bad_rows = bad_rows_.data();
  return Status();
}

Result<std::unique_ptr<Transformer>> Transformer::Create(const manifest::Manifest& manifest, ModelSpec spec,
                                                         const store::ExpertStore& store,
                                                         const plan::Placement& placement, sys::WorkerPool* pool,
                                                         const sys::CpuCaps& caps, const TransformerOptions& options,
                                                         std::vector<std::string>* notes) {
  BELLHOP_TRY(CheckOptions(options));
  auto model = std::unique_ptr<Transformer>(new Transformer(manifest, std::move(spec), options, caps, notes));
  const ModelSpec& s = model->spec_;
  BELLHOP_TRY_ASSIGN(
      model->embedding_,
      model->binder_.Bind(
          {.weight = s.embedding, .rows = s.vocab, .cols = s.hidden, .scale = s.embedding_weight_scale}));
  BELLHOP_TRY_ASSIGN(model->head_, model->binder_.Bind(s.head));
  BELLHOP_TRY_ASSIGN(model->output_norm_, model->binder_.BindVector(s.output_norm.weight, s.hidden));
  BELLHOP_TRY(model->BindLayers());

  const Widths w = MeasureWidths(s);
  const int64_t max_cols = std::max({model->binder_.max_cols(), w.input, store.inner()});
  BELLHOP_TRY_ASSIGN(model->cpu_, moe::CpuContext::Create(pool, caps, max_cols, options.max_rows));
  if (w.experts > 0) {
    BELLHOP_TRY_ASSIGN(model->moe_, moe::MoeExecutor::Create(store, placement, *model->cpu_,
                                                             {.hidden = s.hidden,
                                                              .max_rows = options.max_rows,
                                                              .max_used = w.used,
                                                              .max_experts = w.experts,
                                                              .activation = s.activation},
                                                             notes));
  }
  BELLHOP_TRY_ASSIGN(model->kv_, KvPool::Create(KvShapes(s), options.kv_type, KvPageCount(options)));
  BELLHOP_TRY(model->AllocateBuffers(pool));
  return model;
}

std::unique_ptr<SequenceState> Transformer::NewSequence() {
  return std::make_unique<SequenceState>(kv_.get(), options_.context_tokens, 0);
}

void Transformer::ResetCounts() {
  if (moe_ != nullptr) moe_->counts().Reset();
}

Status Transformer::SetObserver(moe::RouteObserver* observer) {
  if (moe_ != nullptr) moe_->set_observer(observer);
  return Status();
}

void Transformer::FillRopeTables(HostSpan<const StepRow> rows) {
  for (size_t r = 0; r < spec_.ropes.size(); ++r) {
    const RopeSpec& rope = spec_.ropes[r];
    if (rope.kind == RopeKind::kNone) continue;
    cpu_->pool->ParallelFor(static_cast<int64_t>(rows.size()), 16, [&](RowRange range) {
      for (int64_t m = range.begin; m < range.end; ++m) {
        FillRopeRow(rope, rows[static_cast<size_t>(m)].position, rope_tables_[r] + m * rope.dims);
      }
    });
  }
}

void Transformer::Embed(HostSpan<const StepRow> rows) {
  const int64_t width = spec_.streams * spec_.hidden;
  cpu_->pool->ParallelFor(static_cast<int64_t>(rows.size()), 16, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) {
      float* row = residual_ + m * width;
      embedding_.decode->fn(embedding_.weights.Row(rows[static_cast<size_t>(m)].token), spec_.hidden, row);
      if (embedding_.scale != 1) cpu_->ops->scale(embedding_.scale, spec_.hidden, row);
      if (spec_.embedding_scale != 1) cpu_->ops->scale(spec_.embedding_scale, spec_.hidden, row);
      for (int32_t s = 1; s < spec_.streams; ++s) std::copy(row, row + spec_.hidden, row + s * spec_.hidden);
    }
  });
}

void Transformer::Head(const StepContext& step, MatView<float> logits) {
  // x_ is free here: it takes the normed rows that want logits, compacted.
  int64_t wanted = 0;
  for (size_t m = 0; m < step.rows.size(); ++m) {
    if (!step.rows[m].want_logits) continue;
    cpu_->ops->rms_norm(residual_ + static_cast<int64_t>(m) * spec_.hidden, output_norm_, spec_.output_norm.epsilon,
                        spec_.hidden, x_ + wanted * spec_.hidden);
    logits_rows_[static_cast<size_t>(wanted)] = static_cast<int32_t>(m);
    ++wanted;
  }
  if (wanted == 0) return;
  const MatView<const float> x{x_, wanted, spec_.hidden, spec_.hidden};
  const MatView<float> out{logits.data, wanted, spec_.vocab, logits.stride};
  const moe::LinearJob job{&head_, out};
  moe::RunLinears(*cpu_, step.numeric_class, {&job, 1}, x);
  cpu_->pool->ParallelFor(spec_.vocab, kLogitGrain, [&](RowRange range) { FinishLogits(out, range); });
}

// Applies the logit scale to some columns and marks rows with a logit that is not finite.
void Transformer::FinishLogits(MatView<float> logits, RowRange range) {
  for (int64_t m = 0; m < logits.rows; ++m) {
    float* const part = logits.Row(m) + range.begin;
    if (spec_.logit_scale != 1) {
      for (int64_t v = 0; v < range.size(); ++v) part[v] /= spec_.logit_scale;
    }
    if (AllFinite(part, range.size())) continue;
    const auto row = static_cast<size_t>(logits_rows_[static_cast<size_t>(m)]);
    std::atomic_ref<uint8_t>(bad_rows_[row]).fetch_or(kBadLogits, std::memory_order_relaxed);
  }
}

Status Transformer::Forward(moe::NumericClass numeric_class, HostSpan<const StepRow> rows, MatView<float> logits) {
  if (rows.empty()) return Status();
  BELLHOP_TRY(CheckStep(spec_, options_, rows));
  Embed(rows);
  FillRopeTables(rows);
  step_.numeric_class = numeric_class;
  step_.rows = rows;
  std::fill(bad_rows_.begin(), bad_rows_.begin() + static_cast<int64_t>(rows.size()), uint8_t{0});

  const auto count = static_cast<int64_t>(rows.size());
  const MatView<float> residual{residual_, count, spec_.streams * spec_.hidden, spec_.streams * spec_.hidden};
  const MatView<float> x{x_, count, spec_.hidden, spec_.hidden}, y{y_, count, spec_.hidden, spec_.hidden};
  const MatView<const float> residual_in{residual.data, count, residual.cols, residual.stride};
  const MatView<const float> x_in{x.data, count, x.cols, x.stride}, y_in{y.data, count, y.cols, y.stride};
  for (Layer& layer : layers_) {
    layer.mixer_port->Read(step_, residual_in, x);
    layer.mixer->Forward(step_, x_in, y);
    layer.mixer_port->Write(step_, y_in, residual);
    layer.feed_forward_port->Read(step_, residual_in, x);
    layer.feed_forward->Forward(step_, x_in, y);
    layer.feed_forward_port->Write(step_, y_in, residual);
  }
  Head(step_, logits);
  return CheckFaults(rows, {bad_rows_.data(), rows.size()});
}

}  // namespace bellhop::model
