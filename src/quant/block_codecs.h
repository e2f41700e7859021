// The decoders and encoders behind DecodeRow and EncodeRow, by family. Private to quant/.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace bellhop::quant {

// Decode `blocks` consecutive blocks.
using DecodeBlocksFn = void (*)(const uint8_t* src, int64_t blocks, float* dst);
// Encode `blocks` consecutive blocks of finite values; `importance` has one entry per element or is null.
using EncodeBlocksFn = void (*)(const float* src, int64_t blocks, const float* importance, uint8_t* dst);

// Null where the family does not hold the format.
DecodeBlocksFn FindPlainDecoder(WeightFormat format);   // decode_plain.cc: F32 .. I64
DecodeBlocksFn FindSimpleDecoder(WeightFormat format);  // decode_simple.cc: one scale per block, FP4, ternary
DecodeBlocksFn FindKDecoder(WeightFormat format);       // decode_k.cc: Q2_K .. Q8_K
DecodeBlocksFn FindIqDecoder(WeightFormat format);      // decode_iq.cc: codebook formats

EncodeBlocksFn FindPlainEncoder(WeightFormat format);   // encode_plain.cc: F32, F16, BF16
EncodeBlocksFn FindSimpleEncoder(WeightFormat format);  // encode_simple.cc: byte-exact rules
EncodeBlocksFn FindKEncoder(WeightFormat format);       // encode_k.cc: searches Q2_K .. Q6_K
EncodeBlocksFn FindIqEncoder(WeightFormat format);      // encode_iq4.cc: searches IQ4_NL, IQ4_XS

}  // namespace bellhop::quant
