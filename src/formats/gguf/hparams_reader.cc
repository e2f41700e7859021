#include "formats/gguf/hparams_reader.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "formats/gguf/gguf_reader.h"

namespace bellhop::formats {

using manifest::ExpertGating;
using manifest::ExpertHparams;
using manifest::Hparams;
using manifest::Metadata;
using manifest::MetaValue;
using manifest::RopeHparams;
using manifest::RopeScaling;

namespace {

// Keys of one architecture, by suffix, with bounds.
class ArchKeys {
 public:
  ArchKeys(const Metadata& metadata, std::string_view architecture)
      : metadata_(metadata), architecture_(architecture) {}

  std::string Key(std::string_view suffix) const { return fmt::format("{}.{}", architecture_, suffix); }
  bool Has(std::string_view suffix) const { return metadata_.Has(Key(suffix)); }
  const Metadata& metadata() const { return metadata_; }

  Result<uint32_t> Required(std::string_view suffix, uint32_t min, uint32_t max) const {
    const std::string key = Key(suffix);
    BELLHOP_TRY_ASSIGN(const uint64_t value, metadata_.GetUint(key));
    if (value < min || value > max) {
      return Corrupt("key '{}': {} is not between {} and {}", key, value, min, max);
    }
    return static_cast<uint32_t>(value);
  }

  // `min` and `max` apply to a stored value, not to the fallback.
  Result<uint32_t> Optional(std::string_view suffix, uint32_t fallback, uint32_t min, uint32_t max) const {
    if (!Has(suffix)) return fallback;
    return Required(suffix, min, max);
  }

  // A finite number.
  Result<double> Number(std::string_view suffix, double fallback) const {
    const std::string key = Key(suffix);
    BELLHOP_TRY_ASSIGN(const double value, metadata_.GetFloatOr(key, fallback));
    if (!std::isfinite(value)) return Corrupt("key '{}': {} is not a finite number", key, value);
    return value;
  }

  Result<double> PositiveNumber(std::string_view suffix, double fallback) const {
    BELLHOP_TRY_ASSIGN(const double value, Number(suffix, fallback));
    if (value <= 0) return Corrupt("key '{}': {} must be above 0", Key(suffix), value);
    return value;
  }

  // One value per layer from a scalar, or from an array with exactly one element per layer.
  Result<std::vector<uint32_t>> PerLayer(std::string_view suffix, uint32_t layers, uint32_t min, uint32_t max) const {
    const std::string key = Key(suffix);
    const MetaValue* value = metadata_.Find(key);
    if (value == nullptr || !value->is_array()) {
      BELLHOP_TRY_ASSIGN(const uint32_t scalar, Required(suffix, min, max));
      return std::vector<uint32_t>(layers, scalar);
    }
    if (value->array().count != layers) {
      return Corrupt("key '{}': {} values for {} layers", key, value->array().count, layers);
    }
    BELLHOP_TRY_ASSIGN(const std::vector<int64_t> values, metadata_.GetIntArray(key));
    std::vector<uint32_t> out;
    for (const int64_t v : values) {
      if (v < int64_t{min} || v > int64_t{max}) {
        return Corrupt("key '{}': {} for layer {} is not between {} and {}", key, v, out.size(), min, max);
      }
      out.push_back(static_cast<uint32_t>(v));
    }
    return out;
  }

 private:
  const Metadata& metadata_;
  std::string_view architecture_;
};

Status ReadHeads(const ArchKeys& keys, Hparams* h) {
  BELLHOP_TRY_ASSIGN(h->heads, keys.PerLayer("attention.head_count", h->layers, 1, kMaxHeads));
  h->kv_heads = h->heads;
  if (keys.Has("attention.head_count_kv")) {
    BELLHOP_TRY_ASSIGN(h->kv_heads, keys.PerLayer("attention.head_count_kv", h->layers, 1, kMaxHeads));
  }
  for (uint32_t layer = 0; layer < h->layers; ++layer) {
    if (h->heads[layer] % h->kv_heads[layer] != 0) {
      return Corrupt("key '{}': {} query heads are not a multiple of {} KV heads (layer {})",
                     keys.Key("attention.head_count_kv"), h->heads[layer], h->kv_heads[layer], layer);
    }
  }
  for (auto [suffix, out] :
       {std::pair{"attention.key_length", &h->key_length}, std::pair{"attention.value_length", &h->value_length}}) {
    if (!keys.Has(suffix) && h->hidden % h->heads[0] != 0) {
      return Corrupt("key '{}' is missing and cannot be derived: hidden size {} is not a multiple of {} heads",
                     keys.Key(suffix), h->hidden, h->heads[0]);
    }
    BELLHOP_TRY_ASSIGN(*out, keys.Optional(suffix, h->hidden / h->heads[0], 1, kMaxHeadLength));
  }
  if (keys.Has("attention.scale")) {
    BELLHOP_TRY_ASSIGN(h->attention_scale, keys.PositiveNumber("attention.scale", 1));
  }
  BELLHOP_TRY_ASSIGN(h->sliding_window, keys.Optional("attention.sliding_window", 0, 0, kMaxContext));
  return {};
}

Status ReadRopeScaling(const ArchKeys& keys, RopeHparams* rope) {
  const std::string type_key = keys.Key("rope.scaling.type");
  BELLHOP_TRY_ASSIGN(const std::string_view type, keys.metadata().GetStringOr(type_key, "linear"));
  if (type == "none") {
    rope->scaling = RopeScaling::kNone;
  } else if (type == "linear") {
    rope->scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope->scaling = RopeScaling::kYarn;
  } else if (type == "longrope") {
    rope->scaling = RopeScaling::kLongRope;
  } else {
    return Unsupported("key '{}': scaling type '{}' is not known (none, linear, yarn, longrope)", type_key,
                       Printable(type));
  }
  const bool legacy = !keys.Has("rope.scaling.factor");
  const char* factor_suffix = legacy ? "rope.scale_linear" : "rope.scaling.factor";
  BELLHOP_TRY_ASSIGN(rope->factor, keys.Number(factor_suffix, 1));
  if (rope->factor == 0 || rope->scaling == RopeScaling::kNone) rope->factor = 1;
  if (rope->factor < 1) {
    return Corrupt("key '{}': scaling factor {} is below 1", keys.Key(factor_suffix), rope->factor);
  }
  // A linear factor of 1 changes nothing; saying so here spares every reader the special case.
  if (rope->scaling == RopeScaling::kLinear && rope->factor == 1) rope->scaling = RopeScaling::kNone;
  return {};
}

Status ReadRope(const ArchKeys& keys, Hparams* h) {
  RopeHparams* rope = &h->rope;
  BELLHOP_TRY_ASSIGN(rope->dims, keys.Optional("rope.dimension_count", h->key_length, 1, kMaxHeadLength));
  if (rope->dims > h->key_length || rope->dims % 2 != 0) {
    return Corrupt("key '{}': rotary width {} must be even and at most the key length {}",
                   keys.Key("rope.dimension_count"), rope->dims, h->key_length);
  }
  BELLHOP_TRY_ASSIGN(rope->base, keys.PositiveNumber("rope.freq_base", 10000));
  BELLHOP_TRY_ASSIGN(rope->base_swa, keys.PositiveNumber("rope.freq_base_swa", rope->base));
  BELLHOP_TRY(ReadRopeScaling(keys, rope));
  BELLHOP_TRY_ASSIGN(rope->original_context,
                     keys.Optional("rope.scaling.original_context_length", h->context_length, 1, kMaxContext));
  const bool yarn = rope->scaling == RopeScaling::kYarn;
  if (yarn && rope->original_context == 0) {
    return NotFound("key '{}' is missing, and so is the context length that would stand in for it",
                    keys.Key("rope.scaling.original_context_length"));
  }
  BELLHOP_TRY_ASSIGN(rope->attn_factor, keys.PositiveNumber("rope.scaling.attn_factor", 1));
  BELLHOP_TRY_ASSIGN(rope->yarn_ext_factor, keys.Number("rope.scaling.yarn_ext_factor", yarn ? 1 : 0));
  BELLHOP_TRY_ASSIGN(rope->yarn_attn_factor, keys.PositiveNumber("rope.scaling.yarn_attn_factor", 1));
  BELLHOP_TRY_ASSIGN(rope->yarn_beta_fast, keys.PositiveNumber("rope.scaling.yarn_beta_fast", 32));
  BELLHOP_TRY_ASSIGN(rope->yarn_beta_slow, keys.PositiveNumber("rope.scaling.yarn_beta_slow", 1));
  BELLHOP_TRY_ASSIGN(rope->yarn_log_multiplier, keys.Number("rope.scaling.yarn_log_multiplier", 0));
  BELLHOP_TRY_ASSIGN(rope->finetuned, keys.metadata().GetBoolOr(keys.Key("rope.scaling.finetuned"), true));
  if (!keys.Has("rope.dimension_sections")) return {};
  const std::string sections_key = keys.Key("rope.dimension_sections");
  BELLHOP_TRY_ASSIGN(rope->sections, keys.metadata().GetIntArray(sections_key));
  for (const int64_t section : rope->sections) {
    if (section < 0 || section > int64_t{rope->dims}) {
      return Corrupt("key '{}': section {} is not between 0 and the rotary width {}", sections_key, section,
                     rope->dims);
    }
  }
  if (rope->sections.size() > 4)
    return Corrupt("key '{}': {} sections, at most 4", sections_key, rope->sections.size());
  return {};
}

// One size for all layers; a per-layer array must agree with itself.
Result<uint32_t> ReadExpertInner(const ArchKeys& keys, uint32_t layers) {
  constexpr std::string_view kSuffix = "expert_feed_forward_length";
  if (!keys.Has(kSuffix)) return uint32_t{0};
  BELLHOP_TRY_ASSIGN(const std::vector<uint32_t> per_layer, keys.PerLayer(kSuffix, layers, 0, kMaxWidth));
  uint32_t inner = 0;  // 0 marks a layer without experts
  for (const uint32_t size : per_layer) {
    if (size == 0) continue;
    if (inner != 0 && size != inner) {
      return Unsupported("key '{}': experts of {} and of {} in one model", keys.Key(kSuffix), inner, size);
    }
    inner = size;
  }
  return inner;
}

Status ReadExpertCounts(const ArchKeys& keys, ExpertHparams* e) {
  BELLHOP_TRY_ASSIGN(e->count, keys.Optional("expert_count", 0, 0, kMaxExperts));
  if (e->count > 0 && !keys.Has("expert_used_count")) {
    return NotFound("key '{}' is missing, while '{}' is {}", keys.Key("expert_used_count"), keys.Key("expert_count"),
                    e->count);
  }
  BELLHOP_TRY_ASSIGN(const uint64_t used, keys.metadata().GetUintOr(keys.Key("expert_used_count"), 0));
  if (used > e->count || (used == 0 && e->count > 0)) {
    return Corrupt("key '{}': {} of {} experts used; must be between {} and '{}' ({})", keys.Key("expert_used_count"),
                   used, e->count, e->count > 0 ? 1 : 0, keys.Key("expert_count"), e->count);
  }
  e->used = static_cast<uint32_t>(used);
  BELLHOP_TRY_ASSIGN(e->group_count, keys.Optional("expert_group_count", 0, 0, kMaxExperts));
  BELLHOP_TRY_ASSIGN(e->group_used, keys.Optional("expert_group_used_count", 0, 0, kMaxExperts));
  if (e->group_count <= 1) return {};
  if (e->count % e->group_count != 0 || e->group_used < 1 || e->group_used > e->group_count) {
    return Corrupt("key '{}': {} groups of which {} are used do not fit {} experts", keys.Key("expert_group_count"),
                   e->group_count, e->group_used, e->count);
  }
  if (e->used > e->count / e->group_count * e->group_used) {
    return Corrupt("key '{}': {} experts used, {} groups hold {}", keys.Key("expert_used_count"), e->used,
                   e->group_used, e->count / e->group_count * e->group_used);
  }
  return {};
}

Status ReadExperts(const ArchKeys& keys, Hparams* h) {
  ExpertHparams* e = &h->experts;
  BELLHOP_TRY(ReadExpertCounts(keys, e));
  BELLHOP_TRY_ASSIGN(e->inner, ReadExpertInner(keys, h->layers));
  BELLHOP_TRY_ASSIGN(e->shared_inner, keys.Optional("expert_shared_feed_forward_length", 0, 0, kMaxWidth));
  BELLHOP_TRY_ASSIGN(e->shared_count, keys.Optional("expert_shared_count", 0, 0, kMaxExperts));
  BELLHOP_TRY_ASSIGN(e->weights_scale, keys.Number("expert_weights_scale", 0));
  if (keys.Has("expert_weights_norm")) {
    BELLHOP_TRY_ASSIGN(e->weights_norm, keys.metadata().GetBool(keys.Key("expert_weights_norm")));
  }
  BELLHOP_TRY_ASSIGN(const uint32_t gating, keys.Optional("expert_gating_func", 0, 0, UINT32_MAX));
  if (gating > static_cast<uint32_t>(ExpertGating::kSoftmaxSelected)) {
    return Unsupported("key '{}': gating function {} is not known (1 softmax, 2 sigmoid, 3 softmax over the selected)",
                       keys.Key("expert_gating_func"), gating);
  }
  e->gating = static_cast<ExpertGating>(gating);
  BELLHOP_TRY_ASSIGN(h->leading_dense_layers, keys.Optional("leading_dense_block_count", 0, 0, h->layers));
  return {};
}

// Multipliers: any finite value but 0, which would erase the signal (or divide by it).
Status ReadScales(const ArchKeys& keys, Hparams* h) {
  for (auto [suffix, out] :
       {std::pair{"embedding_scale", &h->embedding_scale}, std::pair{"residual_scale", &h->residual_scale},
        std::pair{"logit_scale", &h->logit_scale}}) {
    BELLHOP_TRY_ASSIGN(*out, keys.Number(suffix, 1));
    if (*out == 0) return Corrupt("key '{}': must not be 0", keys.Key(suffix));
  }
  return {};
}

}  // namespace

Result<Hparams> ReadHparams(const Metadata& metadata, std::string_view architecture, uint64_t fallback_vocab) {
  const ArchKeys keys(metadata, architecture);
  Hparams h;
  BELLHOP_TRY_ASSIGN(h.layers, keys.Required("block_count", 1, kMaxLayers));
  BELLHOP_TRY_ASSIGN(h.nextn_layers, keys.Optional("nextn_predict_layers", 0, 0, h.layers - 1));
  BELLHOP_TRY_ASSIGN(h.context_length, keys.Optional("context_length", 0, 1, kMaxContext));
  BELLHOP_TRY_ASSIGN(h.hidden, keys.Required("embedding_length", 1, kMaxWidth));
  if (fallback_vocab > kMaxVocab)
    return Corrupt("vocabulary of {} entries, the limit is {}", fallback_vocab, kMaxVocab);
  BELLHOP_TRY_ASSIGN(h.vocab, keys.Optional("vocab_size", static_cast<uint32_t>(fallback_vocab), 1, kMaxVocab));
  h.inner.assign(h.layers, 0);
  if (keys.Has("feed_forward_length")) {
    BELLHOP_TRY_ASSIGN(h.inner, keys.PerLayer("feed_forward_length", h.layers, 0, kMaxWidth));
  }
  BELLHOP_TRY(ReadHeads(keys, &h));
  const std::string epsilon_key = keys.Key("attention.layer_norm_rms_epsilon");
  BELLHOP_TRY_ASSIGN(h.rms_epsilon, metadata.GetFloat(epsilon_key));
  if (!std::isfinite(h.rms_epsilon) || h.rms_epsilon <= 0 || h.rms_epsilon >= 1) {
    return Corrupt("key '{}': {} is not between 0 and 1", epsilon_key, h.rms_epsilon);
  }
  BELLHOP_TRY(ReadRope(keys, &h));
  BELLHOP_TRY(ReadExperts(keys, &h));
  BELLHOP_TRY(ReadScales(keys, &h));
  return h;
}

}  // namespace bellhop::formats
