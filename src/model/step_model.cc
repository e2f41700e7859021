#include "model/step_model.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <variant>

#include "base/units.h"

namespace bellhop::model {

Status CheckOptions(const TransformerOptions& options) {
  if (options.max_rows < 1 || options.max_rows > kMaxStepRows) {
    return InvalidArgument("steps of {} rows: 1 to {} are possible", options.max_rows, kMaxStepRows);
  }
  if (options.context_tokens < 1 || options.sequences < 1) {
    return InvalidArgument("{} sequences of {} tokens: at least one of one token is needed", options.sequences,
                           options.context_tokens);
  }
  return Status();
}

Status CheckStep(const ModelSpec& spec, const TransformerOptions& options, HostSpan<const StepRow> rows) {
  if (rows.size() > static_cast<size_t>(options.max_rows)) {
    return Internal("a step of {} rows exceeds {}", rows.size(), options.max_rows);
  }
  for (const StepRow& row : rows) {
    if (row.token < 0 || row.token >= spec.vocab) {
      return InvalidArgument("token {} at position {} is outside the vocabulary of {}", row.token, row.position,
                             spec.vocab);
    }
  }
  return Status();
}

// NaN and Inf have every bit of the exponent set. Blocks of a constant size become vector code.
bool AllFinite(const float* x, int64_t n) {
  constexpr uint32_t kExponent = 0x7F800000;
  constexpr int64_t kBlock = 64;
  uint32_t bad[kBlock] = {};
  auto check = [&](int64_t i, int64_t lane) {
    bad[lane] |= (std::bit_cast<uint32_t>(x[i]) & kExponent) == kExponent ? 1u : 0u;
  };
  int64_t at = 0;
  for (; at + kBlock <= n; at += kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) check(at + i, i);
  }
  for (; at < n; ++at) check(at, 0);
  return std::none_of(std::begin(bad), std::end(bad), [](uint32_t b) { return b != 0; });
}

// A NaN in a row's computation reaches its logits, so rows that want none need no check: what they wrote to the KV
// cache shows in the rows that read it.
Status CheckFaults(HostSpan<const StepRow> rows, HostSpan<const uint8_t> bad_rows) {
  for (size_t m = 0; m < rows.size(); ++m) {
    if ((bad_rows[m] & kBadRouter) != 0) {
      return Internal(
          "numeric fault: the router's scores for the token at position {} are not numbers; the weights or "
          "the input are damaged",
          rows[m].position);
    }
    if ((bad_rows[m] & kBadLogits) != 0) {
      return Internal(
          "numeric fault: the logits at position {} are not finite numbers; the weights are damaged, or values exceed "
          "the range of the KV cache's type (--cache-type bf16 or f32)",
          rows[m].position);
    }
  }
  return Status();
}

std::vector<KvLayerShape> KvShapes(const ModelSpec& spec) {
  std::vector<KvLayerShape> shapes;
  for (const LayerSpec& layer : spec.layers) {
    KvLayerShape shape;
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) shape = {a->k.rows, a->v.rows, a->kv_heads};
    shapes.push_back(shape);
  }
  return shapes;
}

int64_t KvPageCount(const TransformerOptions& options) {
  return CeilDiv(options.context_tokens, kernels::kKvPageTokens) * options.sequences;
}

}  // namespace bellhop::model
