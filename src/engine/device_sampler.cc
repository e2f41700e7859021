#include "engine/device_sampler.h"

namespace bellhop::engine {

Result<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(model::StepModel& model, int32_t rows) {
  if (model.device() == nullptr) return std::unique_ptr<DeviceSampler>();
  const auto vocab = static_cast<int32_t>(model.spec().vocab);
  BELLHOP_TRY_ASSIGN(auto made, decode::RowSampler::Create(model.device(), rows, vocab));
  return std::unique_ptr<DeviceSampler>(new DeviceSampler(std::move(made)));
}

Result<TokenId> DeviceSampler::Token(int32_t row) const {
  const decode::DeviceSample& sample = rows_->result(row);
  if (sample.id >= 0) return sample.id;
  return Internal("numeric fault: biases and penalties leave no token to draw; check logit_bias");
}

}  // namespace bellhop::engine
