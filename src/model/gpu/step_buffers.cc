#include "model/gpu/step_buffers.h"

#include <algorithm>
#include <array>
#include <variant>

#include "base/units.h"
#include "kernels/cuda/attention.h"
#include "model/gpu/device_weights.h"
#include "plan/gpu_placement.h"

namespace bellhop::model {
namespace {

constexpr int32_t kMaxExperts = 1024;
constexpr int32_t kMaxUsed = 32;

int32_t Int(int64_t v) { return static_cast<int32_t>(v); }
int32_t Padded(int64_t cols) { return Int(RoundUp(cols, int64_t{kernels::kTermPadding})); }

}  // namespace

int32_t MaxPages(const TransformerOptions& options) {
  return Int(CeilDiv(options.context_tokens, kernels::kKvPageTokens));
}

StepSizes MeasureStep(const ModelSpec& spec, const TransformerOptions& options) {
  StepSizes s;
  for (const LayerSpec& layer : spec.layers) {
    const auto& a = std::get<AttentionSpec>(layer.mixer);
    s.qkv = std::max(s.qkv, a.q.rows + a.k.rows + a.v.rows);
    s.heads = std::max(s.heads, a.output.cols);
    s.kv_heads = std::max(s.kv_heads, a.kv_heads);
    const int32_t splits = kernels::AttentionSplits(a.kv_heads, MaxPages(options), a.window);
    s.attention_partials = std::max(s.attention_partials,
                                    kernels::AttentionPartialBytes(kMaxDecodeStepRows, a.heads, a.value_dim, splits));
    s.attention_words = std::max(s.attention_words, kernels::AttentionPartialBytes(1, a.heads, a.value_dim, splits));
    if (const auto* dense = std::get_if<DenseFfnSpec>(&layer.feed_forward)) s.dense = std::max(s.dense, dense->inner);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
      s.experts = std::max(s.experts, moe->experts);
      s.used = std::max(s.used, moe->used);
      s.inner = std::max(s.inner, moe->inner);
      if (moe->shared) s.dense = std::max(s.dense, moe->shared->inner);
    }
  }
  return s;
}

kernels::TermRows TakeTerms(DeviceArena* arena, int64_t rows, int64_t cols, int32_t terms) {
  kernels::TermRows t;
  t.stride = Padded(cols);
  t.terms = terms;
  t.data = arena->Take<uint16_t>(static_cast<uint64_t>(rows * terms * t.stride));
  const auto sums = static_cast<uint64_t>(rows * (t.stride / 16));
  t.sums = arena->Take<float>(sums);
  if (terms == 1) t.group_sums = arena->Take<uint16_t>(sums);
  return t;
}

Status CheckGpuModel(const ModelSpec& spec, const store::ExpertStore& store) {
  if (spec.streams != 1) return Unsupported("the GPU backend has no models with {} residual streams", spec.streams);
  if (spec.hidden % 16 != 0) return Unsupported("the GPU backend needs a hidden size in sixteens, not {}", spec.hidden);
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const auto& a = std::get<AttentionSpec>(spec.layers[l].mixer);
    const int32_t group = a.heads / a.kv_heads;
    if (group > kernels::kAttentionMaxGroup || a.key_dim % 8 != 0 || a.value_dim % 8 != 0 ||
        a.key_dim > kernels::kAttentionMaxDim || a.value_dim > kernels::kAttentionMaxDim ||
        group * a.value_dim % 16 != 0) {
      return Unsupported("layer {}: {} query heads of {} and {} values for {} KV heads do not fit the GPU's attention",
                         l, a.heads, a.key_dim, a.value_dim, a.kv_heads);
    }
    const auto* moe = std::get_if<MoeSpec>(&spec.layers[l].feed_forward);
    if (moe == nullptr) continue;
    if (moe->experts > kMaxExperts || moe->used > kMaxUsed || moe->groups > 32) {
      return Unsupported("layer {}: {} experts with {} used in {} groups; the GPU's router has {}, {} and 32", l,
                         moe->experts, moe->used, moe->groups, kMaxExperts, kMaxUsed);
    }
    const LayerId layer(Int(static_cast<int64_t>(l)));
    const store::ExpertView& first = store.Host(layer, ExpertId(0));
    if (first.fc1 != store::Fc1Layout::kSeparate) {
      return Unsupported("layer {}: experts with one fused fc1 matrix run on the CPU alone", l);
    }
    for (const quant::QuantView* matrix : {&first.gate, &first.up, &first.down}) {
      const Status readable = CheckDeviceMatrix(*matrix);
      if (!readable.ok()) return readable.WithContext(fmt::format("layer {}: experts", l));
    }
    const auto planes = [](const store::ExpertView& view) {
      return std::array{view.gate.group, view.up.group, view.down.group};
    };
    for (int32_t e = 0; e < store.experts(layer); ++e) {
      const store::ExpertView& view = store.Host(layer, ExpertId(e));
      if (view.gate.format != first.gate.format || view.up.format != first.up.format ||
          view.down.format != first.down.format || planes(view) != planes(first)) {
        return Unsupported("layer {}: experts of different formats run on the CPU alone", l);
      }
    }
  }
  if (spec.activation.kind != moe::ExpertActivation::kSwiGlu && spec.activation.kind != moe::ExpertActivation::kGeGlu) {
    return Unsupported("the GPU backend has gated activations alone");
  }
  return Status();
}

StepBuffers TakeStepBuffers(const ModelSpec& spec, const GpuModelOptions& options, DeviceArena* arena) {
  const StepSizes s = MeasureStep(spec, options.base);
  const int64_t rows = kMaxDecodeStepRows, routes = rows * std::max(s.used, 1);
  const int32_t terms = options.exact_terms ? 3 : 2;
  const auto count = [](int64_t n) { return static_cast<uint64_t>(n); };
  StepBuffers b;
  b.state.rows = arena->Take<int32_t>(1);
  b.state.positions = arena->Take<int32_t>(kMaxDecodeStepRows);
  b.state.pages = arena->Take<int32_t>(count(rows * MaxPages(options.base)));
  b.residual.hidden = Int(spec.hidden);
  b.residual.values = arena->Take<float>(count(rows * spec.hidden));
  b.residual.squares = arena->Take<float>(count(rows * b.residual.square_count()));
  b.residual.terms = TakeTerms(arena, rows, spec.hidden, terms);
  b.qkv_stride = Int(RoundUp(s.qkv, int64_t{4}));
  b.qkv = arena->Take<float>(count(rows * b.qkv_stride));
  b.heads = TakeTerms(arena, rows, s.heads, terms);
  if (s.dense > 0) b.dense = TakeTerms(arena, rows, s.dense, terms);
  if (s.inner > 0) b.inner = TakeTerms(arena, routes, s.inner, terms);
  b.partial = arena->Take<float>(count(routes * spec.hidden));
  b.tile_arrivals = arena->Take<uint32_t>(count(b.residual.square_count()));
  b.attention_partials = reinterpret_cast<float*>(arena->Take<uint8_t>(s.attention_partials));
  b.attention_words = reinterpret_cast<float*>(arena->Take<uint8_t>(s.attention_words));
  b.attention_counters = arena->Take<uint32_t>(count(rows * s.kv_heads));
  b.logits = arena->Take<float>(count(rows * spec.vocab));
  if (s.experts == 0) return b;
  const auto layers = static_cast<int64_t>(spec.layers.size());
  b.experts = s.experts;
  b.router_logits = arena->Take<float>(count(rows * (s.experts + 1)));
  b.router_words = arena->Take<uint64_t>(count(kernels::RouterWords(s.experts, s.used)));
  b.routes.ids = arena->Take<int32_t>(count(routes));
  b.routes.weights = arena->Take<float>(count(routes));
  b.routes.slots = arena->Take<int32_t>(count(routes));
  b.routes.order = arena->Take<int32_t>(count(routes));
  b.routes.groups = arena->Take<kernels::ExpertGroup>(count(routes));
  b.routes.group_count = arena->Take<int32_t>(1);
  b.routes.shared_weights = arena->Take<float>(kMaxDecodeStepRows);
  b.doorbell = arena->Take<cuda::DoorbellState>(1);
  b.expert_to_slot = arena->Take<int32_t*>(count(layers));
  b.slot_tables = arena->Take<int32_t>(count(layers * s.experts));
  b.placement = arena->Take<uint64_t>(1);
  b.route_counts = arena->Take<uint32_t>(count(layers * s.experts));
  b.totals = arena->Take<uint64_t>(count(kLayerTotals * layers));
  b.fetch_sources = arena->Take<kernels::FetchSource>(count(layers * s.experts));
  b.staged_misses.experts = arena->Take<int32_t>(count(std::min<int64_t>(routes, s.experts)));
  b.staged_misses.count = arena->Take<int32_t>(1);
  return b;
}

SlotShape ShapeOfSlot(const store::ExpertView& view) {
  constexpr uint64_t kAlign = plan::kSlotAlignment;
  SlotShape shape;
  shape.up = RoundUp(DeviceBytes(view.gate), kAlign);
  shape.down = shape.up + RoundUp(DeviceBytes(view.up), kAlign);
  shape.bytes = shape.down + RoundUp(DeviceBytes(view.down), kAlign);
  return shape;
}

SlotShape ShapeOfSlots(const store::ExpertStore& store, LayerId layer) {
  return ShapeOfSlot(store.Host(layer, ExpertId(0)));
}

}  // namespace bellhop::model
