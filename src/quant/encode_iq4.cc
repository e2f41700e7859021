// Search encoders of IQ4_NL and IQ4_XS: 16 uneven levels under one scale per 32 elements.
#include <algorithm>
#include <array>
#include <cmath>

#include "quant/block_codecs.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/encode_search.h"
#include "quant/half.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

using search::LoadWeights;
using search::ScaledFit;
using search::ScaledSearch;

// kIq4Values, repeated because the tables below are made at compile time.
constexpr std::array<int, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Midpoints between levels are multiples of 1/2, so half-unit cells decide which level is nearest: cell i holds the
// values from (i - 256) / 2 up to the next cell. A value on a midpoint takes the upper level.
constexpr int kCells = 512;

constexpr std::array<uint8_t, kCells> MakeCellIndices() {
  std::array<uint8_t, kCells> cells = {};
  for (int cell = 0; cell < kCells; ++cell) {
    size_t i = 0;
    while (i < 15 && cell - 256 >= kLevels[i] + kLevels[i + 1]) ++i;
    cells[static_cast<size_t>(cell)] = static_cast<uint8_t>(i);
  }
  return cells;
}
constexpr std::array<uint8_t, kCells> kCellIndices = MakeCellIndices();

constexpr std::array<float, kCells> MakeCellValues() {
  std::array<float, kCells> values = {};
  for (size_t cell = 0; cell < kCells; ++cell) values[cell] = static_cast<float>(kLevels[kCellIndices[cell]]);
  return values;
}
constexpr std::array<float, kCells> kCellValues = MakeCellValues();

struct Iq4Levels {
  static constexpr float kLowest = -127.0f, kHighest = 113.0f;

  static search::Int4 Cells(search::Float4 v) {
    v = v > kLowest ? v : search::Splat(kLowest);  // NaN becomes the lowest
    v = v < kHighest ? v : search::Splat(kHighest);
    return __builtin_convertvector(v * 2.0f + 256.0f, search::Int4);
  }
  static search::Float4 Nearest(search::Float4 v) {
    const search::Int4 cell = Cells(v);
    return search::Float4{Value(cell[0]), Value(cell[1]), Value(cell[2]), Value(cell[3])};
  }
  static int Index(float v) { return kCellIndices[static_cast<size_t>(Cells(search::Splat(v))[0])]; }

 private:
  static float Value(int32_t cell) { return kCellValues[static_cast<size_t>(cell)]; }
};

constexpr int kSteps = 8;       // group scale candidates on either side of an end of the levels
constexpr float kStep = 3.0f;   // their spacing in level units
constexpr int kCandidates = 2;  // IQ4_XS: integers that the largest group scale may become, from either end

// 32 codes at `scale` into 16 bytes.
void PackCodes(const float* x, float scale, uint8_t* q) {
  const float inverse = search::Inverse(scale);
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<uint8_t>(Iq4Levels::Index(x[j] * inverse) | Iq4Levels::Index(x[j + 16] * inverse) << 4);
  }
}

// The half next to `scale`, on either side of it, that leaves the smaller error; Inf when it is too large.
float NearbyHalfScale(const float* x, const float* w, float scale) {
  const uint16_t nearest = F32ToF16(scale);
  float best_scale = F16ToF32(nearest), best = search::kNoFit;
  if (std::isinf(best_scale)) return best_scale;
  for (int step : {0, -1, 1}) {  // a magnitude step; the sign bit stays
    if (step < 0 && (nearest & 0x7FFF) == 0) continue;
    const float candidate = F16ToF32(static_cast<uint16_t>(nearest + step));
    if (std::isinf(candidate)) continue;
    const float error = search::ScaleError<Iq4Levels, Q4_0Block::kElems>(x, w, candidate);
    if (error < best) {
      best = error;
      best_scale = candidate;
    }
  }
  return best_scale;
}

void EncodeIq4Nl(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Q4_0Block::kElems, b += Q4_0Block::kBytes) {
    float w[Q4_0Block::kElems];
    LoadWeights<Q4_0Block::kElems>(importance, w);
    if (importance != nullptr) importance += Q4_0Block::kElems;
    const float d = NearbyHalfScale(x, w, search::BestScale<Iq4Levels, Q4_0Block::kElems>(x, w, kSteps, kStep));
    StoreHalf(b + Q4_0Block::kD, d);
    PackCodes(x, d, b + Q4_0Block::kQs);
  }
}

void EncodeIq4Xs(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Iq4xsBlock::kElems, b += Iq4xsBlock::kBytes) {
    float w[Iq4xsBlock::kElems];
    LoadWeights<Iq4xsBlock::kElems>(importance, w);
    if (importance != nullptr) importance += Iq4xsBlock::kElems;
    const ScaledSearch<Iq4Levels, 8, 32, -32, 31> search(x, w, kSteps, kStep);
    const ScaledFit<8> fit = search.Run(kCandidates, 1);

    std::fill_n(b, Iq4xsBlock::kBytes, uint8_t{0});
    StoreHalf(b + Iq4xsBlock::kD, fit.d);
    unsigned high = 0;
    for (int g = 0; g < 8; ++g) {
      const unsigned v = static_cast<unsigned>(fit.ls[g] + 32);
      b[Iq4xsBlock::kScalesLow + g / 2] |= static_cast<uint8_t>((v & 15u) << (4 * (g % 2)));
      high |= (v >> 4) << (2 * g);
      PackCodes(x + 32 * g, fit.d * static_cast<float>(fit.ls[g]), b + Iq4xsBlock::kQs + 16 * g);
    }
    Store(b + Iq4xsBlock::kScalesHigh, static_cast<uint16_t>(high));
  }
}

}  // namespace

EncodeBlocksFn FindIqEncoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kIQ4NL: return EncodeIq4Nl;
    case WeightFormat::kIQ4XS: return EncodeIq4Xs;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
