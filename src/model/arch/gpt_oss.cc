// gpt-oss: attention sinks, alternating sliding window, biases everywhere, YaRN without truncated correction bounds (as
// the training code has it), top-k before softmax, clamped SwiGLU.
#include "model/arch/builder.h"
#include "model/rope.h"

namespace bellhop::model {
namespace {

// Which layers see a window only. The key holds a period (its last layer is full) or one bool per layer; period 2
// without it.
Result<std::vector<bool>> SlidingLayers(const SpecBuilder& b) {
  const manifest::Manifest& m = b.manifest();
  const std::string key = m.Key("attention.sliding_window_pattern");
  const size_t layers = m.hparams.layers;
  std::vector<bool> sliding(layers);
  if (const manifest::MetaValue* value = m.metadata.Find(key); value != nullptr && value->is_array()) {
    BELLHOP_TRY_ASSIGN(sliding, m.metadata.GetBoolArray(key));
    if (sliding.size() < layers) return Corrupt("{}: {} entries for {} layers", key, sliding.size(), layers);
    return sliding;
  }
  BELLHOP_TRY_ASSIGN(const uint64_t period, m.metadata.GetUintOr(key, 2));
  for (size_t l = 0; l < layers; ++l) sliding[l] = period > 0 && l % period + 1 < period;
  return sliding;
}

// Every linear part has a bias; a file without one of them is incomplete, not another variant.
Status RequireBiases(const SpecBuilder& b, int32_t layer) {
  const bool fused = b.Has(SpecBuilder::Blk(layer, "attn_qkv.weight"));
  const bool merged = b.Has(SpecBuilder::Blk(layer, "ffn_gate_up_exps.weight"));
  std::vector<std::string_view> names = {"attn_output.bias", "ffn_gate_inp.bias", "ffn_down_exps.bias"};
  for (const std::string_view name : {"attn_q.bias", "attn_k.bias", "attn_v.bias"}) {
    names.push_back(fused ? "attn_qkv.bias" : name);
  }
  for (const std::string_view name : {"ffn_gate_exps.bias", "ffn_up_exps.bias"}) {
    names.push_back(merged ? "ffn_gate_up_exps.bias" : name);
  }
  for (const std::string_view name : names) BELLHOP_TRY(b.Require(SpecBuilder::Blk(layer, name)));
  return Status();
}

}  // namespace

Result<ModelSpec> BuildGptOss(const manifest::Manifest& manifest) {
  const SpecBuilder b(manifest);
  const manifest::Hparams& h = b.hparams();
  ModelSpec spec;
  BELLHOP_TRY(b.Globals(&spec));
  spec.activation = {.alpha = 1.702f, .beta = 1, .limit = 7};
  manifest::RopeHparams scaling = h.rope;
  scaling.yarn_truncate = false;
  for (const double base : {h.rope.base, h.rope.base_swa}) {
    BELLHOP_TRY_ASSIGN(RopeSpec rope, MakeRope(RopeKind::kNeox, scaling, base, {}));
    spec.ropes.push_back(std::move(rope));
  }
  BELLHOP_TRY_ASSIGN(const std::vector<bool> sliding, SlidingLayers(b));
  if (h.sliding_window == 0) {
    return Corrupt("{} is missing or 0; architecture 'gpt-oss' needs it", manifest.Key("attention.sliding_window"));
  }
  for (int32_t l = 0; l < static_cast<int32_t>(h.layers); ++l) {
    LayerSpec layer;
    BELLHOP_TRY_ASSIGN(const NormSpec attn_norm, b.Norm(SpecBuilder::Blk(l, "attn_norm.weight"), h.hidden));
    layer.mixer_port = ResidualPortSpec{attn_norm, 1};
    BELLHOP_TRY_ASSIGN(AttentionSpec attention, b.Attention(l));
    const bool is_sliding = sliding[static_cast<size_t>(l)];
    attention.rope = is_sliding ? 1 : 0;
    attention.window = is_sliding ? static_cast<int32_t>(h.sliding_window) : 0;
    BELLHOP_TRY_ASSIGN(attention.sinks, b.Vector(SpecBuilder::Blk(l, "attn_sinks.weight"), attention.heads));
    layer.mixer = attention;
    // The pre-FFN norm has the name of a post-attention norm in these files.
    BELLHOP_TRY_ASSIGN(const NormSpec ffn_norm, b.Norm(SpecBuilder::Blk(l, "post_attention_norm.weight"), h.hidden));
    layer.feed_forward_port = ResidualPortSpec{ffn_norm, 1};
    BELLHOP_TRY_ASSIGN(MoeSpec moe, b.Moe(l));
    moe.gating = moe::Gating::kSoftmaxSelected;
    moe.normalise = false;
    layer.feed_forward = std::move(moe);
    BELLHOP_TRY(RequireBiases(b, l));
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace bellhop::model
