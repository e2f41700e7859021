// Plain numbers, and formats with one scale (and minimum) per block or sub-block; quant/decode_plain.cc and
// decode_simple.cc are the reference. Included by block_decode.h.
#pragma once

#include "kernels/block_decode_fields.h"

namespace bellhop::kernels {

// ---- Plain numbers -------------------------------------------------------------------------------------------------

// A "block" is 16 numbers. Decode1 is for the tail of a row whose length is no multiple of 16; the block need not be
// whole there.

template <>
struct BlockDecoder<quant::WeightFormat::kF32> {
  static constexpr int kElems = 16, kBytes = 64;
  BELLHOP_BLOCK_FUNCTION static float Decode1(const uint8_t* block, int element, const Codebooks&) {
    return block_fields::FloatOfBits(block_fields::Load32(block + 4 * element));
  }
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int, const Codebooks& books, float* y) {
    for (int j = 0; j < 16; ++j) y[j] = Decode1(block, j, books);
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kF16> {
  static constexpr int kElems = 16, kBytes = 32;
  BELLHOP_BLOCK_FUNCTION static float Decode1(const uint8_t* block, int element, const Codebooks&) {
    return block_fields::LoadHalf(block + 2 * element);
  }
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int, const Codebooks& books, float* y) {
    for (int j = 0; j < 16; ++j) y[j] = Decode1(block, j, books);
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kBF16> {
  static constexpr int kElems = 16, kBytes = 32;
  BELLHOP_BLOCK_FUNCTION static float Decode1(const uint8_t* block, int element, const Codebooks&) {
    return block_fields::FloatOfBits(static_cast<uint32_t>(block_fields::Load16(block + 2 * element)) << 16);
  }
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int, const Codebooks& books, float* y) {
    for (int j = 0; j < 16; ++j) y[j] = Decode1(block, j, books);
  }
};

// ---- Blocks of 32: part 0 is the low nibbles of sixteen bytes, part 1 the high ones --------------------------------

template <>
struct BlockDecoder<quant::WeightFormat::kQ4_0> : quant::Q4_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    for (int j = 0; j < 16; ++j) y[j] = static_cast<float>(((block[kQs + j] >> (4 * part)) & 15) - 8) * d;
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ4_1> : quant::Q4_1Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const float m = block_fields::LoadHalf(block + kM);
    for (int j = 0; j < 16; ++j) y[j] = static_cast<float>((block[kQs + j] >> (4 * part)) & 15) * d + m;
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ5_0> : quant::Q5_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const int high = block_fields::Load16(block + kQh + 2 * part);
    for (int j = 0; j < 16; ++j) {
      const int code = ((block[kQs + j] >> (4 * part)) & 15) | ((high >> j) & 1) << 4;
      y[j] = static_cast<float>(code - 16) * d;
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ5_1> : quant::Q5_1Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const float m = block_fields::LoadHalf(block + kM);
    const int high = block_fields::Load16(block + kQh + 2 * part);
    for (int j = 0; j < 16; ++j) {
      const int code = ((block[kQs + j] >> (4 * part)) & 15) | ((high >> j) & 1) << 4;
      y[j] = static_cast<float>(code) * d + m;
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ8_0> : quant::Q8_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const uint8_t* q = block + kQs + 16 * part;
    for (int j = 0; j < 16; ++j) y[j] = static_cast<float>(static_cast<int8_t>(q[j])) * d;
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kIQ4NL> : quant::Q4_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    for (int j = 0; j < 16; ++j) {
      y[j] = d * block_fields::Level(books.iq4_levels, (block[kQs + j] >> (4 * part)) & 15);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kMXFP4> : quant::Mxfp4Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float s = block_fields::E8m0Half(block[kExponent]);
    for (int j = 0; j < 16; ++j) {
      y[j] = block_fields::Level(books.fp4_levels, (block[kQs + j] >> (4 * part)) & 15) * s;
    }
  }
};

// ---- Larger blocks -------------------------------------------------------------------------------------------------

template <>
struct BlockDecoder<quant::WeightFormat::kNVFP4> : quant::Nvfp4Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y) {
    const float s = block_fields::Ue4m3Half(block[kScales + part]);
    const uint8_t* q = block + kQs + 8 * part;
    for (int j = 0; j < 8; ++j) {
      y[j] = block_fields::Level(books.fp4_levels, q[j] & 15) * s;
      y[8 + j] = block_fields::Level(books.fp4_levels, q[j] >> 4) * s;
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ1_0> : quant::Q1_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const int codes = block_fields::Load16(block + kQs + 2 * part);
    for (int j = 0; j < 16; ++j) y[j] = static_cast<float>(2 * ((codes >> j) & 1) - 1) * d;
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ2_0> : quant::Q2_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const uint32_t codes = block_fields::Load32(block + kQs + 4 * part);
    for (int j = 0; j < 16; ++j) y[j] = static_cast<float>(static_cast<int>((codes >> (2 * j)) & 3u) - 1) * d;
  }
};

// Three runs of bytes with several digits each: 32 bytes (parts 0 to 9, two per digit), 16 (one part per digit), and
// four bytes whose four digits are part 15.
template <>
struct BlockDecoder<quant::WeightFormat::kTQ1_0> : quant::Tq1_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    if (part == 15) {
      for (int j = 0; j < 16; ++j) y[j] = Value(block[kQh + j % 4], j / 4, d);
      return;
    }
    const int digit = part < 10 ? part / 2 : part - 10;
    const uint8_t* q = block + kQs + (part < 10 ? 16 * (part % 2) : 32);
    for (int j = 0; j < 16; ++j) y[j] = Value(q[j], digit, d);
  }

 private:
  BELLHOP_BLOCK_FUNCTION static float Value(uint8_t byte, int digit, float d) {
    const int power = static_cast<int>((0x511B090301u >> (8 * digit)) & 255u);  // 3^digit
    return static_cast<float>(quant::TernaryDigit(byte, power) - 1) * d;
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kTQ2_0> : quant::Tq2_0Block {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const int run = part / 2;  // 32 elements that share a shift
    const uint8_t* q = block + kQs + 32 * (run / 4) + 16 * (part % 2);
    const int shift = 2 * (run % 4);
    for (int j = 0; j < 16; ++j) y[j] = static_cast<float>(((q[j] >> shift) & 3) - 1) * d;
  }
};

}  // namespace bellhop::kernels
