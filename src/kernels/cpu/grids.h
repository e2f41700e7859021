// Codebook grids (quant/codebooks.h) as the dot products read them: entries in binary32, so that a load gives exact
// codes; numbers of levels packed into bytes; and the ternary grid of IQ1 with the sign of its delta.
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

// The sign bits of eight binary32 numbers, element j by bit j.
struct SignGrid {
  alignas(64) uint32_t entry[256][8];
};
extern const SignGrid kSignBits;

// The same entries as numbers of levels (kIq2Levels, kIq3xxsLevels, kIq3sLevels), with each byte of an entry in a table
// of its own, for lookups by byte permutes.
// Two bits for each element, ascending from bit 1 on and around to bit 0: elements 0 to 3 and 4 to 7.
template <int kEntries>
struct TwoBitGrid {
  alignas(64) uint8_t first[kEntries], second[kEntries];
};
extern const TwoBitGrid<256> kIq2xxsTwoBits;
extern const TwoBitGrid<512> kIq2xsTwoBits;
extern const TwoBitGrid<1024> kIq2sTwoBits;
// A nibble for each element: 0 and 2, 1 and 3. The top bit of each is clear.
template <int kEntries>
struct NibbleGrid {
  alignas(64) uint8_t even[kEntries], odd[kEntries];
};
extern const NibbleGrid<256> kIq3xxsNibbles;
extern const NibbleGrid<512> kIq3sNibbles;
// Levels by number; bit 3 of the number is the sign. Those of IQ2 stand twice, so that a table can hold the products
// with two scales by turns. Internal linkage, as for kIq1Codes.
alignas(64) constexpr float kIq2Levels[16] = {8, 8, 25, 25, 43, 43, 0, 0, -8, -8, -25, -25, -43, -43, 0, 0};
alignas(64) constexpr float kIq3xxsLevels[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
alignas(64) constexpr float kIq3sLevels[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};

// Index: 11 bits of kIq1sGrid, and bit 11 for a negative delta. Nibble j of an entry: element j plus one, plus four for
// a negative delta. kIq1Codes takes a nibble to the code (element + delta); twice eight values.
struct TernaryGrid {
  alignas(64) uint32_t entry[4096];
};
extern const TernaryGrid kIq1Ternary;
// The same nibbles times two, an index of kIq1CodePairs but for its lowest bit; those of even elements come first.
extern const TernaryGrid kIq1TernaryPairs;
// Internal linkage: an inline variable would be a symbol shared with units of other instruction sets.
alignas(64) constexpr float kIq1Codes[16] = {-0.875f, 0.125f, 1.125f, 0, -1.125f, -0.125f, 0.875f, 0,
                                             -0.875f, 0.125f, 1.125f, 0, -1.125f, -0.125f, 0.875f, 0};
// Each code twice, so that a table can hold the products with two scales by turns.
alignas(64) constexpr float kIq1CodePairs[16] = {-0.875f, -0.875f, 0.125f,  0.125f,  1.125f, 1.125f, 0, 0,
                                                 -1.125f, -1.125f, -0.125f, -0.125f, 0.875f, 0.875f, 0, 0};

}  // namespace bellhop::kernels
