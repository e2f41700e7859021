// Where the codes of the planar formats lie (docs/formats.md). Private to quant/.
#pragma once

#include <cstdint>

#include "quant/format.h"
#include "quant/packed.h"

namespace bellhop::quant {

// SM80 codes: tiles of 4 (INT4) or 2 (INT8) rows by 64 columns are 128 bytes; tiles follow each other along the
// columns.
inline constexpr int64_t kSm80TileCols = 64;
inline constexpr int64_t kSm80TileBytes = 128;

// A code begins at bit `shift` of byte `byte`, and may reach into the next byte.
struct CodePlace {
  int64_t byte;
  int shift;
};

// A row of n codes packed from the low bits up.
constexpr int64_t PackedRowBytes(int bits, int64_t n) { return (n * bits + 7) / 8; }
constexpr CodePlace PackedPlace(int bits, int64_t index) {
  return {index * bits / 8, static_cast<int>(index * bits % 8)};
}

// From the start of the code plane. `row_bytes` as in QuantPlane.
constexpr CodePlace LocateCode(WeightFormat format, int64_t row_bytes, int64_t row, int64_t col) {
  const int64_t tile = col / kSm80TileCols * kSm80TileBytes;
  switch (format) {
    case WeightFormat::kInt4Sm80: {
      const int64_t nibble = 4 * (col & 7) + ((col & 31) >> 3);  // within the 16 bytes of 32 columns
      const int64_t byte = row / 4 * 4 * row_bytes + tile + row % 4 * 32 + col % 64 / 32 * 16 + nibble / 2;
      return {byte, static_cast<int>(nibble % 2 * 4)};
    }
    case WeightFormat::kInt8Sm80:
      return {row / 2 * 2 * row_bytes + tile + row % 2 * 64 + col % 64 / 16 * 16 + 2 * (col & 7) + ((col & 15) >> 3),
              0};
    case WeightFormat::kMxfp4KMajor:
    case WeightFormat::kNvfp4KMajor: return {col * row_bytes + row / 2, static_cast<int>(row % 2 * 4)};
    default: {
      const int bits = format == WeightFormat::kInt3 ? 3 : format == WeightFormat::kInt8 ? 8 : 4;
      const CodePlace place = PackedPlace(bits, col);
      return {row * row_bytes + place.byte, place.shift};
    }
  }
}

// Reads the next byte only if the code reaches into it.
inline uint32_t LoadCode(const std::byte* base, int bits, CodePlace place) {
  const uint8_t* p = Bytes(base) + place.byte;
  uint32_t word = p[0];
  if (place.shift + bits > 8) word |= static_cast<uint32_t>(p[1]) << 8;
  return word >> place.shift & ((1u << bits) - 1);
}

// The code's bits must be zero.
inline void AddCode(std::byte* base, int bits, CodePlace place, uint32_t code) {
  uint8_t* p = Bytes(base) + place.byte;
  const uint32_t word = code << place.shift;
  p[0] = static_cast<uint8_t>(p[0] | word);
  if (place.shift + bits > 8) p[1] = static_cast<uint8_t>(p[1] | word >> 8);
}

}  // namespace bellhop::quant
