// What every architecture builder needs: required and optional tensors with shape checks, and the pieces that most
// architectures share. Errors name the tensor, the architecture and what was expected.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "manifest/manifest.h"
#include "model/spec.h"

namespace bellhop::model {

class SpecBuilder {
 public:
  explicit SpecBuilder(const manifest::Manifest& manifest) : m_(manifest) {}

  const manifest::Manifest& manifest() const { return m_; }
  const manifest::Hparams& hparams() const { return m_.hparams; }

  // "blk.3." + suffix
  static std::string Blk(int32_t layer, std::string_view suffix);

  bool Has(std::string_view name) const { return m_.FindTensor(name) != nullptr; }
  // kNotFound names the tensor and the architecture.
  Status Require(const std::string& name) const;
  // A vector of `elements` values. kNotFound names the tensor and the architecture.
  Result<TensorIndex> Vector(const std::string& name, int64_t elements) const;
  // -1 when absent.
  Result<TensorIndex> OptionalVector(const std::string& name, int64_t elements) const;
  Result<NormSpec> Norm(const std::string& name, int64_t elements) const;
  // <stem>.weight [cols, rows] with optional <stem>.bias and <stem>.scale.
  Result<LinearSpec> Matrix(const std::string& stem, int64_t cols, int64_t rows) const;

  // Globals: embedding, output norm, head (tied when output.weight is missing), vocabulary, context.
  Status Globals(ModelSpec* spec) const;
  // q, k, v (or fused attn_qkv), output, dimensions and default scale of one layer; no norms, no rope.
  Result<AttentionSpec> Attention(int32_t layer) const;
  // Dense gate/up/down of one layer, stems "ffn_gate" etc. or "ffn_gate_shexp" etc. with suffix "_shexp".
  Result<DenseFfnSpec> DenseFfn(int32_t layer, std::string_view suffix, int64_t inner) const;
  // Router and counts; gating softmax with normalisation unless the file says otherwise.
  Result<MoeSpec> Moe(int32_t layer) const;
  // The rotation that the metadata describes, with `base` (freq_base or freq_base_swa).
  Result<RopeSpec> Rope(RopeKind kind, double base) const;

 private:
  Result<TensorIndex> Find(const std::string& name) const;

  const manifest::Manifest& m_;
};

// Builders, one per architecture family; each handles the strings that registry.cc lists for it.
Result<ModelSpec> BuildQwen3(const manifest::Manifest& manifest);   // qwen3, qwen3moe
Result<ModelSpec> BuildLlama(const manifest::Manifest& manifest);   // llama with and without experts, granite(moe)
Result<ModelSpec> BuildOlmoe(const manifest::Manifest& manifest);   // olmoe
Result<ModelSpec> BuildGptOss(const manifest::Manifest& manifest);  // gpt-oss

}  // namespace bellhop::model
