#include "model/residual_port.h"

namespace bellhop::model {

void PlainResidualPort::Read(const StepContext& step, MatView<const float> residual, MatView<float> x) {
  step.cpu->pool->ParallelFor(x.rows, 4, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) {
      step.cpu->ops->rms_norm(residual.Row(m), norm_, epsilon_, x.cols, x.Row(m));
    }
  });
}

void PlainResidualPort::Write(const StepContext& step, MatView<const float> y, MatView<float> residual) {
  step.cpu->pool->ParallelFor(y.rows, 4, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) {
      if (scale_ == 1) {
        step.cpu->ops->add(y.Row(m), y.cols, residual.Row(m));
      } else {
        step.cpu->ops->add_scaled(y.Row(m), scale_, y.cols, residual.Row(m));
      }
    }
  });
}

}  // namespace bellhop::model
