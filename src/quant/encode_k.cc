// Search encoders of Q2_K .. Q6_K (encode_search.h); this file packs what the searches find.
#include <algorithm>

#include "quant/block_codecs.h"
#include "quant/blocks.h"
#include "quant/encode_search.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

using search::AffineFit;
using search::AffineSearch;
using search::IntegerLevels;
using search::LoadWeights;
using search::ScaledFit;
using search::ScaledSearch;

constexpr int kElems = 256;

// How wide a search is: candidates of the group scale on either side and their spacing in code units, candidates of
// the block scale, and integer group scales tried on either side of the continuous one.
struct Effort {
  int steps;
  float step;
  int candidates;
  int window;
};

constexpr Effort kEffortQ2K = {12, 0.2f, 2, 1};
constexpr Effort kEffortQ3K = {7, 0.15f, 3, 1};
constexpr Effort kEffortQ4K = {12, 0.5f, 2, 1};
constexpr Effort kEffortQ5K = {12, 0.5f, 2, 1};
constexpr Effort kEffortQ6K = {5, 0.2f, 1, 1};

// ---- scale * code: Q3_K, Q6_K

template <int kGroups, typename Levels>
void ScaledCodes(const float* x, const ScaledFit<kGroups>& fit, uint8_t* codes) {
  constexpr int kSize = kElems / kGroups;
  for (int e = 0; e < kElems; ++e) {
    const float inverse = search::Inverse(fit.d * static_cast<float>(fit.ls[e / kSize]));
    codes[e] = static_cast<uint8_t>(static_cast<int>(Levels::Nearest(x[e] * inverse) - Levels::kLowest));
  }
}

void PackQ3K(const ScaledFit<16>& fit, const uint8_t* codes, uint8_t* b) {
  std::fill_n(b, Q3KBlock::kBytes, uint8_t{0});
  StoreHalf(b + Q3KBlock::kD, fit.d);
  uint8_t* s = b + Q3KBlock::kScales;
  for (int g = 0; g < 16; ++g) {
    const int v = fit.ls[g] + 32;
    s[g % 8] |= static_cast<uint8_t>((v & 15) << (4 * (g / 8)));
    s[8 + g % 4] |= static_cast<uint8_t>((v >> 4) << (2 * (g / 4)));
  }
  for (int e = 0; e < kElems; ++e) {
    b[Q3KBlock::kQs + 32 * (e / 128) + e % 32] |= static_cast<uint8_t>((codes[e] & 3) << (2 * ((e % 128) / 32)));
    b[Q3KBlock::kHmask + e % 32] |= static_cast<uint8_t>((codes[e] >> 2) << (e / 32));
  }
}

void EncodeQ3K(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  using Levels = IntegerLevels<-4, 3>;
  for (; blocks > 0; --blocks, x += kElems, b += Q3KBlock::kBytes) {
    float w[kElems];
    LoadWeights<kElems>(importance, w);
    if (importance != nullptr) importance += kElems;
    const ScaledSearch<Levels, 16, 16, -32, 31> search(x, w, kEffortQ3K.steps, kEffortQ3K.step);
    const ScaledFit<16> fit = search.Run(kEffortQ3K.candidates, kEffortQ3K.window);
    uint8_t codes[kElems];
    ScaledCodes<16, Levels>(x, fit, codes);
    PackQ3K(fit, codes, b);
  }
}

void PackQ6K(const ScaledFit<16>& fit, const uint8_t* codes, uint8_t* b) {
  std::fill_n(b, Q6KBlock::kBytes, uint8_t{0});
  StoreHalf(b + Q6KBlock::kD, fit.d);
  for (int g = 0; g < 16; ++g) b[Q6KBlock::kScales + g] = static_cast<uint8_t>(fit.ls[g]);
  for (int e = 0; e < kElems; ++e) {
    const int half = e / 128, run = (e % 128) / 32, l = e % 32;
    b[Q6KBlock::kQl + 64 * half + 32 * (run % 2) + l] |= static_cast<uint8_t>((codes[e] & 15) << (4 * (run / 2)));
    b[Q6KBlock::kQh + 32 * half + l] |= static_cast<uint8_t>((codes[e] >> 4) << (2 * run));
  }
}

void EncodeQ6K(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  using Levels = IntegerLevels<-32, 31>;
  for (; blocks > 0; --blocks, x += kElems, b += Q6KBlock::kBytes) {
    float w[kElems];
    LoadWeights<kElems>(importance, w);
    if (importance != nullptr) importance += kElems;
    const ScaledSearch<Levels, 16, 16, -128, 127> search(x, w, kEffortQ6K.steps, kEffortQ6K.step);
    const ScaledFit<16> fit = search.Run(kEffortQ6K.candidates, kEffortQ6K.window);
    uint8_t codes[kElems];
    ScaledCodes<16, Levels>(x, fit, codes);
    PackQ6K(fit, codes, b);
  }
}

// ---- scale * code - min: Q2_K, Q4_K, Q5_K

template <int kTop, int kGroups, int kScaleTop>
AffineFit<kGroups> FitAffine(const float* x, const float* w, const Effort& effort) {
  using Search = AffineSearch<kTop, kGroups, kElems / kGroups, kScaleTop>;
  AffineFit<kGroups> best = Search(x, w, 1.0f, effort.steps, effort.step).Run(effort.candidates, effort.window);
  if (*std::min_element(x, x + kElems) > 0.0f) {
    // All values above zero: a negative minimum scale lets the codes start at the lowest value.
    const AffineFit<kGroups> raised =
        Search(x, w, -1.0f, effort.steps, effort.step).Run(effort.candidates, effort.window);
    if (raised.error < best.error) best = raised;
  }
  return best;
}

template <int kTop, int kGroups>
void AffineCodes(const float* x, const AffineFit<kGroups>& fit, uint8_t* codes) {
  constexpr int kSize = kElems / kGroups;
  for (int e = 0; e < kElems; ++e) {
    const int g = e / kSize;
    const float inverse = search::Inverse(fit.d * static_cast<float>(fit.sc[g]));
    const float min = fit.dmin * static_cast<float>(fit.mn[g]);
    codes[e] = static_cast<uint8_t>(IntegerLevels<0, kTop>::Nearest((x[e] + min) * inverse));
  }
}

void EncodeQ2K(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  for (; blocks > 0; --blocks, x += kElems, b += Q2KBlock::kBytes) {
    float w[kElems];
    LoadWeights<kElems>(importance, w);
    if (importance != nullptr) importance += kElems;
    const AffineFit<16> fit = FitAffine<3, 16, 15>(x, w, kEffortQ2K);
    uint8_t codes[kElems];
    AffineCodes<3, 16>(x, fit, codes);

    std::fill_n(b, Q2KBlock::kBytes, uint8_t{0});
    StoreHalf(b + Q2KBlock::kD, fit.d);
    StoreHalf(b + Q2KBlock::kDmin, fit.dmin);
    for (int g = 0; g < 16; ++g) b[Q2KBlock::kScales + g] = static_cast<uint8_t>(fit.sc[g] | fit.mn[g] << 4);
    for (int e = 0; e < kElems; ++e) {
      b[Q2KBlock::kQs + 32 * (e / 128) + e % 32] |= static_cast<uint8_t>(codes[e] << (2 * ((e % 128) / 32)));
    }
  }
}

// The 12 bytes of Q4_K and Q5_K; SixBitPair reads them back. `s` is zero on entry.
void PackSixBitPairs(const AffineFit<8>& fit, uint8_t* s) {
  for (int g = 0; g < 8; ++g) {
    const int sc = fit.sc[g], mn = fit.mn[g];
    if (g < 4) {
      s[g] |= static_cast<uint8_t>(sc);
      s[g + 4] |= static_cast<uint8_t>(mn);
    } else {
      s[g + 4] |= static_cast<uint8_t>((sc & 15) | (mn & 15) << 4);
      s[g - 4] |= static_cast<uint8_t>((sc >> 4) << 6);
      s[g] |= static_cast<uint8_t>((mn >> 4) << 6);
    }
  }
}

void EncodeQ4K(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  for (; blocks > 0; --blocks, x += kElems, b += Q4KBlock::kBytes) {
    float w[kElems];
    LoadWeights<kElems>(importance, w);
    if (importance != nullptr) importance += kElems;
    const AffineFit<8> fit = FitAffine<15, 8, 63>(x, w, kEffortQ4K);
    uint8_t codes[kElems];
    AffineCodes<15, 8>(x, fit, codes);

    std::fill_n(b, Q4KBlock::kBytes, uint8_t{0});
    StoreHalf(b + Q4KBlock::kD, fit.d);
    StoreHalf(b + Q4KBlock::kDmin, fit.dmin);
    PackSixBitPairs(fit, b + Q4KBlock::kScales);
    for (int e = 0; e < kElems; ++e) {
      b[Q4KBlock::kQs + 32 * (e / 64) + e % 32] |= static_cast<uint8_t>(codes[e] << (4 * ((e / 32) % 2)));
    }
  }
}

void EncodeQ5K(const float* x, int64_t blocks, const float* importance, uint8_t* b) {
  for (; blocks > 0; --blocks, x += kElems, b += Q5KBlock::kBytes) {
    float w[kElems];
    LoadWeights<kElems>(importance, w);
    if (importance != nullptr) importance += kElems;
    const AffineFit<8> fit = FitAffine<31, 8, 63>(x, w, kEffortQ5K);
    uint8_t codes[kElems];
    AffineCodes<31, 8>(x, fit, codes);

    std::fill_n(b, Q5KBlock::kBytes, uint8_t{0});
    StoreHalf(b + Q5KBlock::kD, fit.d);
    StoreHalf(b + Q5KBlock::kDmin, fit.dmin);
    PackSixBitPairs(fit, b + Q5KBlock::kScales);
    for (int e = 0; e < kElems; ++e) {
      b[Q5KBlock::kQs + 32 * (e / 64) + e % 32] |= static_cast<uint8_t>((codes[e] & 15) << (4 * ((e / 32) % 2)));
      b[Q5KBlock::kQh + e % 32] |= static_cast<uint8_t>((codes[e] >> 4) << (e / 32));
    }
  }
}

}  // namespace

EncodeBlocksFn FindKEncoder(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ2K: return EncodeQ2K;
    case WeightFormat::kQ3K: return EncodeQ3K;
    case WeightFormat::kQ4K: return EncodeQ4K;
    case WeightFormat::kQ5K: return EncodeQ5K;
    case WeightFormat::kQ6K: return EncodeQ6K;
    default: return nullptr;
  }
}

}  // namespace bellhop::quant
