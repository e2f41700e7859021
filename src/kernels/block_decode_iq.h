// Codebook formats; quant/decode_iq.cc is the reference. Included by block_decode.h. A part is two groups of eight
// elements, half a sub-block of 32.
#pragma once

#include "kernels/block_decode_fields.h"

namespace bellhop::kernels {
namespace block_fields {

// scale * byte j of the grid entry, negated where the mask says so. As in the reference the sign goes into the integer.
BELLHOP_BLOCK_FUNCTION void DecodeSigned8(uint64_t entry, uint32_t mask, float scale, float* y) {
  for (int j = 0; j < 8; ++j) {
    const int value = static_cast<int>((entry >> (8 * j)) & 255u);
    const int negative = -static_cast<int>((mask >> j) & 1u);
    y[j] = scale * static_cast<float>((value ^ negative) - negative);
  }
}

BELLHOP_BLOCK_FUNCTION uint64_t EntryPair(const uint8_t* table, uint32_t first, uint32_t second) {
  return Entry4(table, first) | static_cast<uint64_t>(Entry4(table, second)) << 32;
}

// IQ1: an entry of kIq1sGridNibbles.
BELLHOP_BLOCK_FUNCTION void DecodeNibbles8(uint32_t entry, float scale, float delta, float* y) {
  for (int k = 0; k < 4; ++k) {
    const uint32_t byte = entry >> (8 * k);
    y[k] = scale * (static_cast<float>(static_cast<int>(byte & 15u) - 1) + delta);
    y[k + 4] = scale * (static_cast<float>(static_cast<int>((byte >> 4) & 15u) - 1) + delta);
  }
}

}  // namespace block_fields

template <>
struct BlockDecoder<quant::WeightFormat::kIQ2XXS> : quant::Iq2xxsBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const uint8_t* index = block + kQs + 8 * (part / 2);
    const uint32_t w = block_fields::Load32(index + 4);
    const float scale = (d * (0.5f + static_cast<float>(w >> 28))) * 0.25f;
    for (int i = 0; i < 2; ++i) {
      const int l = 2 * (part % 2) + i;
      const uint32_t mask = block_fields::SignMask((w >> (7 * l)) & 127u);
      block_fields::DecodeSigned8(block_fields::Entry8(books.iq2xxs_grid, index[l]), mask, scale, y + 8 * i);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ2XS> : quant::Iq2xsBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const int nibble = (block[kScales + part / 2] >> (4 * (part % 2))) & 15;
    const float scale = (d * (0.5f + static_cast<float>(nibble))) * 0.25f;
    for (int i = 0; i < 2; ++i) {
      const uint32_t q = block_fields::Load16(block + kQs + 4 * part + 2 * i);
      const uint64_t entry = block_fields::Entry8(books.iq2xs_grid, q & 511u);
      block_fields::DecodeSigned8(entry, block_fields::SignMask(q >> 9), scale, y + 8 * i);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ2S> : quant::Iq2sBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const int nibble = (block[kScales + part / 2] >> (4 * (part % 2))) & 15;
    const float scale = (d * (0.5f + static_cast<float>(nibble))) * 0.25f;
    const uint32_t high = block[kQh + part / 2] >> (4 * (part % 2));
    for (int i = 0; i < 2; ++i) {
      const uint32_t index = block[kQs + 2 * part + i] | ((high >> (2 * i)) & 3u) << 8;
      const uint32_t mask = block[kSigns + 2 * part + i];
      block_fields::DecodeSigned8(block_fields::Entry8(books.iq2s_grid, index), mask, scale, y + 8 * i);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ3XXS> : quant::Iq3xxsBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const uint32_t w = block_fields::Load32(block + kSignsScales + 4 * (part / 2));
    const float scale = (d * (0.5f + static_cast<float>(w >> 28))) * 0.5f;
    const uint8_t* index = block + kQs + 4 * part;
    for (int i = 0; i < 2; ++i) {
      const uint32_t mask = block_fields::SignMask((w >> (14 * (part % 2) + 7 * i)) & 127u);
      const uint64_t entries = block_fields::EntryPair(books.iq3xxs_grid, index[2 * i], index[2 * i + 1]);
      block_fields::DecodeSigned8(entries, mask, scale, y + 8 * i);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ3S> : quant::Iq3sBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const int nibble = (block[kScales + part / 4] >> (4 * (part / 2 % 2))) & 15;
    const float scale = d * static_cast<float>(1 + 2 * nibble);
    const uint32_t high = block[kQh + part / 2] >> (4 * (part % 2));
    const uint8_t* index = block + kQs + 4 * part;
    for (int i = 0; i < 2; ++i) {
      const uint32_t first = index[2 * i] | ((high >> (2 * i)) & 1u) << 8;
      const uint32_t second = index[2 * i + 1] | ((high >> (2 * i + 1)) & 1u) << 8;
      const uint64_t entries = block_fields::EntryPair(books.iq3s_grid, first, second);
      block_fields::DecodeSigned8(entries, block[kSigns + 2 * part + i], scale, y + 8 * i);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ1S> : quant::Iq1sBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const uint32_t h = block_fields::Load16(block + kQh + 2 * (part / 2));
    const float scale = d * static_cast<float>(2 * ((h >> 12) & 7u) + 1);
    const float delta = h & 0x8000u ? -quant::kIq1Delta : quant::kIq1Delta;
    for (int i = 0; i < 2; ++i) {
      const uint32_t top = (h >> (6 * (part % 2) + 3 * i)) & 7u;
      const uint32_t entry = books.iq1s_grid_nibbles[block[kQs + 2 * part + i] | top << 8];
      block_fields::DecodeNibbles8(entry, scale, delta, y + 8 * i);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ1M> : quant::Iq1mBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const uint8_t* scales = block + kScales;
    const float d = block_fields::FloatOfHalf(quant::Iq1mScaleBits(scales));
    const int bits = (block_fields::Load16(scales + 2 * (part / 4)) >> (3 * (part % 4))) & 7;
    const float scale = d * static_cast<float>(2 * bits + 1);
    for (int i = 0; i < 2; ++i) {
      const uint32_t c = block[kQh + part] >> (4 * i);
      const float delta = c & 8u ? -quant::kIq1Delta : quant::kIq1Delta;
      const uint32_t entry = books.iq1s_grid_nibbles[block[kQs + 2 * part + i] | (c & 7u) << 8];
      block_fields::DecodeNibbles8(entry, scale, delta, y + 8 * i);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ4XS> : quant::Iq4xsBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const int sub = part / 2;
    const uint16_t high = block_fields::Load16(block + kScalesHigh);
    const float scale = d * static_cast<float>(quant::Iq4xsScale(block + kScalesLow, high, sub));
    const uint8_t* q = block + kQs + 16 * sub;
    for (int j = 0; j < 16; ++j) {
      y[j] = scale * block_fields::Level(books.iq4_levels, (q[j] >> (4 * (part % 2))) & 15);
    }
  }
};

}  // namespace bellhop::kernels
