// Decoders of the packed weight formats in pieces of 16 elements, for kernels of GPUs and for host code. They read no
// byte outside the block, at any alignment, and give the bits of quant::DecodeRow wherever its value is a number.
//
// For each format of block_decode.def:
//   template <> struct BlockDecoder<quant::WeightFormat::kQ4_0> {
//     static constexpr int kElems, kBytes;  // of a block, as in the traits table; of 16 elements for plain numbers
//     // y[0..15] = elements [16 * part, 16 * part + 16) of the block.
//     static void Decode16(const uint8_t* block, int part, const Codebooks& books, float* y);
//   };
// F32, F16 and BF16 alone have rows that are not whole pieces, whose tail takes
//     static float Decode1(const uint8_t* block, int element, const Codebooks& books);
#pragma once

#include "kernels/block_decode_fields.h"
#include "kernels/block_decode_iq.h"
#include "kernels/block_decode_k.h"
#include "kernels/block_decode_simple.h"

namespace bellhop::kernels {

// The tables of quant/codebooks.h where they lie in host memory.
Codebooks HostCodebooks();

}  // namespace bellhop::kernels
