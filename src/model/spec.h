// What a model computes, as data: made by the per-architecture builders (arch/), carried out by transformer.h. Every
// architecture is the same skeleton:
//
//   residual = embed(token)                               [streams x hidden]
//   per layer:  x = port.read(residual);  residual = port.write(residual, mixer(x))
//               x = port.read(residual);  residual = port.write(residual, feed_forward(x))
//   logits   = head(norm(residual))
//
// Alternatives of a part are alternatives of its variant: a recurrent mixer is a new MixerSpec alternative,
// hyper-connections are a new PortSpec alternative (with streams > 1), and neither changes the skeleton.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "moe/cpu_cold.h"
#include "moe/router.h"

namespace bellhop::model {

// Index into Manifest::tensors; negative: absent.
using TensorIndex = int32_t;

struct NormSpec {
  TensorIndex weight = -1;
  float epsilon = 0;
};

// y = scale * (W x) + bias. W: rows [first_row, first_row + rows) of the tensor.
struct LinearSpec {
  TensorIndex weight = -1;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  TensorIndex bias = -1;
  int64_t first_bias = 0;  // of the slice, when the bias covers a fused tensor
  TensorIndex scale = -1;  // one-element companion, absent: 1
};

enum class RopeKind : uint8_t { kNone, kNorm, kNeox };

struct RopeSpec {
  RopeKind kind = RopeKind::kNone;
  int32_t dims = 0;                 // rotary width, even
  std::vector<double> frequencies;  // [dims / 2]: angle per position, scaling applied
  double magnitude = 1;             // factor on cos and sin (YaRN)
};

enum class QkNorm : uint8_t { kNone, kPerHead, kFullWidth };

// Softmax attention over the paged KV cache.
struct AttentionSpec {
  int32_t heads = 0, kv_heads = 0;
  int32_t key_dim = 0, value_dim = 0;
  LinearSpec q, k, v, output;
  QkNorm qk_norm = QkNorm::kNone;
  NormSpec q_norm, k_norm;
  int32_t rope = -1;       // index into ModelSpec::ropes, negative: no rotation
  float scale = 0;         // on q . k
  int32_t window = 0;      // visible positions, the row's own included; 0: all
  TensorIndex sinks = -1;  // [heads]
};

struct DenseFfnSpec {
  LinearSpec gate, up, down;
  int64_t inner = 0;
};

struct MoeSpec {
  LinearSpec router;
  moe::Gating gating = moe::Gating::kSoftmax;
  bool normalise = false;
  float weights_scale = 0;
  TensorIndex selection_bias = -1;
  int32_t groups = 1, groups_used = 1;
  int32_t experts = 0, used = 0;
  int64_t inner = 0;                      // of one expert
  std::optional<DenseFfnSpec> shared;     // added to the routed sum
  std::optional<LinearSpec> shared_gate;  // its sigmoid scales the shared expert
};

using MixerSpec = std::variant<AttentionSpec>;
using FeedForwardSpec = std::variant<DenseFfnSpec, MoeSpec>;

// read: rms norm; write: residual += scale * y.
struct ResidualPortSpec {
  NormSpec norm;
  float scale = 1;
};
using PortSpec = std::variant<ResidualPortSpec>;

struct LayerSpec {
  PortSpec mixer_port;
  MixerSpec mixer;
  PortSpec feed_forward_port;
  FeedForwardSpec feed_forward;
};

struct ModelSpec {
  std::string architecture;
  int64_t hidden = 0;
  int32_t streams = 1;  // residual streams of `hidden` values each
  int64_t vocab = 0;
  int32_t context = 0;                      // trained context
  TensorIndex embedding = -1;               // [hidden, vocab]
  TensorIndex embedding_weight_scale = -1;  // one-element companion, absent: 1
  float embedding_scale = 1;
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  NormSpec output_norm;
  LinearSpec head;
  float logit_scale = 1;             // logits are divided by this
  moe::ActivationParams activation;  // of experts and dense feed-forward parts alike
};

}  // namespace bellhop::model
