// One block of quantised weights taken apart as lanes.h needs it: value[e] = scale[g] * code[e] - min[g] with
// g = e / scale_group. Scalar and written to be read.
#pragma once

#include <cstddef>

#include "quant/format.h"

namespace bellhop::kernels {

inline constexpr int kMaxBlockElems = 256;
inline constexpr int kMaxBlockGroups = 16;

struct BlockCodes {
  float code[kMaxBlockElems];
  float scale[kMaxBlockGroups];
  float min[kMaxBlockGroups];  // set for formats whose traits say has_min
};

// `format` has scales (not F32, F16, BF16) and holds weights.
void DecodeBlockCodes(quant::WeightFormat format, const std::byte* block, BlockCodes* out);

}  // namespace bellhop::kernels
