#include "kernels/cpu/ref/block_codes.h"

#include <cstdint>
#include <cstring>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

uint16_t LoadU16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
uint32_t LoadU32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
float LoadHalf(const uint8_t* p) { return quant::F16ToF32(LoadU16(p)); }
uint32_t Bit(uint32_t word, int i) { return (word >> i) & 1u; }
// Nibble i of an array: even ones are the low halves of bytes.
int Nibble(const uint8_t* q, int i) { return (q[i / 2] >> (4 * (i % 2))) & 15; }
// Nibble of element e where a block of `2 * half` elements keeps its first half in the low nibbles.
int SplitNibble(const uint8_t* q, int e, int half) { return e < half ? q[e] & 15 : q[e - half] >> 4; }
// Two bits of element e in the layout shared by Q2_K, Q3_K and TQ2_0: 32 bytes hold 128 elements.
int TwoBits(const uint8_t* q, int e) { return (q[32 * (e / 128) + e % 32] >> (2 * ((e % 128) / 32))) & 3; }

template <typename Fn>
void FillCodes(BlockCodes* out, int elems, Fn code) {
  for (int e = 0; e < elems; ++e) out->code[e] = static_cast<float>(code(e));
}
template <typename Fn>
void FillScales(BlockCodes* out, int groups, Fn scale) {
  for (int g = 0; g < groups; ++g) out->scale[g] = scale(g);
}

void Q4_0(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q4_0Block;
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return SplitNibble(q, e, 16) - 8; });
}

void Q4_1(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q4_1Block;
  out->scale[0] = LoadHalf(b + B::kD);
  out->min[0] = -LoadHalf(b + B::kM);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return SplitNibble(q, e, 16); });
}

void Q5_0(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q5_0Block;
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [q = b + B::kQs, high = LoadU32(b + B::kQh)](int e) {
    return SplitNibble(q, e, 16) + 16 * static_cast<int>(Bit(high, e)) - 16;
  });
}

void Q5_1(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q5_1Block;
  out->scale[0] = LoadHalf(b + B::kD);
  out->min[0] = -LoadHalf(b + B::kM);
  FillCodes(out, B::kElems, [q = b + B::kQs, high = LoadU32(b + B::kQh)](int e) {
    return SplitNibble(q, e, 16) + 16 * static_cast<int>(Bit(high, e));
  });
}

void Q8_0(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q8_0Block;
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return static_cast<int8_t>(q[e]); });
}

void Iq4Nl(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q4_0Block;
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return quant::kIq4Values[SplitNibble(q, e, 16)]; });
}

void Mxfp4(const uint8_t* b, BlockCodes* out) {
  using B = quant::Mxfp4Block;
  out->scale[0] = quant::kE8m0Half[b[B::kExponent]];
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return quant::kFp4Values[SplitNibble(q, e, 16)]; });
}

void Nvfp4(const uint8_t* b, BlockCodes* out) {
  using B = quant::Nvfp4Block;
  FillScales(out, 4, [b](int g) { return quant::kUe4m3Half[b[B::kScales + g]]; });
  FillCodes(out, B::kElems,
            [q = b + B::kQs](int e) { return quant::kFp4Values[SplitNibble(q + 8 * (e / 16), e % 16, 8)]; });
}

void Q1_0(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q1_0Block;
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return Bit(q[e / 8], e % 8) != 0 ? 1 : -1; });
}

void Q2_0(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q2_0Block;
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return ((q[e / 4] >> (2 * (e % 4))) & 3) - 1; });
}

void Q2K(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q2KBlock;
  const float d = LoadHalf(b + B::kD), dmin = LoadHalf(b + B::kDmin);
  const uint8_t* s = b + B::kScales;
  for (int g = 0; g < 16; ++g) {
    out->scale[g] = d * static_cast<float>(s[g] & 15);
    out->min[g] = dmin * static_cast<float>(s[g] >> 4);
  }
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return TwoBits(q, e); });
}

void Q3K(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q3KBlock;
  const float d = LoadHalf(b + B::kD);
  FillScales(out, 16, [d, s = b + B::kScales](int g) { return d * static_cast<float>(quant::Q3KScale(s, g)); });
  FillCodes(out, B::kElems, [q = b + B::kQs, hmask = b + B::kHmask](int e) {
    return TwoBits(q, e) + 4 * static_cast<int>(Bit(hmask[e % 32], e / 32)) - 4;
  });
}

void SixBitPairs(const uint8_t* s, float d, float dmin, BlockCodes* out) {
  for (int g = 0; g < 8; ++g) {
    int scale, min;
    quant::SixBitPair(s, g, &scale, &min);
    out->scale[g] = d * static_cast<float>(scale);
    out->min[g] = dmin * static_cast<float>(min);
  }
}

void Q4K(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q4KBlock;
  SixBitPairs(b + B::kScales, LoadHalf(b + B::kD), LoadHalf(b + B::kDmin), out);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return SplitNibble(q + 32 * (e / 64), e % 64, 32); });
}

void Q5K(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q5KBlock;
  SixBitPairs(b + B::kScales, LoadHalf(b + B::kD), LoadHalf(b + B::kDmin), out);
  FillCodes(out, B::kElems, [q = b + B::kQs, high = b + B::kQh](int e) {
    return SplitNibble(q + 32 * (e / 64), e % 64, 32) + 16 * static_cast<int>(Bit(high[e % 32], e / 32));
  });
}

void Q6K(const uint8_t* b, BlockCodes* out) {
  using B = quant::Q6KBlock;
  const float d = LoadHalf(b + B::kD);
  FillScales(out, 16, [d, s = b + B::kScales](int g) { return d * static_cast<float>(static_cast<int8_t>(s[g])); });
  FillCodes(out, B::kElems, [ql = b + B::kQl, qh = b + B::kQh](int e) {
    const int n = e / 128, p = (e % 128) / 32, l = e % 32;
    const int low = SplitNibble(ql + 64 * n, e % 128, 64);
    const int high = (qh[32 * n + l] >> (2 * p)) & 3;
    return (low | high << 4) - 32;
  });
}

void Tq1_0(const uint8_t* b, BlockCodes* out) {
  using B = quant::Tq1_0Block;
  static constexpr int kPower[5] = {1, 3, 9, 27, 81};
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [qs = b + B::kQs, qh = b + B::kQh](int e) {
    if (e < 160) return quant::TernaryDigit(qs[e % 32], kPower[e / 32]) - 1;
    if (e < 240) return quant::TernaryDigit(qs[32 + (e - 160) % 16], kPower[(e - 160) / 16]) - 1;
    return quant::TernaryDigit(qh[(e - 240) % 4], kPower[(e - 240) / 4]) - 1;
  });
}

void Tq2_0(const uint8_t* b, BlockCodes* out) {
  using B = quant::Tq2_0Block;
  out->scale[0] = LoadHalf(b + B::kD);
  FillCodes(out, B::kElems, [q = b + B::kQs](int e) { return TwoBits(q, e) - 1; });
}

// Codes of eight elements: a grid entry with the sign of element j flipped where bit j of the mask is set.
void SignedEight(const uint8_t* grid, unsigned mask, float* code) {
  for (int j = 0; j < 8; ++j) code[j] = static_cast<float>((mask >> j & 1u) != 0 ? -grid[j] : grid[j]);
}
void SignedTwoFours(const uint8_t* low, const uint8_t* high, unsigned mask, float* code) {
  uint8_t eight[8];
  std::memcpy(eight, low, 4);
  std::memcpy(eight + 4, high, 4);
  SignedEight(eight, mask, code);
}
float QuarterScale(float d, int nibble) { return (d * (0.5f + static_cast<float>(nibble))) * 0.25f; }

void Iq2Xxs(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq2xxsBlock;
  const float d = LoadHalf(b + B::kD);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* index = b + B::kQs + 8 * g;
    const uint32_t word = LoadU32(index + 4);
    out->scale[g] = QuarterScale(d, static_cast<int>(word >> 28));
    for (int l = 0; l < 4; ++l) {
      const unsigned mask = quant::kSignMasks[(word >> (7 * l)) & 127];
      SignedEight(quant::kIq2xxsGrid[index[l]], mask, out->code + 32 * g + 8 * l);
    }
  }
}

void Iq2Xs(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq2xsBlock;
  FillScales(out, 16, [d = LoadHalf(b + B::kD), s = b + B::kScales](int g) { return QuarterScale(d, Nibble(s, g)); });
  for (int k = 0; k < 32; ++k) {
    const uint16_t q = LoadU16(b + B::kQs + 2 * k);
    SignedEight(quant::kIq2xsGrid[q & 511], quant::kSignMasks[q >> 9], out->code + 8 * k);
  }
}

void Iq2S(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq2sBlock;
  FillScales(out, 16, [d = LoadHalf(b + B::kD), s = b + B::kScales](int g) { return QuarterScale(d, Nibble(s, g)); });
  for (int k = 0; k < 32; ++k) {
    const int index = b[B::kQs + k] | ((b[B::kQh + k / 4] >> (2 * (k % 4))) & 3) << 8;
    SignedEight(quant::kIq2sGrid[index], b[B::kSigns + k], out->code + 8 * k);
  }
}

void Iq3Xxs(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq3xxsBlock;
  const float d = LoadHalf(b + B::kD);
  for (int g = 0; g < 8; ++g) {
    const uint32_t word = LoadU32(b + B::kSignsScales + 4 * g);
    out->scale[g] = (d * (0.5f + static_cast<float>(word >> 28))) * 0.5f;
    for (int l = 0; l < 4; ++l) {
      const uint8_t* index = b + B::kQs + 8 * g + 2 * l;
      const unsigned mask = quant::kSignMasks[(word >> (7 * l)) & 127];
      SignedTwoFours(quant::kIq3xxsGrid[index[0]], quant::kIq3xxsGrid[index[1]], mask, out->code + 32 * g + 8 * l);
    }
  }
}

void Iq3S(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq3sBlock;
  FillScales(out, 8, [d = LoadHalf(b + B::kD), s = b + B::kScales](int g) {
    return d * static_cast<float>(1 + 2 * Nibble(s, g));
  });
  for (int k = 0; k < 32; ++k) {
    const uint8_t* low = b + B::kQs + 2 * k;
    const uint32_t high = b[B::kQh + k / 4];
    const uint32_t first = low[0] | Bit(high, 2 * (k % 4)) << 8;
    const uint32_t second = low[1] | Bit(high, 2 * (k % 4) + 1) << 8;
    SignedTwoFours(quant::kIq3sGrid[first], quant::kIq3sGrid[second], b[B::kSigns + k], out->code + 8 * k);
  }
}

void GridPlusDelta(int index, bool negative, float* code) {
  const float delta = negative ? -quant::kIq1Delta : quant::kIq1Delta;
  for (int j = 0; j < 8; ++j) code[j] = static_cast<float>(quant::kIq1sGrid[index][j]) + delta;
}

void Iq1S(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq1sBlock;
  const float d = LoadHalf(b + B::kD);
  for (int g = 0; g < 8; ++g) {
    const int high = LoadU16(b + B::kQh + 2 * g);
    out->scale[g] = d * static_cast<float>(2 * ((high >> 12) & 7) + 1);
    for (int l = 0; l < 4; ++l) {
      const int index = b[B::kQs + 4 * g + l] | ((high >> (3 * l)) & 7) << 8;
      GridPlusDelta(index, (high & 0x8000) != 0, out->code + 32 * g + 8 * l);
    }
  }
}

void Iq1M(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq1mBlock;
  const uint8_t* s = b + B::kScales;
  const float d = quant::F16ToF32(quant::Iq1mScaleBits(s));
  FillScales(out, 16, [d, s](int g) {
    const int bits = (LoadU16(s + 2 * (g / 4)) >> (3 * (g % 4))) & 7;
    return d * static_cast<float>(2 * bits + 1);
  });
  for (int k = 0; k < 32; ++k) {
    const int c = Nibble(b + B::kQh, k);
    GridPlusDelta(b[B::kQs + k] | (c & 7) << 8, (c & 8) != 0, out->code + 8 * k);
  }
}

void Iq4Xs(const uint8_t* b, BlockCodes* out) {
  using B = quant::Iq4xsBlock;
  FillScales(out, 8, [d = LoadHalf(b + B::kD), low = b + B::kScalesLow, high = LoadU16(b + B::kScalesHigh)](int g) {
    return d * static_cast<float>(quant::Iq4xsScale(low, high, g));
  });
  FillCodes(out, B::kElems,
            [q = b + B::kQs](int e) { return quant::kIq4Values[SplitNibble(q + 16 * (e / 32), e % 32, 16)]; });
}

}  // namespace

void DecodeBlockCodes(WeightFormat format, const std::byte* block, BlockCodes* out) {
  const uint8_t* b = reinterpret_cast<const uint8_t*>(block);
  switch (format) {
    case WeightFormat::kQ4_0: return Q4_0(b, out);
    case WeightFormat::kQ4_1: return Q4_1(b, out);
    case WeightFormat::kQ5_0: return Q5_0(b, out);
    case WeightFormat::kQ5_1: return Q5_1(b, out);
    case WeightFormat::kQ8_0: return Q8_0(b, out);
    case WeightFormat::kQ2K: return Q2K(b, out);
    case WeightFormat::kQ3K: return Q3K(b, out);
    case WeightFormat::kQ4K: return Q4K(b, out);
    case WeightFormat::kQ5K: return Q5K(b, out);
    case WeightFormat::kQ6K: return Q6K(b, out);
    case WeightFormat::kIQ2XXS: return Iq2Xxs(b, out);
    case WeightFormat::kIQ2XS: return Iq2Xs(b, out);
    case WeightFormat::kIQ2S: return Iq2S(b, out);
    case WeightFormat::kIQ3XXS: return Iq3Xxs(b, out);
    case WeightFormat::kIQ3S: return Iq3S(b, out);
    case WeightFormat::kIQ1S: return Iq1S(b, out);
    case WeightFormat::kIQ1M: return Iq1M(b, out);
    case WeightFormat::kIQ4NL: return Iq4Nl(b, out);
    case WeightFormat::kIQ4XS: return Iq4Xs(b, out);
    case WeightFormat::kTQ1_0: return Tq1_0(b, out);
    case WeightFormat::kTQ2_0: return Tq2_0(b, out);
    case WeightFormat::kMXFP4: return Mxfp4(b, out);
    case WeightFormat::kNVFP4: return Nvfp4(b, out);
    case WeightFormat::kQ1_0: return Q1_0(b, out);
    case WeightFormat::kQ2_0: return Q2_0(b, out);
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
    case WeightFormat::kF64:
    case WeightFormat::kI8:
    case WeightFormat::kI16:
    case WeightFormat::kI32:
    case WeightFormat::kI64:
    case WeightFormat::kQ8_1:
    case WeightFormat::kQ8K:
    case WeightFormat::kInt4:
    case WeightFormat::kInt4Sm80:
    case WeightFormat::kInt3:
    case WeightFormat::kInt8:
    case WeightFormat::kInt8Sm80:
    case WeightFormat::kMxfp4Planar:
    case WeightFormat::kNvfp4Planar:
    case WeightFormat::kMxfp4KMajor:
    case WeightFormat::kNvfp4KMajor: return;
  }
}

}  // namespace bellhop::kernels
