#include "model/feed_forward.h"

#include <array>

namespace bellhop::model {

Result<std::unique_ptr<DenseFeedForward>> DenseFeedForward::Create(const DenseFfnSpec& spec,
                                                                   const moe::ActivationParams& activation,
                                                                   WeightBinder* binder) {
  auto ffn = std::unique_ptr<DenseFeedForward>(new DenseFeedForward(activation));
  BELLHOP_TRY_ASSIGN(ffn->gate_, binder->Bind(spec.gate));
  BELLHOP_TRY_ASSIGN(ffn->up_, binder->Bind(spec.up));
  BELLHOP_TRY_ASSIGN(ffn->down_, binder->Bind(spec.down));
  return ffn;
}

void DenseFeedForward::Forward(const StepContext& step, MatView<const float> x, MatView<float> y) {
  const int64_t rows = step.row_count(), inner = gate_.rows();
  const moe::CpuContext& cpu = *step.cpu;
  const std::array<moe::LinearJob, 2> fc1 = {
      moe::LinearJob{&gate_, {step.gate, rows, inner, inner}},
      moe::LinearJob{&up_, {step.up, rows, inner, inner}},
  };
  moe::RunLinears(cpu, step.numeric_class, {fc1.data(), fc1.size()}, x);
  cpu.pool->ParallelFor(rows, 4, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) {
      float* gate = step.gate + m * inner;
      moe::ApplyActivation(*cpu.ops, activation_, gate, step.up + m * inner, inner, gate);
    }
  });
  const moe::LinearJob fc2{&down_, y};
  moe::RunLinears(cpu, step.numeric_class, {&fc2, 1}, {step.gate, rows, inner, inner});
}

Result<std::unique_ptr<MoeFeedForward>> MoeFeedForward::Create(const MoeSpec& spec, LayerId layer,
                                                               const moe::ActivationParams& activation,
                                                               WeightBinder* binder) {
  auto ffn = std::unique_ptr<MoeFeedForward>(new MoeFeedForward(layer));
  BELLHOP_TRY_ASSIGN(ffn->router_, binder->Bind(spec.router));
  ffn->params_ = {.gating = spec.gating,
                  .experts = spec.experts,
                  .used = spec.used,
                  .normalise = spec.normalise,
                  .weights_scale = spec.weights_scale,
                  .groups = spec.groups,
                  .groups_used = spec.groups_used};
  BELLHOP_TRY_ASSIGN(ffn->params_.selection_bias, binder->BindVector(spec.selection_bias, spec.experts));
  if (spec.shared) {
    BELLHOP_TRY_ASSIGN(ffn->shared_, DenseFeedForward::Create(*spec.shared, activation, binder));
  }
  if (spec.shared_gate) {
    BELLHOP_TRY_ASSIGN(ffn->shared_gate_, binder->Bind(*spec.shared_gate));
  }
  return ffn;
}

void MoeFeedForward::Forward(const StepContext& step, MatView<const float> x, MatView<float> y) {
  const moe::CpuContext& cpu = *step.cpu;
  step.moe->Run(layer_, step.numeric_class, router_, params_, x, y, step.bad_rows);
  if (shared_ == nullptr) return;

  const int64_t rows = step.row_count(), hidden = y.cols;
  const MatView<float> shared{step.extra, rows, hidden, hidden};
  shared_->Forward(step, x, shared);
  if (shared_gate_) {
    const moe::LinearJob gate{&*shared_gate_, {step.gate, rows, 1, 1}};
    moe::RunLinears(cpu, moe::NumericClass::kDecode, {&gate, 1}, x);
    cpu.ops->sigmoid(step.gate, rows, step.gate);
  }
  cpu.pool->ParallelFor(rows, 4, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) {
      cpu.ops->add_scaled(shared.Row(m), shared_gate_ ? step.gate[m] : 1.0f, hidden, y.Row(m));
    }
  });
}

}  // namespace bellhop::model
