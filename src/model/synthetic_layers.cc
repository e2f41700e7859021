#include "model/synthetic_layers.h"

#include <cmath>
#include <utility>

namespace bellhop::model {
namespace {

constexpr int64_t kMixerDim = 16;
// What experts add to the residual is too little to be seen there: all layers get rows that are as random as the first
// layer's.
constexpr float kPortScale = 0x1p-20f;

// SplitMix64 of a counter.
uint64_t Scramble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

void FillUniform(uint64_t seed, int64_t first, int64_t count, float* to) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  const uint64_t begin = Scramble(seed * kGolden + 1);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = Scramble(begin + static_cast<uint64_t>(first + i) * kGolden);
    to[i] = static_cast<float>(static_cast<int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
  }
}

TensorIndex SyntheticModel::Add(const char* name, int64_t rows, int64_t cols, std::vector<float> values) {
  memory_.push_back(std::make_unique<std::vector<float>>(std::move(values)));
  const std::vector<float>& held = *memory_.back();
  manifest::Tensor tensor;
  tensor.name = name;
  tensor.n_dims = 2;
  tensor.dims = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), 1, 1};
  tensor.bytes = held.size() * sizeof(float);
  tensor.data = {reinterpret_cast<const std::byte*>(held.data()), tensor.bytes};
  manifest_.tensors.push_back(std::move(tensor));
  return static_cast<TensorIndex>(manifest_.tensors.size()) - 1;
}

SyntheticModel::SyntheticModel(const SyntheticShape& shape) {
  const auto zeros = [](int64_t count) { return std::vector<float>(static_cast<size_t>(count)); };
  const NormSpec norm{Add("norm", 1, shape.hidden, std::vector<float>(static_cast<size_t>(shape.hidden), 1.0f)), 1e-6f};
  const TensorIndex in = Add("mixer", kMixerDim, shape.hidden, zeros(kMixerDim * shape.hidden));
  const TensorIndex out = Add("mixer output", shape.hidden, kMixerDim, zeros(kMixerDim * shape.hidden));
  const LinearSpec narrow{.weight = in, .rows = kMixerDim, .cols = shape.hidden};

  AttentionSpec mixer;
  mixer.heads = mixer.kv_heads = 1;
  mixer.key_dim = mixer.value_dim = static_cast<int32_t>(kMixerDim);
  mixer.q = mixer.k = mixer.v = narrow;
  mixer.output = {.weight = out, .rows = shape.hidden, .cols = kMixerDim};
  mixer.scale = 1;

  spec_.architecture = "synthetic";
  spec_.hidden = shape.hidden;
  spec_.vocab = kMixerDim;
  spec_.context = 1;
  spec_.output_norm = norm;
  spec_.head = narrow;
  // Scores of rows of norm 1 an element have a variance of 1.
  const float scale = std::sqrt(3.0f / static_cast<float>(shape.hidden));
  const int64_t weights = shape.experts * shape.hidden;
  for (int32_t l = 0; l < shape.layers; ++l) {
    std::vector<float> scores(static_cast<size_t>(weights));
    FillUniform(shape.seed, l * weights, weights, scores.data());
    for (float& w : scores) w *= scale;
    MoeSpec moe;
    moe.router = {.weight = Add("router", shape.experts, shape.hidden, std::move(scores)),
                  .rows = shape.experts,
                  .cols = shape.hidden};
    moe.normalise = true;
    moe.experts = shape.experts;
    moe.used = shape.used;
    moe.inner = shape.inner;
    spec_.layers.push_back({.mixer_port = ResidualPortSpec{norm, 1},
                            .mixer = mixer,
                            .feed_forward_port = ResidualPortSpec{norm, kPortScale},
                            .feed_forward = moe});
  }
}

}  // namespace bellhop::model
