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

TernaryGrid TernaryWithDelta() {
  TernaryGrid ternary;
  for (uint32_t i = 0; i < 4096; ++i) {
    const uint32_t negative = i >> 11 << 2;
    uint32_t nibbles = 0;
    for (int j = 0; j < 8; ++j) {
      nibbles |= (static_cast<uint32_t>(quant::kIq1sGrid[i & 2047][j] + 1) | negative) << (4 * j);
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
const TernaryGrid kIq1Ternary = TernaryWithDelta();

}  // namespace bellhop::kernels
