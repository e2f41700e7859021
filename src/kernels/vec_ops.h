// Elementwise and row operations of the decode class. Every ISA gives the same bits: sums run in the canonical lane
// order (lanes.h, plain formats), exp is one polynomial evaluated with explicit fma everywhere. A result that is NaN
// is NaN in every ISA; its sign and payload are not part of the contract (except in the conversions from half types).
//
// exp(x) = 2^n * p(r): n = x * log2(e) rounded to nearest even, r = x - n * ln 2 in two fma steps, p of degree 6; the
// scale is applied in two multiplications, so that results below 2^-126 are rounded once, as IEEE asks.
//
// Every function takes any n >= 0 and touches exactly the stated elements.
#pragma once

#include <cstdint>
#include <span>

#include "sys/cpu_features.h"

namespace bellhop::kernels {

struct VecOps {
  const char* name;
  sys::Isa isa;

  // y[i] = x[i] * (1 / sqrt(mean(x^2) + epsilon)) * w[i]; w null: no weight. y may be x.
  void (*rms_norm)(const float* x, const float* w, float epsilon, int64_t n, float* y) noexcept;
  // y[i] = exp(x[i]): relative error below 2e-7 on [-87, 88]; underflows to 0, overflows to Inf; NaN stays NaN.
  // y may be x.
  void (*exp)(const float* x, int64_t n, float* y) noexcept;
  // In place softmax over n values: exp(x[i] - max) * (1 / sum). `sink`: an extra logit in the denominator that has no
  // entry, added after the entries; null: none. A NaN or +Inf anywhere, or nothing above -Inf, makes every result NaN:
  // such a row is a numeric fault for the caller to report.
  void (*softmax)(float* x, int64_t n, const float* sink) noexcept;
  // y[i] = sigmoid(x[i]) = 1 / (1 + exp(-x[i])). y may be x.
  void (*sigmoid)(const float* x, int64_t n, float* y) noexcept;
  // y[i] = silu(gate[i]) * up[i], silu(g) = g / (1 + exp(-g)), NaN at -Inf. y may be gate or up.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* y) noexcept;
  // g = min(gate, limit), u = clamp(up, -limit, limit), y = g * sigmoid(alpha * g) * (u + beta); gpt-oss has beta 1.
  // y may be gate or up.
  void (*swiglu_clamped)(const float* gate, const float* up, float alpha, float beta, float limit, int64_t n,
                         float* y) noexcept;
  // y[i] = gelu(gate[i]) * up[i], tanh form, through 0.5 * (1 + tanh(z)) = sigmoid(2z); NaN at -Inf. y may be gate or
  // up.
  void (*geglu)(const float* gate, const float* up, int64_t n, float* y) noexcept;
  // The activations alone. silu, gelu: as in swiglu and geglu; relu: x > 0 or NaN ? x : 0, and -0 stays. y may be x.
  void (*silu)(const float* x, int64_t n, float* y) noexcept;
  void (*gelu)(const float* x, int64_t n, float* y) noexcept;
  void (*relu)(const float* x, int64_t n, float* y) noexcept;
  // n pairs: even[i] = x[2i], odd[i] = x[2i + 1]. The three do not overlap.
  void (*deinterleave)(const float* x, int64_t n, float* even, float* odd) noexcept;
  void (*add)(const float* x, int64_t n, float* y) noexcept;                       // y += x
  void (*scale)(float factor, int64_t n, float* y) noexcept;                       // y *= factor
  void (*add_scaled)(const float* x, float factor, int64_t n, float* y) noexcept;  // y = fma(factor, x, y)
  // Rotates pairs (a, b) of one head: a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin).
  // cos_sin[2j], cos_sin[2j+1] = cos, sin of pair j < n_rot/2 (attention factor applied).
  void (*rope_norm)(float* x, const float* cos_sin, int64_t n_rot) noexcept;  // pairs (2j, 2j+1)
  void (*rope_neox)(float* x, const float* cos_sin, int64_t n_rot) noexcept;  // pairs (j, j + n_rot/2)
  // Row conversions, bit-exact with quant/half.h, NaN included.
  void (*f32_to_f16)(const float* x, int64_t n, uint16_t* y) noexcept;
  void (*f16_to_f32)(const uint16_t* x, int64_t n, float* y) noexcept;
  void (*f32_to_bf16)(const float* x, int64_t n, uint16_t* y) noexcept;
  void (*bf16_to_f32)(const uint16_t* x, int64_t n, float* y) noexcept;
  // y[i] = x[i] rounded to bf16 (or f16), kept as f32. y may be x.
  void (*round_bf16)(const float* x, int64_t n, float* y) noexcept;
  void (*round_f16)(const float* x, int64_t n, float* y) noexcept;
};

std::span<const VecOps> AllVecOps();  // one table per ISA compiled in, worst to best
// The best table that `caps` allows. Pure.
const VecOps& SelectVecOps(const sys::CpuCaps& caps);

}  // namespace bellhop::kernels
