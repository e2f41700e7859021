// llama (dense, and Mixtral when the file has experts), granite and granitemoe: pre-norm blocks, NORM rotation, SwiGLU.
// Granite differs by four scalar multipliers, which are 1 in llama files, and by an optional ungated shared expert.
#include "model/arch/builder.h"

namespace bellhop::model {

Result<ModelSpec> BuildLlama(const manifest::Manifest& manifest) {
  const SpecBuilder b(manifest);
  const manifest::Hparams& h = b.hparams();
  ModelSpec spec;
  BELLHOP_TRY(b.Globals(&spec));
  BELLHOP_TRY_ASSIGN(RopeSpec rope, b.Rope(RopeKind::kNorm, h.rope.base));
  spec.ropes.push_back(std::move(rope));
  const auto residual_scale = static_cast<float>(h.residual_scale);
  for (int32_t l = 0; l < static_cast<int32_t>(h.layers); ++l) {
    LayerSpec layer;
    BELLHOP_TRY_ASSIGN(const NormSpec attn_norm, b.Norm(SpecBuilder::Blk(l, "attn_norm.weight"), h.hidden));
    layer.mixer_port = ResidualPortSpec{attn_norm, residual_scale};
    BELLHOP_TRY_ASSIGN(AttentionSpec attention, b.Attention(l));
    attention.rope = h.rope.finetuned ? 0 : -1;
    layer.mixer = attention;
    BELLHOP_TRY_ASSIGN(const NormSpec ffn_norm, b.Norm(SpecBuilder::Blk(l, "ffn_norm.weight"), h.hidden));
    layer.feed_forward_port = ResidualPortSpec{ffn_norm, residual_scale};
    if (h.experts.count > 0) {
      BELLHOP_TRY_ASSIGN(MoeSpec moe, b.Moe(l));
      if (h.experts.shared_inner > 0 || b.Has(SpecBuilder::Blk(l, "ffn_down_shexp.weight"))) {
        BELLHOP_TRY_ASSIGN(moe.shared, b.DenseFfn(l, "_shexp", h.experts.shared_inner));
      }
      layer.feed_forward = std::move(moe);
    } else {
      BELLHOP_TRY_ASSIGN(layer.feed_forward, b.DenseFfn(l, "", h.inner[static_cast<size_t>(l)]));
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace bellhop::model
