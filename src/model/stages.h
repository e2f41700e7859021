// The parts that a layer is made of, as interfaces over one step. transformer.h owns them and runs the skeleton of
// spec.h; each architecture feature is an implementation of one of these.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/span.h"
#include "kernels/attention.h"
#include "model/kv_cache.h"
#include "model/sequence_state.h"
#include "moe/linear.h"
#include "moe/moe_layer.h"

namespace bellhop::model {

class AttentionWorkspace;

// One row of a step. Rows of one sequence are consecutive positions in order, causal among themselves.
struct StepRow {
  SequenceState* sequence = nullptr;
  int32_t position = 0;
  TokenId token = 0;
  bool want_logits = false;
};

// What the stages of one step share. Buffers have room for max_rows rows; nothing is allocated during a step.
struct StepContext {
  moe::NumericClass numeric_class = moe::NumericClass::kDecode;
  HostSpan<const StepRow> rows;
  const moe::CpuContext* cpu = nullptr;
  KvPool* kv = nullptr;
  moe::MoeExecutor* moe = nullptr;            // null: a dense model
  const float* const* rope_tables = nullptr;  // [rope][row * dims]: cos/sin pairs
  // Scratch of the running stage.
  float* q = nullptr;  // [rows, widest q]
  float* k = nullptr;
  float* v = nullptr;
  float* heads_out = nullptr;  // [rows, heads * value_dim]
  float* gate = nullptr;       // [rows, widest feed-forward]
  float* up = nullptr;
  float* extra = nullptr;  // [rows, hidden]: shared expert
  AttentionWorkspace* attention = nullptr;
  uint8_t* bad_rows = nullptr;  // set by stages that met a numeric fault

  int64_t row_count() const { return static_cast<int64_t>(rows.size()); }
};

// Sequence mixer: attention, or a recurrent layer.
class Mixer {
 public:
  virtual ~Mixer() = default;
  // y [rows, hidden] from the port's output x [rows, hidden].
  virtual void Forward(const StepContext& step, MatView<const float> x, MatView<float> y) = 0;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual void Forward(const StepContext& step, MatView<const float> x, MatView<float> y) = 0;
};

// Between the residual stream(s) [rows, streams * hidden] and a block [rows, hidden].
class ResidualPort {
 public:
  virtual ~ResidualPort() = default;
  virtual void Read(const StepContext& step, MatView<const float> residual, MatView<float> x) = 0;
  virtual void Write(const StepContext& step, MatView<const float> y, MatView<float> residual) = 0;
};

}  // namespace bellhop::model
