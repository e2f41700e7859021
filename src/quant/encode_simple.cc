// Encoders whose bytes docs/formats.md fixes. Codes come from the unrounded binary32 scale; the stored half is rounded
// after that.
#include <algorithm>
#include <cmath>

#include "quant/block_codecs.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/half.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

// 1/d; 0 for d = 0 and for a d so small that its inverse overflows (it rounds to a zero half as well).
float Inverse(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// v as an integer in [lo, hi], toward zero. Any v, NaN included, gives a value in range.
int TruncClamped(float v, int lo, int hi) {
  if (!(v > static_cast<float>(lo))) return lo;
  if (v >= static_cast<float>(hi)) return hi;
  return static_cast<int>(v);
}

// Halves away from zero.
int RoundClamped(float v, int lo, int hi) { return TruncClamped(std::round(v), lo, hi); }

float MaxMagnitude(const float* x, int n) {
  float amax = 0.0f;
  for (int i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

// The signed value that reaches the largest magnitude first.
float FirstExtreme(const float* x, int n) {
  float amax = 0.0f, extreme = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > amax) {
      amax = std::fabs(x[i]);
      extreme = x[i];
    }
  }
  return extreme;
}

// Low halves of the block into low nibbles, high halves into high nibbles.
void PackNibbles(const uint8_t* codes, uint8_t* q) {
  for (int j = 0; j < 16; ++j) q[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

uint32_t FifthBits(const uint8_t* codes) {
  uint32_t bits = 0;
  for (int e = 0; e < 32; ++e) bits |= static_cast<uint32_t>(codes[e] >> 4 & 1) << e;
  return bits;
}

// Q4_0 and Q5_0: codes 0..2*zero-1 around `zero`.
float SymmetricCodes(const float* x, int zero, uint8_t* codes) {
  const float d = FirstExtreme(x, 32) / static_cast<float>(-zero);
  const float inverse = Inverse(d);
  for (int e = 0; e < 32; ++e) {
    codes[e] = static_cast<uint8_t>(TruncClamped(x[e] * inverse + (static_cast<float>(zero) + 0.5f), 0, 2 * zero - 1));
  }
  return d;
}

// Q4_1 and Q5_1: codes 0..top above the minimum.
float AffineCodes(const float* x, int top, uint8_t* codes, float* min) {
  const auto [lowest, highest] = std::minmax_element(x, x + 32);
  const float d = (*highest - *lowest) / static_cast<float>(top);
  const float inverse = Inverse(d);
  for (int e = 0; e < 32; ++e) {
    codes[e] = static_cast<uint8_t>(TruncClamped((x[e] - *lowest) * inverse + 0.5f, 0, top));
  }
  *min = *lowest;
  return d;
}

void EncodeQ4_0(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q4_0Block::kElems, b += Q4_0Block::kBytes) {
    uint8_t codes[32];
    StoreHalf(b + Q4_0Block::kD, SymmetricCodes(x, 8, codes));
    PackNibbles(codes, b + Q4_0Block::kQs);
  }
}

void EncodeQ5_0(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q5_0Block::kElems, b += Q5_0Block::kBytes) {
    uint8_t codes[32];
    StoreHalf(b + Q5_0Block::kD, SymmetricCodes(x, 16, codes));
    Store(b + Q5_0Block::kQh, FifthBits(codes));
    PackNibbles(codes, b + Q5_0Block::kQs);
  }
}

void EncodeQ4_1(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q4_1Block::kElems, b += Q4_1Block::kBytes) {
    uint8_t codes[32];
    float min;
    StoreHalf(b + Q4_1Block::kD, AffineCodes(x, 15, codes, &min));
    StoreHalf(b + Q4_1Block::kM, min);
    PackNibbles(codes, b + Q4_1Block::kQs);
  }
}

void EncodeQ5_1(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q5_1Block::kElems, b += Q5_1Block::kBytes) {
    uint8_t codes[32];
    float min;
    StoreHalf(b + Q5_1Block::kD, AffineCodes(x, 31, codes, &min));
    StoreHalf(b + Q5_1Block::kM, min);
    Store(b + Q5_1Block::kQh, FifthBits(codes));
    PackNibbles(codes, b + Q5_1Block::kQs);
  }
}

// Codes of one Q8_0 or Q8_1 block; returns the scale.
float Q8Codes(const float* x, uint8_t* q, int* sum) {
  const float d = MaxMagnitude(x, 32) / 127.0f;
  const float inverse = Inverse(d);
  *sum = 0;
  for (int e = 0; e < 32; ++e) {
    const int code = RoundClamped(x[e] * inverse, -127, 127);
    *sum += code;
    q[e] = static_cast<uint8_t>(code);
  }
  return d;
}

void EncodeQ8_0(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q8_0Block::kElems, b += Q8_0Block::kBytes) {
    int sum;
    StoreHalf(b + Q8_0Block::kD, Q8Codes(x, b + Q8_0Block::kQs, &sum));
  }
}

void EncodeQ8_1(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q8_1Block::kElems, b += Q8_1Block::kBytes) {
    int sum;
    const float d = Q8Codes(x, b + Q8_1Block::kQs, &sum);
    StoreHalf(b + Q8_1Block::kD, d);
    StoreHalf(b + Q8_1Block::kSum, static_cast<float>(sum) * d);
  }
}

void EncodeQ8K(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q8KBlock::kElems, b += Q8KBlock::kBytes) {
    // The element of largest magnitude becomes -127. Below 2^-121 the factor overflows: such a block is stored as zero.
    const float factor = -127.0f / FirstExtreme(x, Q8KBlock::kElems);
    if (!std::isfinite(factor)) {
      std::fill_n(b, Q8KBlock::kBytes, uint8_t{0});
      continue;
    }
    Store(b + Q8KBlock::kD, 1.0f / factor);
    int sums[16] = {};
    for (int e = 0; e < Q8KBlock::kElems; ++e) {
      const int code = TruncClamped(std::nearbyint(factor * x[e]), -128, 127);  // halves to even
      b[Q8KBlock::kQs + e] = static_cast<uint8_t>(code);
      sums[e / 16] += code;
    }
    for (int k = 0; k < 16; ++k) Store(b + Q8KBlock::kSums + 2 * k, static_cast<int16_t>(sums[k]));
  }
}

void EncodeQ1_0(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q1_0Block::kElems, b += Q1_0Block::kBytes) {
    float sum = 0.0f;
    std::fill_n(b, Q1_0Block::kBytes, uint8_t{0});
    for (int e = 0; e < Q1_0Block::kElems; ++e) {
      sum += std::fabs(x[e]);
      if (x[e] >= 0.0f) b[Q1_0Block::kQs + e / 8] |= static_cast<uint8_t>(1 << (e % 8));
    }
    StoreHalf(b + Q1_0Block::kD, sum / static_cast<float>(Q1_0Block::kElems));
  }
}

void EncodeQ2_0(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q2_0Block::kElems, b += Q2_0Block::kBytes) {
    const float d = MaxMagnitude(x, Q2_0Block::kElems);
    const float inverse = Inverse(d);
    std::fill_n(b, Q2_0Block::kBytes, uint8_t{0});
    StoreHalf(b + Q2_0Block::kD, d);
    for (int e = 0; e < Q2_0Block::kElems; ++e) {
      const int code = RoundClamped(x[e] * inverse, -1, 2) + 1;
      b[Q2_0Block::kQs + e / 4] |= static_cast<uint8_t>(code << (2 * (e % 4)));
    }
  }
}

// Base-3 digits (0..2) of one ternary block; returns the scale.
float TernaryDigits(const float* x, int n, uint8_t* digits) {
  const float d = MaxMagnitude(x, n);
  const float inverse = Inverse(d);
  for (int e = 0; e < n; ++e) digits[e] = static_cast<uint8_t>(RoundClamped(x[e] * inverse, -1, 1) + 1);
  return d;
}

// `width` bytes from digits that lie `width` apart, the first most significant; fewer than five digits end in zeros.
void PackTernary(const uint8_t* digits, int width, int count, uint8_t* q) {
  for (int j = 0; j < width; ++j) {
    int v = 0;
    for (int n = 0; n < 5; ++n) v = 3 * v + (n < count ? digits[n * width + j] : 0);
    q[j] = static_cast<uint8_t>((256 * v + 242) / 243);
  }
}

void EncodeTq1_0(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Tq1_0Block::kElems, b += Tq1_0Block::kBytes) {
    uint8_t digits[Tq1_0Block::kElems];
    StoreHalf(b + Tq1_0Block::kD, TernaryDigits(x, Tq1_0Block::kElems, digits));
    PackTernary(digits, 32, 5, b + Tq1_0Block::kQs);
    PackTernary(digits + 160, 16, 5, b + Tq1_0Block::kQs + 32);
    PackTernary(digits + 240, 4, 4, b + Tq1_0Block::kQh);
  }
}

void EncodeTq2_0(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Tq2_0Block::kElems, b += Tq2_0Block::kBytes) {
    uint8_t digits[Tq2_0Block::kElems];
    StoreHalf(b + Tq2_0Block::kD, TernaryDigits(x, Tq2_0Block::kElems, digits));
    for (int i = 0; i < 64; ++i) {
      const uint8_t* first = digits + 128 * (i / 32) + i % 32;
      b[Tq2_0Block::kQs + i] = static_cast<uint8_t>(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
    }
  }
}

// Index of the FP4 value nearest to x at scale s, the lowest on a tie. Values of the other sign than x never win:
// zero (index 0) is at least as near.
uint8_t NearestFp4(float x, float s) {
  int best = 0;
  float best_distance = std::fabs(x);
  const int first = x < 0.0f ? 9 : 1;
  for (int i = first; i < first + 7; ++i) {
    const float distance = std::fabs(static_cast<float>(kFp4Values[i]) * s - x);
    if (distance < best_distance) {
      best_distance = distance;
      best = i;
    }
  }
  return static_cast<uint8_t>(best);
}

void EncodeMxfp4(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Mxfp4Block::kElems, b += Mxfp4Block::kBytes) {
    const float amax = MaxMagnitude(x, Mxfp4Block::kElems);
    int exponent = 0;
    if (amax > 0.0f) exponent = std::max(0, static_cast<int>(std::floor(std::log2(amax))) + 125);
    const float s = kE8m0Half[exponent];
    b[Mxfp4Block::kExponent] = static_cast<uint8_t>(exponent);
    uint8_t codes[32];
    for (int e = 0; e < 32; ++e) codes[e] = NearestFp4(x[e], s);
    PackNibbles(codes, b + Mxfp4Block::kQs);
  }
}

// UE4M3 scale byte: half up on the mantissa bits, saturating at 0x7E (448).
uint8_t ToUe4m3(float v) {
  if (!(v > 0.0f)) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(std::min(v, 448.0f));
  const int exponent = static_cast<int>(bits >> 23) - 127;
  if (exponent < -6) return static_cast<uint8_t>(TruncClamped(512.0f * v + 0.5f, 0, 7));
  // Field E = exponent + 7 and three mantissa bits; the next bit is a carry that may move into the exponent.
  const uint32_t field = static_cast<uint32_t>(exponent + 7) << 3 | ((bits >> 20) & 7u);
  const uint32_t rounded = field + ((bits >> 19) & 1u);
  return static_cast<uint8_t>(rounded >> 3 >= 15 ? 0x7E : rounded);
}

void EncodeNvfp4(const float* x, int64_t blocks, const float* /*importance*/, uint8_t* b) {
  for (; blocks > 0; --blocks, b += Nvfp4Block::kBytes) {
    for (int k = 0; k < 4; ++k, x += 16) {
      const uint8_t scale = ToUe4m3(MaxMagnitude(x, 16) / 6.0f);
      b[Nvfp4Block::kScales + k] = scale;
      const float s = kUe4m3Half[scale];
      uint8_t* q = b + Nvfp4Block::kQs + 8 * k;
      for (int j = 0; j < 8; ++j) q[j] = static_cast<uint8_t>(NearestFp4(x[j], s) | NearestFp4(x[j + 8], s) << 4);
    }
  }
}

}  // namespace

EncodeBlocksFn FindSimpleEncoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0: return EncodeQ4_0;
    case WeightFormat::kQ4_1: return EncodeQ4_1;
    case WeightFormat::kQ5_0: return EncodeQ5_0;
    case WeightFormat::kQ5_1: return EncodeQ5_1;
    case WeightFormat::kQ8_0: return EncodeQ8_0;
    case WeightFormat::kQ8_1: return EncodeQ8_1;
    case WeightFormat::kQ8K: return EncodeQ8K;
    case WeightFormat::kQ1_0: return EncodeQ1_0;
    case WeightFormat::kQ2_0: return EncodeQ2_0;
    case WeightFormat::kTQ1_0: return EncodeTq1_0;
    case WeightFormat::kTQ2_0: return EncodeTq2_0;
    case WeightFormat::kMXFP4: return EncodeMxfp4;
    case WeightFormat::kNVFP4: return EncodeNvfp4;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
