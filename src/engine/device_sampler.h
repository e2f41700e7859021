// Sampling behind a step, for models whose logits are on a GPU: decode's sampler as model/ knows it.
#pragma once

#include <memory>
#include <utility>

#include "decode/cuda/row_sampler.h"
#include "model/step_model.h"

namespace bellhop::engine {

class DeviceSampler final : public model::StepSampler {
 public:
  // Null for models whose logits are in host memory. `rows`: of a step at most.
  static Result<std::unique_ptr<DeviceSampler>> Create(model::StepModel& model, int32_t rows);

  // Rows of the next step are set here.
  decode::RowSampler& rows() { return *rows_; }
  // Of the last step, which has succeeded. kInternal: a row whose biases and penalties leave no token.
  Result<TokenId> Token(int32_t row) const;

  Status Submit(float* logits, int64_t stride, int32_t rows, const cuda::Stream& stream) override {
    return rows_->Submit(logits, stride, rows, stream);
  }
  bool IsFault(int32_t row) const override { return (rows_->result(row).flags & decode::kSampleNoLogprob) != 0; }

 private:
  explicit DeviceSampler(std::unique_ptr<decode::RowSampler> rows) : rows_(std::move(rows)) {}
  std::unique_ptr<decode::RowSampler> rows_;
};

}  // namespace bellhop::engine
