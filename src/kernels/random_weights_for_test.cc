#include "kernels/random_weights_for_test.h"

#include "quant/random_weights.h"

namespace bellhop::kernels {

void FillRandomWeights(quant::WeightFormat format, int64_t cols, ScaleRange scales, std::mt19937_64& random,
                       std::byte* row) {
  const bool any = scales == ScaleRange::kAnyBits;
  quant::FillRandomBlocks(format, cols, any ? quant::RandomScales::kAnyBits : quant::RandomScales::kModerate, random(),
                          row);
}

}  // namespace bellhop::kernels
