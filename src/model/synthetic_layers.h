// A model of nothing but layers of routed experts, for benchmarks that hand it to a backend. Its routers are random, so
// that random rows choose experts uniformly; its mixers are as small as there can be, and nobody runs them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "manifest/manifest.h"
#include "model/spec.h"

namespace bellhop::model {

struct SyntheticShape {
  int64_t hidden = 0, inner = 0;
  int32_t layers = 1, experts = 1, used = 1;
  uint64_t seed = 1;
};

// Numbers [first, first + count) of an endless row of uniform ones between -1 and 1.
void FillUniform(uint64_t seed, int64_t first, int64_t count, float* to);

class SyntheticModel {
 public:
  explicit SyntheticModel(const SyntheticShape& shape);
  SyntheticModel(const SyntheticModel&) = delete;
  SyntheticModel& operator=(const SyntheticModel&) = delete;

  const manifest::Manifest& manifest() const { return manifest_; }
  const ModelSpec& spec() const { return spec_; }

 private:
  // An f32 matrix; the memory stays where it is.
  TensorIndex Add(const char* name, int64_t rows, int64_t cols, std::vector<float> values);

  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  manifest::Manifest manifest_;
  ModelSpec spec_;
};

}  // namespace bellhop::model
