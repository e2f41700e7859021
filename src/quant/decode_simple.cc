// Formats with one scale (and minimum) per block or sub-block and no codebook beyond 16 values.
#include "quant/block_codecs.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

void DecodeQ4_0(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q4_0Block::kBytes, y += Q4_0Block::kElems) {
    const float d = LoadHalf(b + Q4_0Block::kD);
    const uint8_t* q = b + Q4_0Block::kQs;
    for (int j = 0; j < 16; ++j) {
      y[j] = static_cast<float>((q[j] & 15) - 8) * d;
      y[j + 16] = static_cast<float>((q[j] >> 4) - 8) * d;
    }
  }
}

void DecodeQ4_1(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q4_1Block::kBytes, y += Q4_1Block::kElems) {
    const float d = LoadHalf(b + Q4_1Block::kD);
    const float m = LoadHalf(b + Q4_1Block::kM);
    const uint8_t* q = b + Q4_1Block::kQs;
    for (int j = 0; j < 16; ++j) {
      y[j] = static_cast<float>(q[j] & 15) * d + m;
      y[j + 16] = static_cast<float>(q[j] >> 4) * d + m;
    }
  }
}

void DecodeQ5_0(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q5_0Block::kBytes, y += Q5_0Block::kElems) {
    const float d = LoadHalf(b + Q5_0Block::kD);
    const uint32_t h = Load<uint32_t>(b + Q5_0Block::kQh);
    const uint8_t* q = b + Q5_0Block::kQs;
    for (int j = 0; j < 16; ++j) {
      y[j] = static_cast<float>(static_cast<int>((q[j] & 15u) | ((h >> j) & 1u) << 4) - 16) * d;
      y[j + 16] = static_cast<float>(static_cast<int>((q[j] >> 4) | ((h >> (j + 16)) & 1u) << 4) - 16) * d;
    }
  }
}

void DecodeQ5_1(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q5_1Block::kBytes, y += Q5_1Block::kElems) {
    const float d = LoadHalf(b + Q5_1Block::kD);
    const float m = LoadHalf(b + Q5_1Block::kM);
    const uint32_t h = Load<uint32_t>(b + Q5_1Block::kQh);
    const uint8_t* q = b + Q5_1Block::kQs;
    for (int j = 0; j < 16; ++j) {
      y[j] = static_cast<float>((q[j] & 15u) | ((h >> j) & 1u) << 4) * d + m;
      y[j + 16] = static_cast<float>((q[j] >> 4) | ((h >> (j + 16)) & 1u) << 4) * d + m;
    }
  }
}

// Q8_0 and Q8_1: the decoded value does not use Q8_1's sum field.
template <typename Block>
void DecodeQ8(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Block::kBytes, y += Block::kElems) {
    const float d = LoadHalf(b + Block::kD);
    for (int j = 0; j < Block::kElems; ++j) y[j] = static_cast<float>(static_cast<int8_t>(b[Block::kQs + j])) * d;
  }
}

void DecodeIq4Nl(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q4_0Block::kBytes, y += Q4_0Block::kElems) {
    const float d = LoadHalf(b + Q4_0Block::kD);
    const uint8_t* q = b + Q4_0Block::kQs;
    for (int j = 0; j < 16; ++j) {
      y[j] = d * static_cast<float>(kIq4Values[q[j] & 15]);
      y[j + 16] = d * static_cast<float>(kIq4Values[q[j] >> 4]);
    }
  }
}

void DecodeMxfp4(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Mxfp4Block::kBytes, y += Mxfp4Block::kElems) {
    const float s = kE8m0Half[b[Mxfp4Block::kExponent]];
    const uint8_t* q = b + Mxfp4Block::kQs;
    for (int j = 0; j < 16; ++j) {
      y[j] = static_cast<float>(kFp4Values[q[j] & 15]) * s;
      y[j + 16] = static_cast<float>(kFp4Values[q[j] >> 4]) * s;
    }
  }
}

void DecodeNvfp4(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Nvfp4Block::kBytes, y += Nvfp4Block::kElems) {
    for (int k = 0; k < 4; ++k) {
      const float s = kUe4m3Half[b[Nvfp4Block::kScales + k]];
      const uint8_t* q = b + Nvfp4Block::kQs + 8 * k;
      for (int j = 0; j < 8; ++j) {
        y[16 * k + j] = static_cast<float>(kFp4Values[q[j] & 15]) * s;
        y[16 * k + 8 + j] = static_cast<float>(kFp4Values[q[j] >> 4]) * s;
      }
    }
  }
}

void DecodeQ1_0(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q1_0Block::kBytes, y += Q1_0Block::kElems) {
    const float d = LoadHalf(b + Q1_0Block::kD);
    for (int e = 0; e < Q1_0Block::kElems; ++e) {
      y[e] = static_cast<float>(2 * ((b[Q1_0Block::kQs + e / 8] >> (e % 8)) & 1) - 1) * d;
    }
  }
}

void DecodeQ2_0(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q2_0Block::kBytes, y += Q2_0Block::kElems) {
    const float d = LoadHalf(b + Q2_0Block::kD);
    for (int e = 0; e < Q2_0Block::kElems; ++e) {
      y[e] = static_cast<float>(((b[Q2_0Block::kQs + e / 4] >> (2 * (e % 4))) & 3) - 1) * d;
    }
  }
}

// `width` bytes, each carrying `digits` elements that lie `width` apart.
float* DecodeTernary(const uint8_t* q, int width, int digits, float d, float* y) {
  for (int n = 0, power = 1; n < digits; ++n, power *= 3, y += width) {
    for (int j = 0; j < width; ++j) y[j] = static_cast<float>(TernaryDigit(q[j], power) - 1) * d;
  }
  return y;
}

void DecodeTq1_0(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Tq1_0Block::kBytes) {
    const float d = LoadHalf(b + Tq1_0Block::kD);
    y = DecodeTernary(b + Tq1_0Block::kQs, 32, 5, d, y);
    y = DecodeTernary(b + Tq1_0Block::kQs + 32, 16, 5, d, y);
    y = DecodeTernary(b + Tq1_0Block::kQh, 4, 4, d, y);
  }
}

void DecodeTq2_0(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Tq2_0Block::kBytes) {
    const float d = LoadHalf(b + Tq2_0Block::kD);
    for (int run = 0; run < 8; ++run, y += 32) {  // 32 elements that share a shift
      const uint8_t* q = b + Tq2_0Block::kQs + 32 * (run / 4);
      for (int l = 0; l < 32; ++l) y[l] = static_cast<float>(((q[l] >> (2 * (run % 4))) & 3) - 1) * d;
    }
  }
}

}  // namespace

DecodeBlocksFn FindSimpleDecoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0: return DecodeQ4_0;
    case WeightFormat::kQ4_1: return DecodeQ4_1;
    case WeightFormat::kQ5_0: return DecodeQ5_0;
    case WeightFormat::kQ5_1: return DecodeQ5_1;
    case WeightFormat::kQ8_0: return DecodeQ8<Q8_0Block>;
    case WeightFormat::kQ8_1: return DecodeQ8<Q8_1Block>;
    case WeightFormat::kIQ4NL: return DecodeIq4Nl;
    case WeightFormat::kMXFP4: return DecodeMxfp4;
    case WeightFormat::kNVFP4: return DecodeNvfp4;
    case WeightFormat::kQ1_0: return DecodeQ1_0;
    case WeightFormat::kQ2_0: return DecodeQ2_0;
    case WeightFormat::kTQ1_0: return DecodeTq1_0;
    case WeightFormat::kTQ2_0: return DecodeTq2_0;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
