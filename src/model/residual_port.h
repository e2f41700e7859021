// The ordinary residual connection: rms norm in, scaled addition out.
#pragma once

#include "model/stages.h"

namespace bellhop::model {

class PlainResidualPort final : public ResidualPort {
 public:
  PlainResidualPort(const float* norm, float epsilon, float scale) : norm_(norm), epsilon_(epsilon), scale_(scale) {}
  void Read(const StepContext& step, MatView<const float> residual, MatView<float> x) override;
  void Write(const StepContext& step, MatView<const float> y, MatView<float> residual) override;

 private:
  const float* norm_;  // [hidden]
  float epsilon_;
  float scale_;
};

}  // namespace bellhop::model
