#include "kernels/random_weights_for_test.h"

#include <cstring>
#include <vector>

#include "quant/blocks.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

// Where a block keeps its half scales and minima.
std::vector<int> HalfOffsets(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
    case WeightFormat::kIQ4NL: return {quant::Q4_0Block::kD};
    case WeightFormat::kQ4_1: return {quant::Q4_1Block::kD, quant::Q4_1Block::kM};
    case WeightFormat::kQ5_0: return {quant::Q5_0Block::kD};
    case WeightFormat::kQ5_1: return {quant::Q5_1Block::kD, quant::Q5_1Block::kM};
    case WeightFormat::kQ8_0: return {quant::Q8_0Block::kD};
    case WeightFormat::kQ2K: return {quant::Q2KBlock::kD, quant::Q2KBlock::kDmin};
    case WeightFormat::kQ3K: return {quant::Q3KBlock::kD};
    case WeightFormat::kQ4K: return {quant::Q4KBlock::kD, quant::Q4KBlock::kDmin};
    case WeightFormat::kQ5K: return {quant::Q5KBlock::kD, quant::Q5KBlock::kDmin};
    case WeightFormat::kQ6K: return {quant::Q6KBlock::kD};
    case WeightFormat::kIQ2XXS: return {quant::Iq2xxsBlock::kD};
    case WeightFormat::kIQ2XS: return {quant::Iq2xsBlock::kD};
    case WeightFormat::kIQ2S: return {quant::Iq2sBlock::kD};
    case WeightFormat::kIQ3XXS: return {quant::Iq3xxsBlock::kD};
    case WeightFormat::kIQ3S: return {quant::Iq3sBlock::kD};
    case WeightFormat::kIQ1S: return {quant::Iq1sBlock::kD};
    case WeightFormat::kIQ4XS: return {quant::Iq4xsBlock::kD};
    case WeightFormat::kTQ1_0: return {quant::Tq1_0Block::kD};
    case WeightFormat::kTQ2_0: return {quant::Tq2_0Block::kD};
    case WeightFormat::kQ1_0: return {quant::Q1_0Block::kD};
    case WeightFormat::kQ2_0: return {quant::Q2_0Block::kD};
    default: return {};
  }
}

// A half of magnitude 2^-9 to 2^-3.
uint16_t ModerateHalf(std::mt19937_64& random) {
  const uint64_t bits = random();
  const uint64_t exponent = 15 - 9 + bits % 6;
  return static_cast<uint16_t>((bits >> 8 & 1) << 15 | exponent << 10 | (bits >> 16 & 0x3FF));
}

void MakeModerate(WeightFormat format, std::mt19937_64& random, std::byte* block) {
  for (int offset : HalfOffsets(format)) {
    const uint16_t half = ModerateHalf(random);
    std::memcpy(block + offset, &half, 2);
  }
  if (format == WeightFormat::kMXFP4) {
    block[quant::Mxfp4Block::kExponent] = static_cast<std::byte>(118 + random() % 8);
  } else if (format == WeightFormat::kIQ1M) {  // the half is spread over the top nibbles of four words
    const uint16_t half = ModerateHalf(random);
    for (int i = 0; i < 4; ++i) {
      std::byte& b = block[quant::Iq1mBlock::kScales + 2 * i + 1];
      b = (b & std::byte{0x0F}) | static_cast<std::byte>((half >> (4 * i) & 15) << 4);
    }
  } else if (format == WeightFormat::kF16) {
    const uint16_t half = ModerateHalf(random);
    std::memcpy(block, &half, 2);
  } else if (format == WeightFormat::kBF16 || format == WeightFormat::kF32) {
    const float value = std::normal_distribution<float>()(random);
    const uint16_t bf16 = quant::F32ToBf16(value);
    if (format == WeightFormat::kF32) {
      std::memcpy(block, &value, 4);
    } else {
      std::memcpy(block, &bf16, 2);
    }
  }
}

}  // namespace

void FillRandomWeights(WeightFormat format, int64_t cols, ScaleRange scales, std::mt19937_64& random, std::byte* row) {
  const quant::FormatTraits& t = quant::Traits(format);
  const int64_t blocks = cols / t.block_elems;
  for (int64_t i = 0; i < blocks * t.block_bytes; ++i) row[i] = static_cast<std::byte>(random());
  if (scales == ScaleRange::kAnyBits) return;
  for (int64_t i = 0; i < blocks; ++i) MakeModerate(format, random, row + i * t.block_bytes);
}

}  // namespace bellhop::kernels
