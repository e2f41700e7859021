// Turns the tensor references of a spec into matrices with kernels chosen, and small vectors into f32 arrays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "model/spec.h"
#include "moe/linear.h"

namespace bellhop::model {

// Owns the decoded vectors; matrices stay in the mapped file. Must outlive what it bound.
class WeightBinder {
 public:
  WeightBinder(const manifest::Manifest& manifest, const sys::CpuCaps& caps, std::vector<std::string>* notes)
      : manifest_(manifest), caps_(caps), notes_(notes) {}

  Result<moe::Linear> Bind(const LinearSpec& spec);
  // [elements] f32 values; null for an absent tensor.
  Result<const float*> BindVector(TensorIndex tensor, int64_t elements);
  // Widest input of a bound matrix.
  int64_t max_cols() const { return max_cols_; }

 private:
  const manifest::Manifest& manifest_;
  const sys::CpuCaps& caps_;
  std::vector<std::string>* notes_;
  std::vector<std::vector<float>> vectors_;
  int64_t max_cols_ = 0;
};

}  // namespace bellhop::model
