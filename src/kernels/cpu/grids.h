// Codebook grids (quant/codebooks.h) as the dot products read them: entries in binary32, so that a load gives exact
// codes, and the ternary grid of IQ1 with the sign of its delta.
#pragma once

#include <cstdint>

namespace bellhop::kernels {

template <int kEntries, int kWidth>
struct FloatGrid {
  alignas(64) float entry[kEntries][kWidth];
};
extern const FloatGrid<256, 8> kIq2xxsFloats;
extern const FloatGrid<512, 8> kIq2xsFloats;
extern const FloatGrid<1024, 8> kIq2sFloats;
extern const FloatGrid<256, 4> kIq3xxsFloats;
extern const FloatGrid<512, 4> kIq3sFloats;

// Index: 11 bits of kIq1sGrid, and bit 11 for a negative delta. Nibble j of an entry: element j plus one, plus four for
// a negative delta. kIq1Codes takes a nibble to the code (element + delta); twice eight values.
struct TernaryGrid {
  alignas(64) uint32_t entry[4096];
};
extern const TernaryGrid kIq1Ternary;
// Internal linkage: an inline variable would be a symbol shared with units of other instruction sets.
alignas(64) constexpr float kIq1Codes[16] = {-0.875f, 0.125f, 1.125f, 0, -1.125f, -0.125f, 0.875f, 0,
                                             -0.875f, 0.125f, 1.125f, 0, -1.125f, -0.125f, 0.875f, 0};

}  // namespace bellhop::kernels
