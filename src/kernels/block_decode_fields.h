// What the decoders of block_decode.h share: the codebooks, fields at any alignment, and the f16 and table scales.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif
#if !defined(__CUDA_ARCH__)
#include <bit>
#include <cstring>
#endif

#include "base/host_device.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/weight_format.h"

namespace bellhop::kernels {

// The sixteen levels of a 4-bit code as signed bytes, level 0 lowest. By value: a kernel has them in its parameters,
// where a table would cost a gather per element.
struct CodeLevels {
  uint64_t low;   // of codes 0 to 7
  uint64_t high;  // of codes 8 to 15
};

// The tables of quant/codebooks.h that decoders read, entry after entry. A kernel gets a copy that points into device
// memory, where every table starts at a multiple of 8 bytes.
struct Codebooks {
  const uint8_t* iq2xxs_grid;         // kIq2xxsGrid
  const uint8_t* iq2xs_grid;          // kIq2xsGrid
  const uint8_t* iq2s_grid;           // kIq2sGrid
  const uint8_t* iq3xxs_grid;         // kIq3xxsGrid
  const uint8_t* iq3s_grid;           // kIq3sGrid
  const uint32_t* iq1s_grid_nibbles;  // kIq1sGridNibbles: half the cache lines of kIq1sGrid
  CodeLevels iq4_levels;              // kIq4Values
  CodeLevels fp4_levels;              // kFp4Values
};

template <quant::WeightFormat F>
struct BlockDecoder;

namespace block_fields {

#define BELLHOP_BLOCK_FUNCTION BELLHOP_ALWAYS_INLINE BELLHOP_HOST_DEVICE

BELLHOP_BLOCK_FUNCTION uint16_t Load16(const uint8_t* p) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint16_t>(p[0] | p[1] << 8);
#else
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
#endif
}

BELLHOP_BLOCK_FUNCTION uint32_t Load32(const uint8_t* p) {
#if defined(__CUDA_ARCH__)
  return Load16(p) | static_cast<uint32_t>(Load16(p + 2)) << 16;
#else
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
#endif
}

BELLHOP_BLOCK_FUNCTION float FloatOfBits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// A device may give a NaN other bits than the host.
BELLHOP_BLOCK_FUNCTION float FloatOfHalf(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(bits));
#else
  return quant::F16ToF32(bits);
#endif
}

BELLHOP_BLOCK_FUNCTION float LoadHalf(const uint8_t* p) { return FloatOfHalf(Load16(p)); }

// Entry `index` of a table with 4 or 8 bytes per entry, byte 0 lowest.
BELLHOP_BLOCK_FUNCTION uint32_t Entry4(const uint8_t* table, uint32_t index) {
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const uint32_t*>(table) + index);
#else
  return Load32(table + 4 * index);
#endif
}
BELLHOP_BLOCK_FUNCTION uint64_t Entry8(const uint8_t* table, uint32_t index) {
#if defined(__CUDA_ARCH__)
  const uint2 v = __ldg(reinterpret_cast<const uint2*>(table) + index);
  return v.x | static_cast<uint64_t>(v.y) << 32;
#else
  uint64_t v;
  std::memcpy(&v, table + 8 * index, sizeof(v));
  return v;
#endif
}

BELLHOP_BLOCK_FUNCTION float Level(const CodeLevels& levels, int code) {
  const uint64_t half = code & 8 ? levels.high : levels.low;
  return static_cast<float>(static_cast<int8_t>(half >> (8 * (code & 7))));
}

// kSignMasks: bit 7 makes the number of ones even. 0x6996 holds the parity of every nibble.
BELLHOP_BLOCK_FUNCTION uint32_t SignMask(uint32_t code) {
  return code | ((0x6996u >> ((code ^ code >> 4) & 15u)) & 1u) << 7;
}

// kE8m0Half: 2^(e-128), subnormal for 0 and 1.
BELLHOP_BLOCK_FUNCTION float E8m0Half(uint8_t e) {
  return FloatOfBits(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

// kUe4m3Half: half the unsigned E4M3 value without bit 7, zero for 0x7F.
BELLHOP_BLOCK_FUNCTION float Ue4m3Half(uint8_t byte) {
  const uint32_t magnitude = byte == 0x7F ? 0u : byte & 0x7Fu;
  if (magnitude < 8) return static_cast<float>(magnitude) * 0x1p-10f;
  return FloatOfBits((magnitude << 20) + (119u << 23));  // re-bias the exponent from 7 to 126 - 7
}

}  // namespace block_fields
}  // namespace bellhop::kernels
