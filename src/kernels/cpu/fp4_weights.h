// The sixteen weights of FP4 codes for each E8M0 scale: products that kernels look up instead of multiplying. A matrix
// uses a few neighbouring scales, so what is read of a table stays in L1.
#pragma once

#include <cstdint>

namespace bellhop::kernels {

struct Fp4Weights {
  alignas(64) float weight[256][16];
};
extern const Fp4Weights kFp4Weights;

// The same as bf16, in which they are exact: low and high bytes apart, for lookups by byte shuffles.
struct Fp4WeightBytes {
  struct alignas(32) Scale {
    uint8_t low[16], high[16];
  };
  Scale scale[256];
};
extern const Fp4WeightBytes kFp4WeightBytes;

}  // namespace bellhop::kernels
