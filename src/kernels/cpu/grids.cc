#include "kernels/cpu/grids.h"

#include "quant/codebooks.h"

namespace bellhop::kernels {
namespace {

template <int kEntries, int kWidth>
FloatGrid<kEntries, kWidth> Widened(const uint8_t (&grid)[kEntries][kWidth]) {
  FloatGrid<kEntries, kWidth> wide;
  for (int i = 0; i < kEntries; ++i) {
    for (int j = 0; j < kWidth; ++j) wide.entry[i][j] = grid[i][j];
  }
  return wide;
}

SignGrid SignBits() {
  SignGrid signs;
  for (uint32_t i = 0; i < 256; ++i) {
    for (uint32_t j = 0; j < 8; ++j) signs.entry[i][j] = (i >> j & 1) << 31;
  }
  return signs;
}

int LevelNumber(const float (&levels)[16], uint8_t value) {
  int i = 0;
  while (levels[i] != static_cast<float>(value)) ++i;
  return i;
}

template <int kEntries>
TwoBitGrid<kEntries> TwoBits(const uint8_t (&grid)[kEntries][8]) {
  TwoBitGrid<kEntries> packed = {};
  for (int i = 0; i < kEntries; ++i) {
    for (int j = 0; j < 8; ++j) {
      const int bits = LevelNumber(kIq2Levels, grid[i][j]) / 2 << (2 * (j % 4) + 1);
      uint8_t& byte = (j < 4 ? packed.first : packed.second)[i];
      byte = static_cast<uint8_t>(byte | bits | bits >> 8);
    }
  }
  return packed;
}

template <int kEntries>
NibbleGrid<kEntries> Nibbles(const uint8_t (&grid)[kEntries][4], const float (&levels)[16]) {
  NibbleGrid<kEntries> packed;
  for (int i = 0; i < kEntries; ++i) {
    const auto pair = [&](int low, int high) {
      return static_cast<uint8_t>(LevelNumber(levels, grid[i][low]) | LevelNumber(levels, grid[i][high]) << 4);
    };
    packed.even[i] = pair(0, 2);
    packed.odd[i] = pair(1, 3);
  }
  return packed;
}

// Nibble of element j at bit place[j] of an entry.
TernaryGrid TernaryWithDelta(const uint32_t (&place)[8], int shift) {
  TernaryGrid ternary;
  for (uint32_t i = 0; i < 4096; ++i) {
    const uint32_t negative = i >> 11 << 2;
    uint32_t nibbles = 0;
    for (int j = 0; j < 8; ++j) {
      nibbles |= ((static_cast<uint32_t>(quant::kIq1sGrid[i & 2047][j] + 1) | negative) << shift) << place[j];
    }
    ternary.entry[i] = nibbles;
  }
  return ternary;
}

}  // namespace

// Made from constants when the program is loaded, before anything can read them.
const FloatGrid<256, 8> kIq2xxsFloats = Widened(quant::kIq2xxsGrid);
const FloatGrid<512, 8> kIq2xsFloats = Widened(quant::kIq2xsGrid);
const FloatGrid<1024, 8> kIq2sFloats = Widened(quant::kIq2sGrid);
const FloatGrid<256, 4> kIq3xxsFloats = Widened(quant::kIq3xxsGrid);
const FloatGrid<512, 4> kIq3sFloats = Widened(quant::kIq3sGrid);
const SignGrid kSignBits = SignBits();
const TwoBitGrid<256> kIq2xxsTwoBits = TwoBits(quant::kIq2xxsGrid);
const TwoBitGrid<512> kIq2xsTwoBits = TwoBits(quant::kIq2xsGrid);
const TwoBitGrid<1024> kIq2sTwoBits = TwoBits(quant::kIq2sGrid);
const NibbleGrid<256> kIq3xxsNibbles = Nibbles(quant::kIq3xxsGrid, kIq3xxsLevels);
const NibbleGrid<512> kIq3sNibbles = Nibbles(quant::kIq3sGrid, kIq3sLevels);
const TernaryGrid kIq1Ternary = TernaryWithDelta({0, 4, 8, 12, 16, 20, 24, 28}, 0);
const TernaryGrid kIq1TernaryPairs = TernaryWithDelta({0, 16, 4, 20, 8, 24, 12, 28}, 1);

}  // namespace bellhop::kernels
