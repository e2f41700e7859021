#include "kernels/cpu/fp4_weights.h"

#include <bit>

#include "quant/planar.h"

namespace bellhop::kernels {
namespace {

Fp4Weights Products() {
  Fp4Weights products;
  for (int s = 0; s < 256; ++s) {
    for (int code = 0; code < 16; ++code) {
      products.weight[s][code] = quant::kE2m1[code] * quant::kE8m0[static_cast<size_t>(s)];
    }
  }
  return products;
}

Fp4WeightBytes ProductBytes() {
  Fp4WeightBytes bytes;
  for (int s = 0; s < 256; ++s) {
    for (int code = 0; code < 16; ++code) {
      const auto bits = std::bit_cast<uint32_t>(quant::kE2m1[code] * quant::kE8m0[static_cast<size_t>(s)]);
      bytes.scale[s].low[code] = static_cast<uint8_t>(bits >> 16);
      bytes.scale[s].high[code] = static_cast<uint8_t>(bits >> 24);
    }
  }
  return bytes;
}

}  // namespace

// Made when the program is loaded, from constants.
const Fp4Weights kFp4Weights = Products();
const Fp4WeightBytes kFp4WeightBytes = ProductBytes();

}  // namespace bellhop::kernels
