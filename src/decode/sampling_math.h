// The sampler's arithmetic, the same bits on host and device and in any order of summation: weights are integers, and
// their exponential is made here of single operations, because libraries differ in its last bit.
#pragma once

#include <cstdint>

#include "cuda/signal_ops.h"

namespace bellhop::decode {

constexpr int kWeightBits = 42;                // a weight of 1 is 2^42: what is 13 decades below the likeliest counts 0
constexpr int32_t kMaxSampledVocab = 1 << 21;  // so that their sum fits 63 bits

// exp(x) for x <= 0, rounded to units of 2^-kWeightBits. NaN counts 0.
BELLHOP_HOST_DEVICE inline uint64_t SampleWeight(double x) {
  if (!(x > -30.0)) return 0;              // below half a unit
  constexpr double kToInteger = 0x1.8p52;  // added and subtracted: rounds to the nearest integer
  const double n = (x * 0x1.71547652b82fep+0 + kToInteger) - kToInteger;
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;  // |r| <= ln(2) / 2
  double p = 1.0 / 479001600;                                              // Taylor: what is left out is below 2^-52
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const int shift = 52 - kWeightBits - static_cast<int>(n);
  return (static_cast<uint64_t>(p * 0x1p52) + (uint64_t{1} << (shift - 1))) >> shift;
}

// What top_p < 1 asks of a sum of weights; at least 1, so that the likeliest token always counts.
BELLHOP_HOST_DEVICE inline uint64_t NeededWeight(float top_p, uint64_t total) {
  const double product = static_cast<double>(top_p) * static_cast<double>(total);
  const auto below = static_cast<uint64_t>(product);
  const uint64_t needed = below + (static_cast<double>(below) < product ? 1 : 0);
  return needed > 0 ? needed : 1;
}

// Drawn is the first token at which the running sum exceeds this: uniform * total, rounded down. `uniform` is a
// multiple of 2^-53 below 1.
BELLHOP_HOST_DEVICE inline uint64_t DrawTarget(double uniform, uint64_t total) {
  const auto bits = static_cast<uint64_t>(uniform * 0x1p53);
  const uint64_t low = (bits & 0xffffffffu) * (total & 0xffffffffu);
  const uint64_t middle_a = (bits >> 32) * (total & 0xffffffffu) + (low >> 32);
  const uint64_t middle_b = (bits & 0xffffffffu) * (total >> 32) + (middle_a & 0xffffffffu);
  const uint64_t high = (bits >> 32) * (total >> 32) + (middle_a >> 32) + (middle_b >> 32);
  const uint64_t low_word = middle_b << 32 | (low & 0xffffffffu);
  return high << 11 | low_word >> 53;
}

}  // namespace bellhop::decode
