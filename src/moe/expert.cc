#include "moe/expert.h"

#include <algorithm>
#include <numeric>

#include "quant/planar.h"

namespace bellhop::moe {
namespace {

bool IsPlainSwiGlu(const ActivationParams& p) {
  return p.alpha == 1 && p.beta == 0 && p.limit == std::numeric_limits<float>::infinity();
}

Status CheckShape(const char* name, const quant::QuantView& matrix, int64_t rows, int64_t cols) {
  if (matrix.rows == rows && matrix.cols == cols) return Status();
  return InvalidArgument("expert matrix {}: shape [{}, {}], expected [{}, {}]", name, matrix.rows, matrix.cols, rows,
                         cols);
}

}  // namespace

void ApplyActivation(const kernels::VecOps& ops, const ActivationParams& params, const float* gate, const float* up,
                     int64_t n, float* h) {
  switch (params.kind) {
    case ExpertActivation::kSwiGlu:
      if (IsPlainSwiGlu(params)) {
        ops.swiglu(gate, up, n, h);
      } else {
        ops.swiglu_clamped(gate, up, params.alpha, params.beta, params.limit, n, h);
      }
      break;
    case ExpertActivation::kGeGlu: ops.geglu(gate, up, n, h); break;
    case ExpertActivation::kSilu: ops.silu(gate, n, h); break;
    case ExpertActivation::kGelu: ops.gelu(gate, n, h); break;
    case ExpertActivation::kRelu: ops.relu(gate, n, h); break;
    case ExpertActivation::kIdentity:
      if (h != gate) std::copy_n(gate, n, h);
      break;
  }
}

void ApplyRounding(const kernels::VecOps& ops, Rounding rounding, int64_t n, float* x) {
  switch (rounding) {
    case Rounding::kNone: break;
    case Rounding::kF16: ops.round_f16(x, n, x); break;
    case Rounding::kBF16: ops.round_bf16(x, n, x); break;
  }
}

uint64_t Expert::bytes() const {
  const uint64_t both = quant::ViewBytes(gate.weights) + quant::ViewBytes(down.weights);
  return layout == store::Fc1Layout::kSeparate ? both + quant::ViewBytes(up.weights) : both;
}

Result<Expert> MakeExpert(const store::ExpertView& view, const ActivationParams& activation, const sys::CpuCaps& caps,
                          std::vector<std::string>* notes) {
  const bool has_up = view.fc1 != store::Fc1Layout::kSingle;
  if (has_up != HasUp(activation.kind)) {
    return InvalidArgument("the experts have {} of fc1, but their activation takes {}",
                           has_up ? "gate and up halves" : "one half", has_up ? "one" : "both");
  }
  const int64_t inner = view.down.cols, hidden = view.down.rows;
  const bool interleaved = view.fc1 == store::Fc1Layout::kInterleaved;
  BELLHOP_TRY(CheckShape("gate", view.gate, interleaved ? 2 * inner : inner, hidden));
  Expert expert;
  expert.layout = view.fc1;
  BELLHOP_TRY_ASSIGN(expert.gate, MakeLinear(view.gate, view.gate_bias, view.gate_scale, caps, notes));
  if (view.fc1 == store::Fc1Layout::kSeparate) {
    BELLHOP_TRY(CheckShape("up", view.up, inner, hidden));
    BELLHOP_TRY_ASSIGN(expert.up, MakeLinear(view.up, view.up_bias, view.up_scale, caps, notes));
  }
  BELLHOP_TRY_ASSIGN(expert.down, MakeLinear(view.down, view.down_bias, view.down_scale, caps, notes));
  for (Linear* linear : {&expert.gate, &expert.up, &expert.down}) linear->terms = 1;
  return expert;
}

Expert InnerSlice(const Expert& expert, RowRange range) {
  auto rows = [](const Linear& linear, int64_t begin, int64_t end) {
    Linear part = linear;
    part.weights = quant::RowSlice(linear.weights, begin, end);
    if (linear.bias != nullptr) part.bias = linear.bias + begin;
    return part;
  };
  Expert part = expert;
  const int64_t per_inner = expert.layout == store::Fc1Layout::kInterleaved ? 2 : 1;
  part.gate = rows(expert.gate, per_inner * range.begin, per_inner * range.end);
  if (expert.layout == store::Fc1Layout::kSeparate) part.up = rows(expert.up, range.begin, range.end);
  part.down.weights = quant::ColumnSlice(expert.down.weights, range.begin, range.end);
  if (range.begin > 0) part.down.bias = nullptr;
  return part;
}

int64_t InnerGranularity(const Expert& expert) {
  // Rows of fc1 come in groups of four at most (SM80 layouts).
  return std::lcm(int64_t{4}, quant::ColumnGranularity(expert.down.weights));
}

}  // namespace bellhop::moe
