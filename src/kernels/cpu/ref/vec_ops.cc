// The reference: scalar, written to be read, and right on a CPU without FMA (std::fma rounds once everywhere).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/vec_ops_constants.h"
#include "kernels/cpu/vec_ops_isa.h"
#include "kernels/lanes.h"
#include "quant/half.h"

namespace bellhop::kernels::ref {
namespace {

// Sixteen partial sums and their reduction tree (lanes.h).
struct Lanes {
  float a[kLanes] = {};

  float Reduce() const {
    float s[kLanes];
    std::copy(a, a + kLanes, s);
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) s[i] += s[i + width];
    }
    return s[0];
  }
};

float PowerOfTwo(int32_t n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

float Exp(float x) {
  if (std::isnan(x)) return x;
  x = std::min(std::max(x, kExpLow), kExpHigh);
  const float t = std::fma(x, kLog2E, kRoundMagic);
  const float n = t - kRoundMagic;
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float p = kExpC6;
  p = std::fma(p, r, kExpC5);
  p = std::fma(p, r, kExpC4);
  p = std::fma(p, r, kExpC3);
  p = std::fma(p, r, kExpC2);
  p = std::fma(p, r * r, r) + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(t) - kRoundMagicBits;
  const int32_t half = exponent >> 1;
  return p * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}

// x * sigmoid(z).
float Gated(float x, float z) { return x / (1.0f + Exp(-z)); }

// The comparisons let a NaN argument through.
float ClampAbove(float x, float limit) { return limit < x ? limit : x; }
float ClampBelow(float x, float limit) { return limit > x ? limit : x; }

void RmsNorm(const float* x, const float* w, float epsilon, int64_t n, float* y) noexcept {
  Lanes sum;
  for (int64_t i = 0; i < n; ++i) sum.a[i % kLanes] = std::fma(x[i], x[i], sum.a[i % kLanes]);
  const float r = 1.0f / std::sqrt(sum.Reduce() / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = w != nullptr ? x[i] * r * w[i] : x[i] * r;
}

void ExpRow(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = Exp(x[i]);
}

void Softmax(float* x, int64_t n, const float* sink) noexcept {
  float max = sink != nullptr ? *sink : -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  Lanes sum;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = Exp(x[i] - max);
    sum.a[i % kLanes] += x[i];
  }
  float total = sum.Reduce();
  if (sink != nullptr) total += Exp(*sink - max);
  const float inverse = 1.0f / total;
  for (int64_t i = 0; i < n; ++i) x[i] *= inverse;
}

void Sigmoid(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = Gated(1.0f, x[i]);
}

void Swiglu(const float* gate, const float* up, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = Gated(gate[i], gate[i]) * up[i];
}

void SwigluClamped(const float* gate, const float* up, float alpha, float beta, float limit, int64_t n,
                   float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    const float g = ClampAbove(gate[i], limit);
    const float u = ClampBelow(ClampAbove(up[i], limit), -limit);
    y[i] = Gated(g, alpha * g) * (u + beta);
  }
}

float GeluOf(float x) { return Gated(x, x * std::fma(kGeluCubic, x * x, kGeluLinear)); }

void Geglu(const float* gate, const float* up, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = GeluOf(gate[i]) * up[i];
}

void Silu(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = Gated(x[i], x[i]);
}

void Gelu(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = GeluOf(x[i]);
}

void Relu(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = ClampBelow(x[i], 0.0f);
}

void Deinterleave(const float* x, int64_t n, float* even, float* odd) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    even[i] = x[2 * i];
    odd[i] = x[2 * i + 1];
  }
}

void Add(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void Scale(float factor, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] *= factor;
}

void AddScaled(const float* x, float factor, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(factor, x[i], y[i]);
}

void Rotate(float* a, float* b, float cosine, float sine) {
  const float old_a = *a;
  *a = std::fma(old_a, cosine, -(*b * sine));
  *b = std::fma(*b, cosine, old_a * sine);
}

void RopeNorm(float* x, const float* cos_sin, int64_t n_rot) noexcept {
  for (int64_t j = 0; j < n_rot / 2; ++j) Rotate(&x[2 * j], &x[2 * j + 1], cos_sin[2 * j], cos_sin[2 * j + 1]);
}

void RopeNeox(float* x, const float* cos_sin, int64_t n_rot) noexcept {
  const int64_t half = n_rot / 2;
  for (int64_t j = 0; j < half; ++j) Rotate(&x[j], &x[j + half], cos_sin[2 * j], cos_sin[2 * j + 1]);
}

void F32ToF16(const float* x, int64_t n, uint16_t* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = quant::F32ToF16(x[i]);
}

void F16ToF32(const uint16_t* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = quant::F16ToF32(x[i]);
}

void F32ToBf16(const float* x, int64_t n, uint16_t* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = quant::F32ToBf16(x[i]);
}

void Bf16ToF32(const uint16_t* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = quant::Bf16ToF32(x[i]);
}

void RoundBf16(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = quant::Bf16ToF32(quant::F32ToBf16(x[i]));
}

void RoundF16(const float* x, int64_t n, float* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = quant::F16ToF32(quant::F32ToF16(x[i]));
}

}  // namespace

extern constinit const VecOps kVecOps = {
    .name = "reference",
    .isa = sys::Isa::kReference,
    .rms_norm = RmsNorm,
    .exp = ExpRow,
    .softmax = Softmax,
    .sigmoid = Sigmoid,
    .swiglu = Swiglu,
    .swiglu_clamped = SwigluClamped,
    .geglu = Geglu,
    .silu = Silu,
    .gelu = Gelu,
    .relu = Relu,
    .deinterleave = Deinterleave,
    .add = Add,
    .scale = Scale,
    .add_scaled = AddScaled,
    .rope_norm = RopeNorm,
    .rope_neox = RopeNeox,
    .f32_to_f16 = F32ToF16,
    .f16_to_f32 = F16ToF32,
    .f32_to_bf16 = F32ToBf16,
    .bf16_to_f32 = Bf16ToF32,
    .round_bf16 = RoundBf16,
    .round_f16 = RoundF16,
};

}  // namespace bellhop::kernels::ref
