// Rows of the residual stream as tokens begin them. Decoded on the host: a row a token is little.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/status.h"
#include "manifest/manifest.h"
#include "model/spec.h"
#include "quant/quant_view.h"

namespace bellhop::model {

class TokenEmbedding {
 public:
  TokenEmbedding() = default;
  static Result<TokenEmbedding> Create(const manifest::Manifest& manifest, const ModelSpec& spec);
  // row: [hidden].
  void Decode(TokenId token, float* row) const;

 private:
  quant::QuantView view_;
  float scale_ = 1;
};

}  // namespace bellhop::model
