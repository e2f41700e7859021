#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/half_fields.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

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
