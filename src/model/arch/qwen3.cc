// qwen3 (dense) and qwen3moe: pre-norm blocks, per-head QK norm before NEOX rotation, SwiGLU, softmax router with
// renormalised weights.
#include "model/arch/builder.h"

namespace bellhop::model {

Result<ModelSpec> BuildQwen3(const manifest::Manifest& manifest) {
  const SpecBuilder b(manifest);
  const manifest::Hparams& h = b.hparams();
  ModelSpec spec;
  BELLHOP_TRY(b.Globals(&spec));
  BELLHOP_TRY_ASSIGN(RopeSpec rope, b.Rope(RopeKind::kNeox, h.rope.base));
  spec.ropes.push_back(std::move(rope));
  const auto layers = static_cast<int32_t>(h.layers - h.nextn_layers);
  for (int32_t l = 0; l < layers; ++l) {
    LayerSpec layer;
    BELLHOP_TRY_ASSIGN(const NormSpec attn_norm, b.Norm(SpecBuilder::Blk(l, "attn_norm.weight"), h.hidden));
    layer.mixer_port = ResidualPortSpec{attn_norm, 1};
    BELLHOP_TRY_ASSIGN(AttentionSpec attention, b.Attention(l));
    attention.qk_norm = QkNorm::kPerHead;
    BELLHOP_TRY_ASSIGN(attention.q_norm, b.Norm(SpecBuilder::Blk(l, "attn_q_norm.weight"), attention.key_dim));
    BELLHOP_TRY_ASSIGN(attention.k_norm, b.Norm(SpecBuilder::Blk(l, "attn_k_norm.weight"), attention.key_dim));
    attention.rope = 0;
    layer.mixer = attention;
    BELLHOP_TRY_ASSIGN(const NormSpec ffn_norm, b.Norm(SpecBuilder::Blk(l, "ffn_norm.weight"), h.hidden));
    layer.feed_forward_port = ResidualPortSpec{ffn_norm, 1};
    if (manifest.architecture == "qwen3moe") {
      BELLHOP_TRY_ASSIGN(layer.feed_forward, b.Moe(l));
    } else {
      BELLHOP_TRY_ASSIGN(layer.feed_forward, b.DenseFfn(l, "", h.inner[static_cast<size_t>(l)]));
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace bellhop::model
