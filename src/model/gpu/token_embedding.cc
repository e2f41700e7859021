#include "model/gpu/token_embedding.h"

#include <vector>

#include "quant/codec.h"
#include "store/tensor_view.h"

namespace bellhop::model {

Result<TokenEmbedding> TokenEmbedding::Create(const manifest::Manifest& manifest, const ModelSpec& spec) {
  TokenEmbedding made;
  BELLHOP_TRY_ASSIGN(made.view_, store::MatrixView(manifest.tensors[static_cast<size_t>(spec.embedding)]));
  made.scale_ = spec.embedding_scale;
  if (spec.embedding_weight_scale >= 0) {
    BELLHOP_TRY_ASSIGN(const std::vector<float> scale,
                       store::DecodeSmall(manifest.tensors[static_cast<size_t>(spec.embedding_weight_scale)], 1));
    made.scale_ *= scale[0];
  }
  return made;
}

void TokenEmbedding::Decode(TokenId token, float* row) const {
  quant::DecodeRow(view_, token, row);
  if (scale_ == 1) return;
  for (int64_t c = 0; c < view_.cols; ++c) row[c] *= scale_;
}

}  // namespace bellhop::model
