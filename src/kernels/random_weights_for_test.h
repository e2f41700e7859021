// Test support: random blocks of every weight format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "quant/format.h"

namespace bellhop::kernels {

enum class ScaleRange {
  kModerate,  // block scales of magnitude 2^-9 to 2^-3, either sign: products stay finite and normal
  kAnyBits,   // arbitrary bytes
};

// Fills `cols` elements (whole blocks) at `row`.
void FillRandomWeights(quant::WeightFormat format, int64_t cols, ScaleRange scales, std::mt19937_64& random,
                       std::byte* row);

}  // namespace bellhop::kernels
