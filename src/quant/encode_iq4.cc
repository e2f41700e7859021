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

// Midpoints between neighbouring levels of kIq4Values; a value belongs to the level whose midpoints enclose it.
// Written out so that the comparisons have constant operands.
constexpr std::array<int, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct Iq4Levels {
  static constexpr float kLowest = -127.0f, kHighest = 113.0f;

  // Index of the level nearest to v; 0 for NaN. At most one midpoint lies in a unit interval, so a table of the
  // interval starts and one comparison decide.
  static int Index(float v) {
    v = v > kLowest ? v : kLowest;
    v = v < kHighest ? v : kHighest;
    const int start = kStart[static_cast<size_t>(static_cast<int>(v + 128.0f))];
    return start + (v > kMiddle[static_cast<size_t>(start)] ? 1 : 0);
  }
  static search::Float4 Nearest(search::Float4 v) {
    return search::Float4{kValue[static_cast<size_t>(Index(v[0]))], kValue[static_cast<size_t>(Index(v[1]))],
                          kValue[static_cast<size_t>(Index(v[2]))], kValue[static_cast<size_t>(Index(v[3]))]};
  }

 private:
  static constexpr std::array<float, 16> MakeValues() {
    std::array<float, 16> values = {};
    for (size_t i = 0; i < 16; ++i) values[i] = static_cast<float>(kLevels[i]);
    return values;
  }
  static constexpr std::array<float, 16> MakeMiddles() {
    std::array<float, 16> middles = {};
    for (size_t i = 0; i < 15; ++i) middles[i] = static_cast<float>(kLevels[i] + kLevels[i + 1]) * 0.5f;
    middles[15] = 1000.0f;  // above every clamped value
    return middles;
  }
  // Entry b: the level nearest to b - 128, the lower one on a tie.
  static constexpr std::array<uint8_t, 256> MakeStarts() {
    std::array<uint8_t, 256> starts = {};
    for (int b = 0; b < 256; ++b) {
      size_t i = 0;
      while (i < 15 && 2 * (b - 128) > kLevels[i] + kLevels[i + 1]) ++i;
      starts[static_cast<size_t>(b)] = static_cast<uint8_t>(i);
    }
    return starts;
  }

  static const std::array<float, 16> kValue, kMiddle;
  static const std::array<uint8_t, 256> kStart;
};

constexpr std::array<float, 16> Iq4Levels::kValue = Iq4Levels::MakeValues();
constexpr std::array<float, 16> Iq4Levels::kMiddle = Iq4Levels::MakeMiddles();
constexpr std::array<uint8_t, 256> Iq4Levels::kStart = Iq4Levels::MakeStarts();

constexpr int kSteps = 12;      // group scale candidates on either side of an end of the levels
constexpr float kStep = 2.0f;   // their spacing in level units
constexpr int kCandidates = 4;  // IQ4_XS: integers that the largest group scale may become, from either end

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
    LoadWeights<1, Q4_0Block::kElems>(importance, w);
    if (importance != nullptr) importance += Q4_0Block::kElems;
    const float d = NearbyHalfScale(x, w, search::BestScale<Iq4Levels, Q4_0Block::kElems>(x, w, kSteps, kStep));
    StoreHalf(b + Q4_0Block::kD, d);
    PackCodes(x, d, b + Q4_0Block::kQs);
  }
}

void EncodeIq4Xs(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  for (; blocks > 0; --blocks, x += Iq4xsBlock::kElems, b += Iq4xsBlock::kBytes) {
    float w[Iq4xsBlock::kElems];
    LoadWeights<8, 32>(importance, w);
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
