// The neutral description of a model: hyper-parameters, tensor table, expert index, vocabulary. Data only: made by
// formats/, read by everything above. Pointers into mapped files stay valid as long as the object that made them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "manifest/metadata.h"
#include "manifest/vocabulary.h"
#include "quant/format.h"

namespace bellhop::manifest {

struct Tensor {
  std::string name;
  quant::WeightFormat format = quant::WeightFormat::kF32;
  int n_dims = 0;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  // ne order: dims[0] is contiguous, the input axis of a linear layer
  uint32_t file = 0;                            // index into Manifest::files
  uint64_t offset = 0;                          // absolute, from the start of that file
  uint64_t bytes = 0;
  HostSpan<const std::byte> data;  // the mapped bytes, size() == bytes

  uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  std::string ShapeString() const;  // "[256, 256, 32]"
};

struct FilePart {
  std::string path;
  uint64_t bytes = 0;
};

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn, kLongRope };
enum class ExpertGating : uint8_t { kUnset, kSoftmax, kSigmoid, kSoftmaxSelected };

struct RopeHparams {
  uint32_t dims = 0;  // rotary width
  double base = 10000;
  double base_swa = 10000;  // for sliding-window layers; = base when absent
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;  // context extension, >= 1
  uint32_t original_context = 0;
  double attn_factor = 1;
  double yarn_ext_factor = 0;  // 1 for yarn unless the file says otherwise
  double yarn_attn_factor = 1;
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  double yarn_log_multiplier = 0;
  bool yarn_truncate = true;      // floor/ceil the correction bounds; the model builder decides (gpt-oss: false)
  bool finetuned = true;          // false switches RoPE off (granite)
  std::vector<int64_t> sections;  // rope.dimension_sections
};

struct ExpertHparams {
  uint32_t count = 0;  // 0: a dense model
  uint32_t used = 0;
  uint32_t inner = 0;  // expert_feed_forward_length, 0: not stated
  uint32_t shared_inner = 0;
  uint32_t shared_count = 0;
  double weights_scale = 0;  // 0: no scaling
  std::optional<bool> weights_norm;
  ExpertGating gating = ExpertGating::kUnset;
  uint32_t group_count = 0, group_used = 0;
};

// Generic hyper-parameters (docs/formats.md, "Hyper-parameter keys"), resolved: defaults applied, scalars expanded to
// one value per layer. Architecture-specific keys stay in Manifest::metadata.
struct Hparams {
  uint32_t layers = 0;             // block_count
  uint32_t nextn_layers = 0;       // of these, trailing MTP blocks
  uint32_t context_length = 0;     // 0: not stated
  uint32_t hidden = 0;             // embedding_length
  uint32_t vocab = 0;              // 0: not stated (a drafter that borrows its target's)
  std::vector<uint32_t> inner;     // feed_forward_length per layer (0: none)
  std::vector<uint32_t> heads;     // per layer
  std::vector<uint32_t> kv_heads;  // per layer
  uint32_t key_length = 0;
  uint32_t value_length = 0;
  double rms_epsilon = 0;
  std::optional<double> attention_scale;
  uint32_t sliding_window = 0;
  uint32_t leading_dense_layers = 0;
  RopeHparams rope;
  ExpertHparams experts;
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
};

// Where the matrices of one layer's routed experts are. Either gate/up (or merged gate_up) and down stacks of
// [in, out, experts], or one tensor per expert.
struct ExpertLayer {
  LayerId layer;
  int32_t gate = -1, up = -1, down = -1, gate_up = -1;  // tensor indices of the stacks, -1: absent
  std::vector<int32_t> gate_each, up_each, down_each;   // per-expert tensors of old files, else empty
  int32_t gate_bias = -1, up_bias = -1, gate_up_bias = -1, down_bias = -1;
  // One f32 factor per expert that multiplies the product (NVFP4), [experts].
  int32_t gate_scale = -1, up_scale = -1, gate_up_scale = -1, down_scale = -1;
};

struct Manifest {
  std::string architecture;
  std::string name;
  std::vector<FilePart> files;
  Metadata metadata;
  Hparams hparams;
  std::vector<Tensor> tensors;
  std::unordered_map<std::string, int32_t> tensor_index;
  std::vector<ExpertLayer> expert_layers;  // layers that have routed experts, ascending
  Vocabulary vocabulary;

  const Tensor* FindTensor(std::string_view tensor_name) const;
  // "qwen3moe." + suffix.
  std::string Key(std::string_view suffix) const;
  uint64_t TotalTensorBytes() const;
};

}  // namespace bellhop::manifest
