#include "quant/half_fields.h"

#include "quant/blocks.h"

namespace bellhop::quant {

HalfOffsets HalfFields(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0: return {Q4_0Block::kD, -1};
    case WeightFormat::kQ4_1: return {Q4_1Block::kD, Q4_1Block::kM};
    case WeightFormat::kQ5_0: return {Q5_0Block::kD, -1};
    case WeightFormat::kQ5_1: return {Q5_1Block::kD, Q5_1Block::kM};
    case WeightFormat::kQ8_0: return {Q8_0Block::kD, -1};
    case WeightFormat::kQ8_1: return {Q8_1Block::kD, Q8_1Block::kSum};
    case WeightFormat::kQ2K: return {Q2KBlock::kD, Q2KBlock::kDmin};
    case WeightFormat::kQ3K: return {Q3KBlock::kD, -1};
    case WeightFormat::kQ4K: return {Q4KBlock::kD, Q4KBlock::kDmin};
    case WeightFormat::kQ5K: return {Q5KBlock::kD, Q5KBlock::kDmin};
    case WeightFormat::kQ6K: return {Q6KBlock::kD, -1};
    case WeightFormat::kIQ2XXS: return {Iq2xxsBlock::kD, -1};
    case WeightFormat::kIQ2XS: return {Iq2xsBlock::kD, -1};
    case WeightFormat::kIQ2S: return {Iq2sBlock::kD, -1};
    case WeightFormat::kIQ3XXS: return {Iq3xxsBlock::kD, -1};
    case WeightFormat::kIQ3S: return {Iq3sBlock::kD, -1};
    case WeightFormat::kIQ1S: return {Iq1sBlock::kD, -1};
    case WeightFormat::kIQ4NL: return {Q4_0Block::kD, -1};
    case WeightFormat::kIQ4XS: return {Iq4xsBlock::kD, -1};
    case WeightFormat::kTQ1_0: return {Tq1_0Block::kD, -1};
    case WeightFormat::kTQ2_0: return {Tq2_0Block::kD, -1};
    case WeightFormat::kQ1_0: return {Q1_0Block::kD, -1};
    case WeightFormat::kQ2_0: return {Q2_0Block::kD, -1};
    // Plain numbers have no scale; NVFP4 scales have no invalid code. The other three are checked on their own.
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
    case WeightFormat::kF64:
    case WeightFormat::kI8:
    case WeightFormat::kI16:
    case WeightFormat::kI32:
    case WeightFormat::kI64:
    case WeightFormat::kNVFP4:
    case WeightFormat::kIQ1M:
    case WeightFormat::kMXFP4:
    case WeightFormat::kQ8K:
    // Planar formats have no blocks.
    case WeightFormat::kInt4:
    case WeightFormat::kInt4Sm80:
    case WeightFormat::kInt3:
    case WeightFormat::kInt8:
    case WeightFormat::kInt8Sm80:
    case WeightFormat::kMxfp4Planar:
    case WeightFormat::kNvfp4Planar:
    case WeightFormat::kMxfp4KMajor:
    case WeightFormat::kNvfp4KMajor: return {-1, -1};
  }
  return {-1, -1};
}

}  // namespace bellhop::quant
