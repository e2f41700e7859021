#include <array>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

// Byte offsets of the f16 fields of a block; unused entries are -1.
using HalfOffsets = std::array<int, 2>;

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
    case WeightFormat::kQ8K: return {-1, -1};
  }
  return {-1, -1};
}

bool HalfIsFinite(uint16_t bits) { return (bits & 0x7C00u) != 0x7C00u; }

bool BlockIsValid(WeightFormat format, const HalfOffsets& halves, const uint8_t* block) {
  for (int offset : halves) {
    if (offset >= 0 && !HalfIsFinite(Load<uint16_t>(block + offset))) return false;
  }
  switch (format) {
    case WeightFormat::kIQ1M: return HalfIsFinite(Iq1mScaleBits(block + Iq1mBlock::kScales));
    case WeightFormat::kMXFP4: return block[Mxfp4Block::kExponent] != 255;
    case WeightFormat::kQ8K: return (Load<uint32_t>(block + Q8KBlock::kD) & 0x7F800000u) != 0x7F800000u;
    default: return true;
  }
}

}  // namespace

Status ValidateRow(WeightFormat format, const std::byte* src, int64_t count) {
  const FormatTraits& traits = Traits(format);
  if (count < 0 || count % traits.block_elems != 0) {
    return InvalidArgument("a row of {} elements is not whole {} blocks; the row length must be a multiple of {}",
                           count, traits.name, traits.block_elems);
  }
  if (traits.block_elems == 1) return Status();
  const HalfOffsets halves = HalfFields(format);
  const int64_t blocks = count / traits.block_elems;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t offset = i * traits.block_bytes;
    if (!BlockIsValid(format, halves, Bytes(src) + offset)) {
      return Corrupt("{} block {} (byte {} of the row): the scale is NaN or Inf; the file is damaged", traits.name, i,
                     offset);
    }
  }
  return Status();
}

}  // namespace bellhop::quant
