// K formats; quant/decode_k.cc is the reference. Included by block_decode.h. A run is 32 elements whose codes sit at
// the same bit position of 32 consecutive bytes; a part is half a run.
#pragma once

#include "kernels/block_decode_fields.h"

namespace bellhop::kernels {

template <>
struct BlockDecoder<quant::WeightFormat::kQ2K> : quant::Q2KBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const uint8_t sc = block[kScales + part];
    const float scale = block_fields::LoadHalf(block + kD) * static_cast<float>(sc & 15);
    const float min = block_fields::LoadHalf(block + kDmin) * static_cast<float>(sc >> 4);
    const int run = part / 2;
    const uint8_t* q = block + kQs + 32 * (run / 4) + 16 * (part % 2);
    const int shift = 2 * (run % 4);
    for (int j = 0; j < 16; ++j) y[j] = scale * static_cast<float>((q[j] >> shift) & 3) - min;
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ3K> : quant::Q3KBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const float scale = d * static_cast<float>(quant::Q3KScale(block + kScales, part));
    const int run = part / 2;
    const uint8_t* q = block + kQs + 32 * (run / 4) + 16 * (part % 2);
    const uint8_t* high = block + kHmask + 16 * (part % 2);
    const int shift = 2 * (run % 4);
    for (int j = 0; j < 16; ++j) {
      const int code = ((q[j] >> shift) & 3) + 4 * ((high[j] >> run) & 1) - 4;
      y[j] = scale * static_cast<float>(code);
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ4K> : quant::Q4KBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const int run = part / 2;
    int sc, mn;
    quant::SixBitPair(block + kScales, run, &sc, &mn);
    const float scale = block_fields::LoadHalf(block + kD) * static_cast<float>(sc);
    const float min = block_fields::LoadHalf(block + kDmin) * static_cast<float>(mn);
    const uint8_t* q = block + kQs + 32 * (run / 2) + 16 * (part % 2);
    const int shift = 4 * (run % 2);
    for (int j = 0; j < 16; ++j) y[j] = scale * static_cast<float>((q[j] >> shift) & 15) - min;
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ5K> : quant::Q5KBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const int run = part / 2;
    int sc, mn;
    quant::SixBitPair(block + kScales, run, &sc, &mn);
    const float scale = block_fields::LoadHalf(block + kD) * static_cast<float>(sc);
    const float min = block_fields::LoadHalf(block + kDmin) * static_cast<float>(mn);
    const uint8_t* q = block + kQs + 32 * (run / 2) + 16 * (part % 2);
    const uint8_t* high = block + kQh + 16 * (part % 2);
    const int shift = 4 * (run % 2);
    for (int j = 0; j < 16; ++j) {
      const int code = ((q[j] >> shift) & 15) + 16 * ((high[j] >> run) & 1);
      y[j] = scale * static_cast<float>(code) - min;
    }
  }
};

template <>
struct BlockDecoder<quant::WeightFormat::kQ6K> : quant::Q6KBlock {
  BELLHOP_BLOCK_FUNCTION static void Decode16(const uint8_t* block, int part, const Codebooks&, float* y) {
    const float d = block_fields::LoadHalf(block + kD);
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[kScales + part]));
    const int half = part / 8;       // 128 elements: 64 bytes of ql, 32 of qh
    const int run = (part / 2) % 4;  // within the half
    const uint8_t* low = block + kQl + 64 * half + 32 * (run % 2) + 16 * (part % 2);
    const uint8_t* high = block + kQh + 32 * half + 16 * (part % 2);
    const int low_shift = 4 * (run / 2);
    const int high_shift = 2 * run;
    for (int j = 0; j < 16; ++j) {
      const int code = (((low[j] >> low_shift) & 15) | ((high[j] >> high_shift) & 3) << 4) - 32;
      y[j] = scale * static_cast<float>(code);
    }
  }
};

}  // namespace bellhop::kernels
