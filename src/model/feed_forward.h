// The feed-forward parts: dense SwiGLU, and routed experts with an optional shared expert.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "model/spec.h"
#include "model/stages.h"
#include "model/weights.h"

namespace bellhop::model {

class DenseFeedForward final : public FeedForward {
 public:
  static Result<std::unique_ptr<DenseFeedForward>> Create(const DenseFfnSpec& spec,
                                                          const moe::ActivationParams& activation,
                                                          WeightBinder* binder);
  void Forward(const StepContext& step, MatView<const float> x, MatView<float> y) override;

 private:
  explicit DenseFeedForward(const moe::ActivationParams& activation) : activation_(activation) {}
  moe::ActivationParams activation_;
  moe::Linear gate_, up_, down_;
};

class MoeFeedForward final : public FeedForward {
 public:
  static Result<std::unique_ptr<MoeFeedForward>> Create(const MoeSpec& spec, LayerId layer,
                                                        const moe::ActivationParams& activation, WeightBinder* binder);
  void Forward(const StepContext& step, MatView<const float> x, MatView<float> y) override;

 private:
  explicit MoeFeedForward(LayerId layer) : layer_(layer) {}
  LayerId layer_;
  moe::RouterParams params_;
  moe::Linear router_;
  std::unique_ptr<DenseFeedForward> shared_;
  std::optional<moe::Linear> shared_gate_;
};

}  // namespace bellhop::model
