// K formats: 256 elements with quantised scales of 16 or 32 elements under one f16 scale (and minimum) per block.
#include "quant/block_codecs.h"
#include "quant/blocks.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

// In all of Q2_K..Q6_K a run is 32 elements whose codes sit at the same bit position of 32 consecutive bytes.

void DecodeQ2K(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q2KBlock::kBytes) {
    const float d = LoadHalf(b + Q2KBlock::kD);
    const float dmin = LoadHalf(b + Q2KBlock::kDmin);
    for (int g = 0; g < 16; ++g, y += 16) {
      const uint8_t sc = b[Q2KBlock::kScales + g];
      const float scale = d * static_cast<float>(sc & 15);
      const float min = dmin * static_cast<float>(sc >> 4);
      const int run = g / 2;
      const uint8_t* q = b + Q2KBlock::kQs + 32 * (run / 4) + 16 * (g % 2);
      const int shift = 2 * (run % 4);
      for (int j = 0; j < 16; ++j) y[j] = scale * static_cast<float>((q[j] >> shift) & 3) - min;
    }
  }
}

void DecodeQ3K(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q3KBlock::kBytes) {
    const float d = LoadHalf(b + Q3KBlock::kD);
    for (int g = 0; g < 16; ++g, y += 16) {
      const float scale = d * static_cast<float>(Q3KScale(b + Q3KBlock::kScales, g));
      const int run = g / 2;
      const uint8_t* q = b + Q3KBlock::kQs + 32 * (run / 4) + 16 * (g % 2);
      const uint8_t* high = b + Q3KBlock::kHmask + 16 * (g % 2);
      const int shift = 2 * (run % 4);
      for (int j = 0; j < 16; ++j) {
        const int code = ((q[j] >> shift) & 3) + 4 * ((high[j] >> run) & 1) - 4;
        y[j] = scale * static_cast<float>(code);
      }
    }
  }
}

void DecodeQ4K(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q4KBlock::kBytes) {
    const float d = LoadHalf(b + Q4KBlock::kD);
    const float dmin = LoadHalf(b + Q4KBlock::kDmin);
    for (int g = 0; g < 8; ++g, y += 32) {
      int sc, mn;
      SixBitPair(b + Q4KBlock::kScales, g, &sc, &mn);
      const float scale = d * static_cast<float>(sc);
      const float min = dmin * static_cast<float>(mn);
      const uint8_t* q = b + Q4KBlock::kQs + 32 * (g / 2);
      const int shift = 4 * (g % 2);
      for (int j = 0; j < 32; ++j) y[j] = scale * static_cast<float>((q[j] >> shift) & 15) - min;
    }
  }
}

void DecodeQ5K(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q5KBlock::kBytes) {
    const float d = LoadHalf(b + Q5KBlock::kD);
    const float dmin = LoadHalf(b + Q5KBlock::kDmin);
    const uint8_t* high = b + Q5KBlock::kQh;
    for (int g = 0; g < 8; ++g, y += 32) {
      int sc, mn;
      SixBitPair(b + Q5KBlock::kScales, g, &sc, &mn);
      const float scale = d * static_cast<float>(sc);
      const float min = dmin * static_cast<float>(mn);
      const uint8_t* q = b + Q5KBlock::kQs + 32 * (g / 2);
      const int shift = 4 * (g % 2);
      for (int j = 0; j < 32; ++j) {
        const int code = ((q[j] >> shift) & 15) + 16 * ((high[j] >> g) & 1);
        y[j] = scale * static_cast<float>(code) - min;
      }
    }
  }
}

void DecodeQ6K(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q6KBlock::kBytes) {
    const float d = LoadHalf(b + Q6KBlock::kD);
    for (int g = 0; g < 16; ++g, y += 16) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(b[Q6KBlock::kScales + g]));
      const int half = g / 8;       // 128 elements: 64 bytes of ql, 32 of qh
      const int run = (g / 2) % 4;  // 32 elements within the half
      const uint8_t* low = b + Q6KBlock::kQl + 64 * half + 32 * (run % 2) + 16 * (g % 2);
      const uint8_t* high = b + Q6KBlock::kQh + 32 * half + 16 * (g % 2);
      const int low_shift = 4 * (run / 2);
      const int high_shift = 2 * run;
      for (int j = 0; j < 16; ++j) {
        const int code = (((low[j] >> low_shift) & 15) | ((high[j] >> high_shift) & 3) << 4) - 32;
        y[j] = scale * static_cast<float>(code);
      }
    }
  }
}

void DecodeQ8K(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Q8KBlock::kBytes, y += Q8KBlock::kElems) {
    const float d = Load<float>(b + Q8KBlock::kD);
    for (int e = 0; e < Q8KBlock::kElems; ++e) y[e] = d * static_cast<float>(static_cast<int8_t>(b[Q8KBlock::kQs + e]));
  }
}

}  // namespace

DecodeBlocksFn FindKDecoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ2K: return DecodeQ2K;
    case WeightFormat::kQ3K: return DecodeQ3K;
    case WeightFormat::kQ4K: return DecodeQ4K;
    case WeightFormat::kQ5K: return DecodeQ5K;
    case WeightFormat::kQ6K: return DecodeQ6K;
    case WeightFormat::kQ8K: return DecodeQ8K;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
