#include "model/gpu/gpu_layers.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "base/units.h"
#include "cuda/cuda_try.h"
#include "model/gpu/pcie_lane.h"
#include "model/rope.h"

namespace bellhop::model {
namespace {

int32_t Int(int64_t v) { return static_cast<int32_t>(v); }

kernels::DeviceGating ToDevice(moe::Gating gating) {
  switch (gating) {
    case moe::Gating::kSoftmax: return kernels::DeviceGating::kSoftmax;
    case moe::Gating::kSigmoid: return kernels::DeviceGating::kSigmoid;
    case moe::Gating::kSoftmaxSelected: return kernels::DeviceGating::kSoftmaxSelected;
  }
  return kernels::DeviceGating::kSoftmax;
}

// Makes the arguments of all layers.
class Builder {
 public:
  Builder(const LayerInputs& in, DenseWeights* weights) : in_(in), b_(in.buffers), weights_(*weights) {}

  Result<GpuLayers> Build() {
    BELLHOP_TRY_ASSIGN(books_, weights_.Books());
    for (const RopeSpec& rope : in_.spec.ropes) BELLHOP_TRY(AddRope(rope));
    BELLHOP_TRY(AddNorms());
    GpuLayers model;
    for (size_t l = 0; l < in_.spec.layers.size(); ++l) {
      auto layer = Layer(l);
      if (!layer.ok()) return layer.status().WithContext(fmt::format("layer {}", l));
      model.layers.push_back(std::move(layer).value());
    }
    model.begin = {.state = b_.state, .residual = ReadBy(0), .doorbell = b_.doorbell};
    BELLHOP_TRY_ASSIGN(const kernels::DeviceMatrix head, weights_.Matrix(in_.spec.head));
    model.head = MatVec(ReadBy(2 * in_.spec.layers.size()));
    model.head.matrices[0] = head;
    model.head.count = 1;
    model.head.y[0] = b_.logits;
    model.head.y_stride = in_.spec.vocab;
    model.head.divisor = in_.spec.logit_scale;
    model.slow_tensors = weights_.slow_tensors();
    return model;
  }

 private:
  Status AddRope(const RopeSpec& rope) {
    std::vector<float> table;
    if (rope.kind != RopeKind::kNone) {
      table.resize(static_cast<size_t>(in_.options.base.context_tokens) * static_cast<size_t>(rope.dims));
      if (!weights_.counting()) {
        for (int32_t p = 0; p < in_.options.base.context_tokens; ++p) {
          FillRopeRow(rope, p, table.data() + int64_t{p} * rope.dims);
        }
      }
    }
    BELLHOP_TRY_ASSIGN(const float* device, weights_.Floats(table));
    ropes_.push_back(device);
    return Status();
  }

  static const NormSpec& FeedForwardNorm(const LayerSpec& layer) {
    return std::get<ResidualPortSpec>(layer.feed_forward_port).norm;
  }

  // Norms in the order in which a step reads them: mixer and feed-forward of every layer, output.
  Status AddNorms() {
    auto add = [&](const NormSpec& norm) -> Status {
      BELLHOP_TRY_ASSIGN(const float* weights, weights_.Vector(norm.weight, in_.spec.hidden));
      norms_.push_back({weights, norm.epsilon});
      return Status();
    };
    for (const LayerSpec& layer : in_.spec.layers) {
      BELLHOP_TRY(add(std::get<ResidualPortSpec>(layer.mixer_port).norm));
      BELLHOP_TRY(add(FeedForwardNorm(layer)));
    }
    return add(in_.spec.output_norm);
  }

  // The residual rows as the norm `index` reads them.
  kernels::ResidualRows ReadBy(size_t index) const {
    kernels::ResidualRows rows = b_.residual;
    rows.norm = norms_[index].weights;
    rows.epsilon = norms_[index].epsilon;
    return rows;
  }

  kernels::MatVecArgs MatVec(const kernels::ResidualRows& x) const {
    kernels::MatVecArgs args;
    args.x = x.terms;
    args.norm = kernels::NormOf(x);
    args.rows = b_.state.rows;
    args.books = books_;
    return args;
  }

  kernels::StepTables Tables() const {
    return {.rows = kMaxDecodeStepRows,
            .active_rows = b_.state.rows,
            .positions = b_.state.positions,
            .block_tables = b_.state.pages,
            .max_pages = MaxPages(in_.options.base)};
  }

  Result<GpuLayer> Layer(size_t l) {
    GpuLayer layer;
    BELLHOP_TRY(Attention(l, &layer));
    const LayerSpec& spec = in_.spec.layers[l];
    const float port = std::get<ResidualPortSpec>(spec.feed_forward_port).scale;
    if (const auto* dense = std::get_if<DenseFfnSpec>(&spec.feed_forward)) {
      BELLHOP_TRY_ASSIGN(layer.feed_forward, Dense(*dense, l, port));
    } else {
      BELLHOP_TRY(Moe(std::get<MoeSpec>(spec.feed_forward), l, port, &layer));
    }
    return layer;
  }

  Status Attention(size_t l, GpuLayer* layer) {
    const LayerSpec& spec = in_.spec.layers[l];
    const auto& a = std::get<AttentionSpec>(spec.mixer);
    const kernels::ResidualRows x = ReadBy(2 * l);
    layer->qkv = MatVec(x);
    layer->qkv.count = 3;
    layer->qkv.y_stride = b_.qkv_stride;
    const int64_t offsets[3] = {0, a.q.rows, a.q.rows + a.k.rows};
    const LinearSpec* const parts[3] = {&a.q, &a.k, &a.v};
    for (int i = 0; i < 3; ++i) {
      BELLHOP_TRY_ASSIGN(layer->qkv.matrices[i], weights_.Matrix(*parts[i]));
      layer->qkv.y[i] = b_.qkv + offsets[i];
    }
    const kernels::KvLayer kv = {.keys = in_.kv_base + in_.kv.key_offset(Int(static_cast<int64_t>(l))),
                                 .values = in_.kv_base + in_.kv.value_offset(Int(static_cast<int64_t>(l))),
                                 .page_bytes = static_cast<int64_t>(in_.kv.page_bytes()),
                                 .type = in_.kv.type(),
                                 .kv_heads = a.kv_heads,
                                 .key_dim = a.key_dim,
                                 .value_dim = a.value_dim};
    kernels::FinishQkvArgs& finish = layer->finish;
    finish.step = Tables();
    finish.kv = kv;
    finish.heads = a.heads;
    finish.qkv = b_.qkv;
    finish.stride = b_.qkv_stride;
    finish.k_offset = Int(offsets[1]);
    finish.v_offset = Int(offsets[2]);
    const bool full = a.qk_norm == QkNorm::kFullWidth;
    if (a.qk_norm != QkNorm::kNone) {
      finish.norm = full ? kernels::HeadNorm::kFullWidth : kernels::HeadNorm::kPerHead;
      BELLHOP_TRY_ASSIGN(finish.q_norm, weights_.Vector(a.q_norm.weight, full ? a.q.rows : a.key_dim));
      BELLHOP_TRY_ASSIGN(finish.k_norm, weights_.Vector(a.k_norm.weight, full ? a.k.rows : a.key_dim));
      finish.q_epsilon = a.q_norm.epsilon;
      finish.k_epsilon = a.k_norm.epsilon;
    }
    if (a.rope >= 0) {
      const RopeSpec& rope = in_.spec.ropes[static_cast<size_t>(a.rope)];
      if (rope.dims > a.key_dim) return Corrupt("rotary width {} exceeds the head size {}", rope.dims, a.key_dim);
      finish.rope = rope.kind == RopeKind::kNone   ? kernels::RopeOrder::kNone
                    : rope.kind == RopeKind::kNorm ? kernels::RopeOrder::kNorm
                                                   : kernels::RopeOrder::kNeox;
      finish.rope_table = ropes_[static_cast<size_t>(a.rope)];
      finish.rope_dims = rope.dims;
    }
    finish.reads_ahead = true;  // behind the matrices of q, k and v
    kernels::AttendArgs& attend = layer->attend;
    attend.step = Tables();
    attend.kv = kv;
    attend.heads = a.heads;
    attend.q = b_.qkv;
    attend.q_stride = b_.qkv_stride;
    attend.scale = a.scale;
    BELLHOP_TRY_ASSIGN(attend.sinks, weights_.Vector(a.sinks, a.heads));
    attend.window = a.window;
    attend.out = b_.heads;
    attend.partials = b_.attention_partials;
    attend.words = b_.attention_words;
    attend.counters = b_.attention_counters;

    layer->output = MatVec(x);
    layer->output.x = b_.heads;
    layer->output.norm = {};
    layer->output.count = 1;
    BELLHOP_TRY_ASSIGN(layer->output.matrices[0], weights_.Matrix(a.output));
    layer->output.to_residual = true;
    layer->output.residual = ReadBy(2 * l + 1);
    layer->output.port_scale = std::get<ResidualPortSpec>(spec.mixer_port).scale;
    return Status();
  }

  kernels::ExpertArgs FeedForward(size_t l, float port_scale) const {
    const moe::ActivationParams& activation = in_.spec.activation;
    kernels::ExpertArgs args;
    args.layer = Int(static_cast<int64_t>(l));
    args.routes = b_.routes;
    args.rows = b_.state.rows;
    args.books = books_;
    args.x = ReadBy(2 * l + 1);
    args.activation = activation.kind == moe::ExpertActivation::kGeGlu ? kernels::DeviceActivation::kGeGlu
                                                                       : kernels::DeviceActivation::kSwiGlu;
    args.alpha = activation.alpha;
    args.beta = activation.beta;
    args.limit = activation.limit < std::numeric_limits<float>::infinity() ? activation.limit : 0;
    args.partial = b_.partial;
    args.tile_arrivals = b_.tile_arrivals;
    args.port_scale = port_scale;
    args.next = ReadBy(2 * l + 2);
    args.channel = in_.channel;
    args.doorbell = b_.doorbell;
    return args;
  }

  Result<kernels::ExpertArgs> Dense(const DenseFfnSpec& spec, size_t l, float port_scale) {
    kernels::ExpertArgs args = FeedForward(l, port_scale);
    args.all_rows = true;
    args.used = 1;
    args.hidden = b_.dense;
    BELLHOP_TRY_ASSIGN(args.bank.gate, weights_.Matrix(spec.gate));
    BELLHOP_TRY_ASSIGN(args.bank.up, weights_.Matrix(spec.up));
    BELLHOP_TRY_ASSIGN(args.bank.down, weights_.Matrix(spec.down));
    // One group: its biases are those of expert 0.
    args.bank.gate_bias = std::exchange(args.bank.gate.bias, nullptr);
    args.bank.up_bias = std::exchange(args.bank.up.bias, nullptr);
    args.bank.down_bias = std::exchange(args.bank.down.bias, nullptr);
    return args;
  }

  Status Moe(const MoeSpec& spec, size_t l, float port_scale, GpuLayer* layer) {
    kernels::RouterArgs router;
    router.layer = Int(static_cast<int64_t>(l));
    router.experts = spec.experts;
    router.used = spec.used;
    std::vector<LinearSpec> scores = {spec.router};
    if (spec.shared_gate) {
      scores.push_back(*spec.shared_gate);
      router.shared_gate = true;
    }
    BELLHOP_TRY_ASSIGN(router.weights, weights_.Decoded(scores, FeedForwardNorm(in_.spec.layers[l]).weight));
    BELLHOP_TRY_ASSIGN(router.bias, weights_.Vector(spec.router.bias, spec.experts));
    BELLHOP_TRY_ASSIGN(router.selection_bias, weights_.Vector(spec.selection_bias, spec.experts));
    router.gating = ToDevice(spec.gating);
    router.normalise = spec.normalise;
    router.weights_scale = spec.weights_scale;
    router.groups = spec.groups;
    router.groups_used = spec.groups_used;
    router.x = ReadBy(2 * l + 1);
    router.rows = b_.state.rows;
    router.logits = b_.router_logits;
    router.words = b_.router_words;
    router.routes = b_.routes;
    router.expert_to_slot = b_.expert_to_slot;
    router.placement = b_.placement;
    router.route_counts = b_.route_counts + static_cast<int64_t>(l) * b_.experts;
    router.distinct = b_.totals + kLayerTotals * static_cast<int64_t>(l) + kDecodeDistinct;
    router.channel = in_.channel;
    router.doorbell = b_.doorbell;
    layer->router = router;

    if (spec.shared) {
      BELLHOP_TRY_ASSIGN(layer->shared, Dense(*spec.shared, l, port_scale));
      layer->shared->use_shared_weights = spec.shared_gate.has_value();
      layer->shared->completes = false;
    }
    kernels::ExpertArgs args = FeedForward(l, port_scale);
    args.used = spec.used;
    args.hidden = b_.inner;
    args.waits = true;
    BELLHOP_TRY(Bank(l, spec, &args.bank));
    if (const kernels::PcieLane* lane = in_.pcie == nullptr ? nullptr : in_.pcie->layer(l)) {
      kernels::AddPcieLane(*lane, &*layer->router);
      kernels::AddPcieLane(*lane, &args);
      layer->fetch = kernels::FetchOf(*lane, args.bank, spec.used, spec.experts);
    }
    layer->feed_forward = args;
    return Status();
  }

  Status Bank(size_t l, const MoeSpec& spec, kernels::ExpertBank* bank) {
    const LayerId layer(Int(static_cast<int64_t>(l)));
    const store::ExpertView& first = in_.store.Host(layer, ExpertId(0));
    const SlotShape shape = ShapeOfSlots(in_.store, layer);
    bank->slot_bytes = static_cast<int64_t>(shape.bytes);
    bank->gate = DescribeMatrix(first.gate);
    bank->up = DescribeMatrix(first.up);
    bank->down = DescribeMatrix(first.down);
    uint8_t* const base = in_.banks.empty() ? nullptr : in_.banks[l];
    if (base != nullptr) {
      bank->gate.data = base + shape.gate;
      bank->up.data = base + shape.up;
      bank->down.data = base + shape.down;
    }
    // Small parts of every expert are always there.
    std::vector<float> gate_bias, up_bias, down_bias, gate_scale, up_scale, down_scale;
    bool scaled = false;
    for (int32_t e = 0; e < spec.experts; ++e) {
      const store::ExpertView& view = in_.store.Host(layer, ExpertId(e));
      auto append = [](const float* from, int64_t n, std::vector<float>* to) {
        if (from != nullptr) to->insert(to->end(), from, from + n);
      };
      append(view.gate_bias, view.gate.rows, &gate_bias);
      append(view.up_bias, view.up.rows, &up_bias);
      append(view.down_bias, view.down.rows, &down_bias);
      gate_scale.push_back(view.gate_scale);
      up_scale.push_back(view.up_scale);
      down_scale.push_back(view.down_scale);
      scaled = scaled || view.gate_scale != 1 || view.up_scale != 1 || view.down_scale != 1;
    }
    auto bring = [&](const std::vector<float>& values, const float** to) -> Status {
      if (values.empty()) return Status();
      BELLHOP_TRY_ASSIGN(*to, weights_.Floats(values));
      return Status();
    };
    BELLHOP_TRY(bring(gate_bias, &bank->gate_bias));
    BELLHOP_TRY(bring(up_bias, &bank->up_bias));
    BELLHOP_TRY(bring(down_bias, &bank->down_bias));
    if (!scaled) return Status();
    BELLHOP_TRY(bring(gate_scale, &bank->gate_scale));
    BELLHOP_TRY(bring(up_scale, &bank->up_scale));
    return bring(down_scale, &bank->down_scale);
  }

  struct Norm {
    const float* weights;
    float epsilon;
  };
  const LayerInputs& in_;
  const StepBuffers& b_;
  DenseWeights& weights_;
  kernels::Codebooks books_{};
  std::vector<const float*> ropes_;
  std::vector<Norm> norms_;
};

}  // namespace

Result<GpuLayers> BuildGpuLayers(const LayerInputs& in, DenseWeights* weights) { return Builder(in, weights).Build(); }

namespace {

Status SubmitAttention(const GpuLayer& layer, int32_t bucket, StepPart only, cuda::Device* device,
                       const cuda::LaunchQueue& queue) {
  const auto has = [only](StepPart part) { return only == StepPart::kAll || only == part; };
  kernels::FinishQkvArgs finish = layer.finish;
  kernels::AttendArgs attend = layer.attend;
  finish.step.rows = attend.step.rows = bucket;
  if (kernels::CanFinishInAttention(finish)) {
    if (has(StepPart::kAttention)) {
      BELLHOP_CUDA_CHECK(device, kernels::LaunchFinishAndAttend(finish, attend, queue));
    }
    return Status();
  }
  if (has(StepPart::kFinishQkv)) BELLHOP_CUDA_CHECK(device, kernels::LaunchFinishQkv(finish, queue));
  if (has(StepPart::kAttention)) BELLHOP_CUDA_CHECK(device, kernels::LaunchAttention(attend, queue));
  return Status();
}

Status SubmitMixer(const GpuLayer& layer, int32_t bucket, StepPart only, cuda::Device* device,
                   const cuda::LaunchQueue& queue) {
  const auto has = [only](StepPart part) { return only == StepPart::kAll || only == part; };
  if (has(StepPart::kQkv)) BELLHOP_CUDA_CHECK(device, kernels::LaunchMatVec(layer.qkv, bucket, queue));
  BELLHOP_TRY(SubmitAttention(layer, bucket, only, device, queue));
  if (has(StepPart::kOutput)) BELLHOP_CUDA_CHECK(device, kernels::LaunchMatVec(layer.output, bucket, queue));
  return Status();
}

}  // namespace

Status SubmitFeedForward(const GpuLayer& layer, int32_t bucket, StepPart only, cuda::Device* device,
                         const cuda::LaunchQueue& queue) {
  const auto has = [only](StepPart part) { return only == StepPart::kAll || only == part; };
  if (layer.router && has(StepPart::kRouter)) {
    BELLHOP_CUDA_CHECK(device, kernels::LaunchRouter(*layer.router, bucket, queue));
  }
  if (layer.fetch && has(StepPart::kFetch)) {
    BELLHOP_CUDA_CHECK(device, kernels::LaunchExpertFetch(*layer.fetch, bucket, queue));
  }
  if (layer.shared && has(StepPart::kFc1)) {
    BELLHOP_CUDA_CHECK(device, kernels::LaunchExpertFc1(*layer.shared, bucket, queue));
  }
  if (layer.shared && has(StepPart::kFc2)) {
    BELLHOP_CUDA_CHECK(device, kernels::LaunchExpertFc2(*layer.shared, bucket, queue));
  }
  kernels::ExpertArgs experts = layer.feed_forward;
  if (layer.router) experts.max_groups = std::min(bucket * experts.used, layer.router->experts);
  if (has(StepPart::kFc1)) BELLHOP_CUDA_CHECK(device, kernels::LaunchExpertFc1(experts, bucket, queue));
  if (has(StepPart::kFc2)) BELLHOP_CUDA_CHECK(device, kernels::LaunchExpertFc2(experts, bucket, queue));
  return Status();
}

Status SubmitStep(const GpuLayers& model, int32_t bucket, bool with_head, StepPart only, cuda::Device* device,
                  const cuda::LaunchQueue& queue) {
  const auto has = [only](StepPart part) { return only == StepPart::kAll || only == part; };
  if (has(StepPart::kBegin)) BELLHOP_CUDA_CHECK(device, kernels::LaunchBeginDecode(model.begin, bucket, queue));
  for (const GpuLayer& layer : model.layers) {
    BELLHOP_TRY(SubmitMixer(layer, bucket, only, device, queue));
    BELLHOP_TRY(SubmitFeedForward(layer, bucket, only, device, queue));
  }
  if (with_head && has(StepPart::kHead)) {
    BELLHOP_CUDA_CHECK(device, kernels::LaunchMatVec(model.head, bucket, queue));
  }
  return Status();
}

}  // namespace bellhop::model
