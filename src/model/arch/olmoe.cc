// olmoe: as qwen3moe, but the QK norm spans the whole projection and the router's weights are not renormalised.
#include "model/arch/builder.h"

namespace bellhop::model {

Result<ModelSpec> BuildOlmoe(const manifest::Manifest& manifest) {
  const SpecBuilder b(manifest);
  const manifest::Hparams& h = b.hparams();
  ModelSpec spec;
  BELLHOP_TRY(b.Globals(&spec));
  BELLHOP_TRY_ASSIGN(RopeSpec rope, b.Rope(RopeKind::kNeox, h.rope.base));
  spec.ropes.push_back(std::move(rope));
  for (int32_t l = 0; l < static_cast<int32_t>(h.layers); ++l) {
    LayerSpec layer;
    BELLHOP_TRY_ASSIGN(const NormSpec attn_norm, b.Norm(SpecBuilder::Blk(l, "attn_norm.weight"), h.hidden));
    layer.mixer_port = ResidualPortSpec{attn_norm, 1};
    BELLHOP_TRY_ASSIGN(AttentionSpec attention, b.Attention(l));
    attention.qk_norm = QkNorm::kFullWidth;
    BELLHOP_TRY_ASSIGN(attention.q_norm, b.Norm(SpecBuilder::Blk(l, "attn_q_norm.weight"), attention.q.rows));
    BELLHOP_TRY_ASSIGN(attention.k_norm, b.Norm(SpecBuilder::Blk(l, "attn_k_norm.weight"), attention.k.rows));
    attention.rope = 0;
    layer.mixer = attention;
    BELLHOP_TRY_ASSIGN(const NormSpec ffn_norm, b.Norm(SpecBuilder::Blk(l, "ffn_norm.weight"), h.hidden));
    layer.feed_forward_port = ResidualPortSpec{ffn_norm, 1};
    BELLHOP_TRY_ASSIGN(MoeSpec moe, b.Moe(l));
    moe.normalise = h.experts.weights_norm.value_or(false);
    layer.feed_forward = std::move(moe);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace bellhop::model
