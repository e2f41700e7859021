#include "model/arch/builder.h"

#include <algorithm>
#include <cmath>

#include "model/rope.h"
#include "store/tensor_view.h"

namespace bellhop::model {

using manifest::Hparams;
using manifest::Tensor;

std::string SpecBuilder::Blk(int32_t layer, std::string_view suffix) { return fmt::format("blk.{}.{}", layer, suffix); }

Result<TensorIndex> SpecBuilder::Find(const std::string& name) const {
  const auto it = m_.tensor_index.find(name);
  if (it == m_.tensor_index.end()) {
    return NotFound("tensor {} is missing; architecture '{}' needs it", name, m_.architecture);
  }
  return it->second;
}

Status SpecBuilder::Require(const std::string& name) const { return Find(name).status(); }

Result<TensorIndex> SpecBuilder::Vector(const std::string& name, int64_t elements) const {
  BELLHOP_TRY_ASSIGN(const TensorIndex index, Find(name));
  const Tensor& tensor = m_.tensors[static_cast<size_t>(index)];
  if (tensor.elements() != static_cast<uint64_t>(elements)) {
    return Corrupt("tensor {}: shape {}, architecture '{}' needs {} elements", name, tensor.ShapeString(),
                   m_.architecture, elements);
  }
  return index;
}

Result<TensorIndex> SpecBuilder::OptionalVector(const std::string& name, int64_t elements) const {
  if (!Has(name)) return TensorIndex{-1};
  return Vector(name, elements);
}

Result<NormSpec> SpecBuilder::Norm(const std::string& name, int64_t elements) const {
  NormSpec norm;
  BELLHOP_TRY_ASSIGN(norm.weight, Vector(name, elements));
  norm.epsilon = static_cast<float>(m_.hparams.rms_epsilon);
  return norm;
}

Result<LinearSpec> SpecBuilder::Matrix(const std::string& stem, int64_t cols, int64_t rows) const {
  LinearSpec linear;
  BELLHOP_TRY_ASSIGN(linear.weight, Find(stem + ".weight"));
  const Tensor& tensor = m_.tensors[static_cast<size_t>(linear.weight)];
  if (tensor.dims[0] != static_cast<uint64_t>(cols) || tensor.rows() != static_cast<uint64_t>(rows)) {
    return Corrupt("tensor {}: shape {}, architecture '{}' needs [{}, {}]", tensor.name, tensor.ShapeString(),
                   m_.architecture, cols, rows);
  }
  linear.rows = rows;
  linear.cols = cols;
  BELLHOP_TRY_ASSIGN(linear.bias, OptionalVector(stem + ".bias", rows));
  BELLHOP_TRY_ASSIGN(linear.scale, OptionalVector(stem + ".scale", 1));
  return linear;
}

Status SpecBuilder::Globals(ModelSpec* spec) const {
  const Hparams& h = m_.hparams;
  spec->architecture = m_.architecture;
  spec->hidden = h.hidden;
  spec->vocab = h.vocab;
  spec->context = static_cast<int32_t>(h.context_length);
  spec->embedding_scale = static_cast<float>(h.embedding_scale);
  spec->logit_scale = static_cast<float>(h.logit_scale);
  BELLHOP_TRY_ASSIGN(const LinearSpec embedding, Matrix("token_embd", h.hidden, h.vocab));
  spec->embedding = embedding.weight;
  spec->embedding_weight_scale = embedding.scale;
  BELLHOP_TRY_ASSIGN(spec->output_norm, Norm("output_norm.weight", h.hidden));
  if (Has("output.weight")) {
    BELLHOP_TRY_ASSIGN(spec->head, Matrix("output", h.hidden, h.vocab));
  } else {
    spec->head = embedding;  // tied
  }
  return Status();
}

Result<AttentionSpec> SpecBuilder::Attention(int32_t layer) const {
  const Hparams& h = m_.hparams;
  AttentionSpec a;
  a.heads = static_cast<int32_t>(h.heads[static_cast<size_t>(layer)]);
  a.kv_heads = static_cast<int32_t>(h.kv_heads[static_cast<size_t>(layer)]);
  a.key_dim = static_cast<int32_t>(h.key_length);
  a.value_dim = static_cast<int32_t>(h.value_length);
  if (a.heads < 1 || a.kv_heads < 1 || a.heads % a.kv_heads != 0) {
    return Corrupt("layer {}: {} attention heads over {} KV heads", layer, a.heads, a.kv_heads);
  }
  const int64_t q_rows = int64_t{a.heads} * a.key_dim, k_rows = int64_t{a.kv_heads} * a.key_dim,
                v_rows = int64_t{a.kv_heads} * a.value_dim;
  if (Has(Blk(layer, "attn_qkv.weight"))) {
    BELLHOP_TRY_ASSIGN(const LinearSpec fused, Matrix(Blk(layer, "attn_qkv"), h.hidden, q_rows + k_rows + v_rows));
    auto slice = [&](int64_t first, int64_t rows) {
      LinearSpec part = fused;
      part.first_row = part.first_bias = first;
      part.rows = rows;
      return part;
    };
    a.q = slice(0, q_rows);
    a.k = slice(q_rows, k_rows);
    a.v = slice(q_rows + k_rows, v_rows);
  } else {
    BELLHOP_TRY_ASSIGN(a.q, Matrix(Blk(layer, "attn_q"), h.hidden, q_rows));
    BELLHOP_TRY_ASSIGN(a.k, Matrix(Blk(layer, "attn_k"), h.hidden, k_rows));
    BELLHOP_TRY_ASSIGN(a.v, Matrix(Blk(layer, "attn_v"), h.hidden, v_rows));
  }
  BELLHOP_TRY_ASSIGN(a.output, Matrix(Blk(layer, "attn_output"), int64_t{a.heads} * a.value_dim, h.hidden));
  a.scale = static_cast<float>(h.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(a.key_dim))));
  return a;
}

Result<DenseFfnSpec> SpecBuilder::DenseFfn(int32_t layer, std::string_view suffix, int64_t inner) const {
  const auto hidden = static_cast<int64_t>(m_.hparams.hidden);
  if (inner < 1) {
    return Corrupt("layer {}: feed-forward size 0 for {}", layer, Blk(layer, fmt::format("ffn_gate{}", suffix)));
  }
  DenseFfnSpec ffn;
  ffn.inner = inner;
  BELLHOP_TRY_ASSIGN(ffn.gate, Matrix(Blk(layer, fmt::format("ffn_gate{}", suffix)), hidden, inner));
  BELLHOP_TRY_ASSIGN(ffn.up, Matrix(Blk(layer, fmt::format("ffn_up{}", suffix)), hidden, inner));
  BELLHOP_TRY_ASSIGN(ffn.down, Matrix(Blk(layer, fmt::format("ffn_down{}", suffix)), inner, hidden));
  return ffn;
}

Result<MoeSpec> SpecBuilder::Moe(int32_t layer) const {
  const manifest::ExpertHparams& e = m_.hparams.experts;
  if (e.count == 0) {
    return Corrupt("key '{}' is missing or 0; architecture '{}' needs experts", m_.Key("expert_count"),
                   m_.architecture);
  }
  const auto found = std::find_if(m_.expert_layers.begin(), m_.expert_layers.end(),
                                  [&](const manifest::ExpertLayer& l) { return l.layer.value == layer; });
  if (found == m_.expert_layers.end()) {
    return NotFound("tensor {} is missing; architecture '{}' with {} experts needs it",
                    Blk(layer, "ffn_down_exps.weight"), m_.architecture, e.count);
  }
  MoeSpec moe;
  moe.experts = static_cast<int32_t>(e.count);
  moe.used = static_cast<int32_t>(e.used);
  const int32_t down = found->down >= 0 ? found->down : found->down_each.front();
  moe.inner = static_cast<int64_t>(m_.tensors[static_cast<size_t>(down)].dims[0]);
  BELLHOP_TRY_ASSIGN(moe.router, Matrix(Blk(layer, "ffn_gate_inp"), m_.hparams.hidden, moe.experts));
  switch (e.gating) {
    case manifest::ExpertGating::kUnset:
    case manifest::ExpertGating::kSoftmax: moe.gating = moe::Gating::kSoftmax; break;
    case manifest::ExpertGating::kSigmoid: moe.gating = moe::Gating::kSigmoid; break;
    case manifest::ExpertGating::kSoftmaxSelected: moe.gating = moe::Gating::kSoftmaxSelected; break;
  }
  if (e.group_count > 1) {
    moe.groups = static_cast<int32_t>(e.group_count);
    moe.groups_used = static_cast<int32_t>(e.group_used);
  }
  moe.normalise = e.weights_norm.value_or(true);
  moe.weights_scale = static_cast<float>(e.weights_scale);
  BELLHOP_TRY_ASSIGN(moe.selection_bias, OptionalVector(Blk(layer, "exp_probs_b.bias"), moe.experts));
  return moe;
}

Result<RopeSpec> SpecBuilder::Rope(RopeKind kind, double base) const {
  const manifest::RopeHparams& rope = m_.hparams.rope;
  std::vector<float> factors;
  if (Has("rope_freqs.weight")) {
    BELLHOP_TRY_ASSIGN(const TensorIndex index, Vector("rope_freqs.weight", rope.dims / 2));
    BELLHOP_TRY_ASSIGN(factors, store::DecodeSmall(m_.tensors[static_cast<size_t>(index)], rope.dims / 2));
  }
  return MakeRope(kind, rope, base, factors);
}

}  // namespace bellhop::model
