// Codebook formats: grid entries of 4 or 8 elements with sign masks, and IQ4_XS. `k` counts groups of 8 elements,
// `sub` sub-blocks of 32.
#include "quant/block_codecs.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/half.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

// scale * grid value, negated where the mask says so. The sign is folded into the small integer: negation is exact,
// so the product has the same bits.
template <int kWidth>
void DecodeSigned(const uint8_t* grid, unsigned mask, float scale, float* y) {
  for (int j = 0; j < kWidth; ++j) {
    const int negative = -static_cast<int>((mask >> j) & 1u);
    y[j] = scale * static_cast<float>((grid[j] ^ negative) - negative);
  }
}

void DecodeIq2Xxs(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq2xxsBlock::kBytes) {
    const float d = LoadHalf(b + Iq2xxsBlock::kD);
    for (int sub = 0; sub < 8; ++sub) {
      const uint8_t* index = b + Iq2xxsBlock::kQs + 8 * sub;
      const uint32_t w = Load<uint32_t>(index + 4);
      const float scale = (d * (0.5f + static_cast<float>(w >> 28))) * 0.25f;
      for (int l = 0; l < 4; ++l, y += 8) {
        DecodeSigned<8>(kIq2xxsGrid[index[l]], kSignMasks[(w >> (7 * l)) & 127], scale, y);
      }
    }
  }
}

void DecodeIq2Xs(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq2xsBlock::kBytes) {
    const float d = LoadHalf(b + Iq2xsBlock::kD);
    for (int k = 0; k < 32; ++k, y += 8) {
      const unsigned q = Load<uint16_t>(b + Iq2xsBlock::kQs + 2 * k);
      const int nibble = (b[Iq2xsBlock::kScales + k / 4] >> (4 * ((k % 4) / 2))) & 15;
      const float scale = (d * (0.5f + static_cast<float>(nibble))) * 0.25f;
      DecodeSigned<8>(kIq2xsGrid[q & 511], kSignMasks[q >> 9], scale, y);
    }
  }
}

void DecodeIq2S(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq2sBlock::kBytes) {
    const float d = LoadHalf(b + Iq2sBlock::kD);
    for (int k = 0; k < 32; ++k, y += 8) {
      const int sub = k / 4, l = k % 4;
      const int index = b[Iq2sBlock::kQs + k] | ((b[Iq2sBlock::kQh + sub] >> (2 * l)) & 3) << 8;
      const int nibble = (b[Iq2sBlock::kScales + sub] >> (4 * (l / 2))) & 15;
      const float scale = (d * (0.5f + static_cast<float>(nibble))) * 0.25f;
      DecodeSigned<8>(kIq2sGrid[index], b[Iq2sBlock::kSigns + k], scale, y);
    }
  }
}

void DecodeIq3Xxs(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq3xxsBlock::kBytes) {
    const float d = LoadHalf(b + Iq3xxsBlock::kD);
    for (int sub = 0; sub < 8; ++sub) {
      const uint32_t w = Load<uint32_t>(b + Iq3xxsBlock::kSignsScales + 4 * sub);
      const float scale = (d * (0.5f + static_cast<float>(w >> 28))) * 0.5f;
      const uint8_t* index = b + Iq3xxsBlock::kQs + 8 * sub;
      for (int l = 0; l < 4; ++l, y += 8) {
        const unsigned mask = kSignMasks[(w >> (7 * l)) & 127];
        DecodeSigned<4>(kIq3xxsGrid[index[2 * l]], mask, scale, y);
        DecodeSigned<4>(kIq3xxsGrid[index[2 * l + 1]], mask >> 4, scale, y + 4);
      }
    }
  }
}

void DecodeIq3S(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq3sBlock::kBytes) {
    const float d = LoadHalf(b + Iq3sBlock::kD);
    for (int sub = 0; sub < 8; ++sub) {
      const int nibble = (b[Iq3sBlock::kScales + sub / 2] >> (4 * (sub % 2))) & 15;
      const float scale = d * static_cast<float>(1 + 2 * nibble);
      const int high = b[Iq3sBlock::kQh + sub];
      const uint8_t* index = b + Iq3sBlock::kQs + 8 * sub;
      for (int l = 0; l < 4; ++l, y += 8) {
        const unsigned mask = b[Iq3sBlock::kSigns + 4 * sub + l];
        DecodeSigned<4>(kIq3sGrid[index[2 * l] | ((high >> (2 * l)) & 1) << 8], mask, scale, y);
        DecodeSigned<4>(kIq3sGrid[index[2 * l + 1] | ((high >> (2 * l + 1)) & 1) << 8], mask >> 4, scale, y + 4);
      }
    }
  }
}

void DecodeIq1S(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq1sBlock::kBytes) {
    const float d = LoadHalf(b + Iq1sBlock::kD);
    for (int sub = 0; sub < 8; ++sub) {
      const unsigned h = Load<uint16_t>(b + Iq1sBlock::kQh + 2 * sub);
      const float scale = d * static_cast<float>(2 * ((h >> 12) & 7) + 1);
      const float delta = h & 0x8000u ? -kIq1Delta : kIq1Delta;
      for (int l = 0; l < 4; ++l, y += 8) {
        const int8_t* grid = kIq1sGrid[b[Iq1sBlock::kQs + 4 * sub + l] | ((h >> (3 * l)) & 7) << 8];
        for (int j = 0; j < 8; ++j) y[j] = scale * (static_cast<float>(grid[j]) + delta);
      }
    }
  }
}

void DecodeIq1M(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq1mBlock::kBytes) {
    const uint8_t* scales = b + Iq1mBlock::kScales;
    const float d = F16ToF32(Iq1mScaleBits(scales));
    for (int k = 0; k < 32; ++k, y += 8) {
      const int c = b[Iq1mBlock::kQh + k / 2] >> (4 * (k % 2));
      const int t = k / 2;
      const int bits = (Load<uint16_t>(scales + 2 * (t / 4)) >> (3 * (t % 4))) & 7;
      const float scale = d * static_cast<float>(2 * bits + 1);
      const float delta = c & 8 ? -kIq1Delta : kIq1Delta;
      const int8_t* grid = kIq1sGrid[b[Iq1mBlock::kQs + k] | (c & 7) << 8];
      for (int j = 0; j < 8; ++j) y[j] = scale * (static_cast<float>(grid[j]) + delta);
    }
  }
}

void DecodeIq4Xs(const uint8_t* b, int64_t blocks, float* y) {
  for (; blocks > 0; --blocks, b += Iq4xsBlock::kBytes) {
    const float d = LoadHalf(b + Iq4xsBlock::kD);
    const uint16_t high = Load<uint16_t>(b + Iq4xsBlock::kScalesHigh);
    for (int sub = 0; sub < 8; ++sub, y += 32) {
      const float scale = d * static_cast<float>(Iq4xsScale(b + Iq4xsBlock::kScalesLow, high, sub));
      const uint8_t* q = b + Iq4xsBlock::kQs + 16 * sub;
      for (int j = 0; j < 16; ++j) {
        y[j] = scale * static_cast<float>(kIq4Values[q[j] & 15]);
        y[j + 16] = scale * static_cast<float>(kIq4Values[q[j] >> 4]);
      }
    }
  }
}

}  // namespace

DecodeBlocksFn FindIqDecoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kIQ2XXS: return DecodeIq2Xxs;
    case WeightFormat::kIQ2XS: return DecodeIq2Xs;
    case WeightFormat::kIQ2S: return DecodeIq2S;
    case WeightFormat::kIQ3XXS: return DecodeIq3Xxs;
    case WeightFormat::kIQ3S: return DecodeIq3S;
    case WeightFormat::kIQ1S: return DecodeIq1S;
    case WeightFormat::kIQ1M: return DecodeIq1M;
    case WeightFormat::kIQ4XS: return DecodeIq4Xs;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
