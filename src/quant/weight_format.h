// The weight formats' names alone, for code that nvcc compiles; format.h says what they are.
#pragma once

#include <cstdint>

namespace bellhop::quant {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ8_1,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kQ8K,
  kIQ2XXS,
  kIQ2XS,
  kIQ2S,
  kIQ3XXS,
  kIQ3S,
  kIQ1S,
  kIQ1M,
  kIQ4NL,
  kIQ4XS,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kQ1_0,
  kQ2_0,
  // Planar formats of ONNX models (quant/planar.h): codes, scales and zero points in planes of their own.
  kInt4,
  kInt4Sm80,
  kInt3,
  kInt8,
  kInt8Sm80,
  kMxfp4Planar,
  kNvfp4Planar,
  kMxfp4KMajor,
  kNvfp4KMajor,
};
inline constexpr int kWeightFormatCount = static_cast<int>(WeightFormat::kNvfp4KMajor) + 1;

}  // namespace bellhop::quant
