// One expert as the kernels see it: its matrices with kernels chosen, and the arithmetic between them. Covers GGUF
// models and every variant of ONNX QMoE nodes; the rounding points and activations are parameters, not other kernels.
//
//   h = round_hidden(activation(fc1 x + bias))      y = round_output(fc2 h + bias)      result: sum of weight * y in
//   f32
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "moe/linear.h"
#include "store/expert_store.h"

namespace bellhop::moe {

enum class ExpertActivation : uint8_t {
  kSwiGlu,  // g = min(gate, limit), u = clamp(up, -limit, limit): g * sigmoid(alpha * g) * (u + beta)
  kGeGlu,   // gelu(gate) * up
  kSilu,    // the others have no up half
  kGelu,    // tanh form
  kRelu,
  kIdentity,
};
constexpr bool HasUp(ExpertActivation kind) {
  return kind == ExpertActivation::kSwiGlu || kind == ExpertActivation::kGeGlu;
}

// The defaults give silu(gate) * up. gpt-oss: alpha 1.702, beta 1, limit 7.
struct ActivationParams {
  ExpertActivation kind = ExpertActivation::kSwiGlu;
  float alpha = 1;
  float beta = 0;
  float limit = std::numeric_limits<float>::infinity();
};

enum class Rounding : uint8_t { kNone, kF16, kBF16 };

struct ExpertNumerics {
  ActivationParams activation;
  Rounding hidden = Rounding::kNone;  // of the activation's result
  Rounding output = Rounding::kNone;  // of an expert's output, bias included
};

// h[i] = act(gate[i], up[i]) for i < n; up is not read by activations without an up half. h may be gate or up.
void ApplyActivation(const kernels::VecOps& ops, const ActivationParams& params, const float* gate, const float* up,
                     int64_t n, float* h);
// x[i] rounded in place.
void ApplyRounding(const kernels::VecOps& ops, Rounding rounding, int64_t n, float* x);

struct Expert {
  store::Fc1Layout layout = store::Fc1Layout::kSeparate;
  Linear gate;  // [inner, hidden]; kInterleaved: both halves, [2 * inner, hidden]; kSingle: the only half
  Linear up;    // [inner, hidden], kSeparate alone
  Linear down;  // [hidden, inner]

  int64_t inner() const { return down.cols(); }
  int64_t hidden() const { return down.rows(); }
  uint64_t bytes() const;  // of all matrices
};

// Chooses the kernels and checks that shapes and activation fit each other. Notes name formats that run on reference
// kernels.
Result<Expert> MakeExpert(const store::ExpertView& view, const ActivationParams& activation, const sys::CpuCaps& caps,
                          std::vector<std::string>* notes);

// The part [range.begin, range.end) of the inner dimension: rows of fc1 with the matching columns of fc2. Bounds are
// multiples of InnerGranularity or the end. Cheap enough for a step.
Expert InnerSlice(const Expert& expert, RowRange range);
int64_t InnerGranularity(const Expert& expert);

}  // namespace bellhop::moe
