#include "model/weights.h"

#include <algorithm>

#include "store/tensor_view.h"

namespace bellhop::model {

Result<const float*> WeightBinder::BindVector(TensorIndex tensor, int64_t elements) {
  if (tensor < 0) return static_cast<const float*>(nullptr);
  BELLHOP_TRY_ASSIGN(std::vector<float> values, store::DecodeSmall(manifest_.tensors[static_cast<size_t>(tensor)],
                                                                   static_cast<uint64_t>(elements)));
  vectors_.push_back(std::move(values));
  return static_cast<const float*>(vectors_.back().data());
}

Result<moe::Linear> WeightBinder::Bind(const LinearSpec& spec) {
  const manifest::Tensor& tensor = manifest_.tensors[static_cast<size_t>(spec.weight)];
  BELLHOP_TRY_ASSIGN(const quant::QuantView view, store::MatrixView(tensor, spec.first_row, spec.rows));
  const float* bias = nullptr;
  if (spec.bias >= 0) {
    const auto elements = static_cast<int64_t>(manifest_.tensors[static_cast<size_t>(spec.bias)].elements());
    BELLHOP_TRY_ASSIGN(bias, BindVector(spec.bias, elements));
    bias += spec.first_bias;
  }
  float scale = 1;
  if (spec.scale >= 0) {
    BELLHOP_TRY_ASSIGN(const float* value, BindVector(spec.scale, 1));
    scale = *value;
  }
  max_cols_ = std::max(max_cols_, view.cols);
  auto linear = moe::MakeLinear(view, bias, scale, caps_, notes_);
  if (!linear.ok()) return linear.status().WithContext("tensor " + tensor.name);
  return linear;
}

}  // namespace bellhop::model
