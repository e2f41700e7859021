// Least-squares searches behind the K and IQ4 encoders. Private to quant/.
//
// Every search minimises sum(w * (decoded - x)^2) over one block, w being the importance (1 without it), with the
// scales as the decoder will see them: the f16 block scale is rounded before codes and group scales are chosen.
//   1. per group: a continuous scale (and minimum) from a grid of candidates, each refined by least squares;
//   2. per block: candidates for the f16 scale; each group tries the integer scales near its continuous one;
//   3. the f16 scale is refitted by least squares on the chosen codes, and step 2 repeats while that helps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quant/half.h"

namespace bellhop::quant::search {

// Error of a block that no scale has been found for. A search that ends with it needs a block scale beyond the largest
// half, and returns d = Inf, which EncodeRow refuses.
inline constexpr float kNoFit = std::numeric_limits<float>::max();

inline constexpr int kRefits = 4;  // rounds of step 3 at most; nearly all blocks stop after one or two

// Four floats; every target has room for them in one register.
using Float4 [[gnu::vector_size(16)]] = float;
using Int4 [[gnu::vector_size(16)]] = int32_t;

inline Float4 Load4(const float* p) { return Float4{p[0], p[1], p[2], p[3]}; }
inline Float4 Splat(float v) { return Float4{v, v, v, v}; }
inline float Sum(Float4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }

inline float Inverse(float d) {
  const float inverse = 1.0f / d;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// Nearest half as binary32, but never zero for a non-zero value: the smallest subnormal still holds something.
inline float ToHalfScale(float d) {
  const float h = F16ToF32(F32ToF16(d));
  return h == 0.0f && d != 0.0f ? std::copysign(0x1p-24f, d) : h;
}

// Weights of one block, the largest about 1. The floor keeps elements without importance near their values, and makes
// a group of zeros uniform.
template <int kCount>
void LoadWeights(const float* importance, float* w) {
  constexpr float kFloor = 0x1p-20f;
  if (importance == nullptr) {
    std::fill_n(w, kCount, 1.0f);
    return;
  }
  const float inverse = Inverse(*std::max_element(importance, importance + kCount));
  for (int i = 0; i < kCount; ++i) w[i] = importance[i] * inverse + kFloor;
}

// Integer codes kLo..kHi. NaN gives a code in range too.
template <int kLo, int kHi>
struct IntegerLevels {
  static constexpr float kLowest = kLo, kHighest = kHi;

  static Float4 Nearest(Float4 v) {
    // Adding 1.5 * 2^23 makes one unit in the last place 1, so the addition rounds to an integer.
    constexpr float kRounder = 0x1.8p23f;
    v = v > kLowest ? v : Splat(kLowest);
    v = v < kHighest ? v : Splat(kHighest);
    return (v + kRounder) - kRounder;
  }
  static float Nearest(float v) { return Nearest(Splat(v))[0]; }
};

// ---- value = scale * level -----------------------------------------------------------------------------------------

struct ScaleSums {
  float xc = 0.0f;  // sum w x c
  float cc = 0.0f;  // sum w c c
};

template <typename Levels, int kSize>
ScaleSums SumCodes(const float* x, const float* w, float inverse) {
  Float4 xc = {}, cc = {};
  for (int i = 0; i < kSize; i += 4) {
    const Float4 xi = Load4(x + i);
    const Float4 c = Levels::Nearest(xi * inverse);
    const Float4 wc = Load4(w + i) * c;
    xc += wc * xi;
    cc += wc * c;
  }
  return {Sum(xc), Sum(cc)};
}

template <typename Levels, int kSize>
float ScaleError(const float* x, const float* w, float scale) {
  const float inverse = Inverse(scale);
  Float4 error = {};
  for (int i = 0; i < kSize; i += 4) {
    const Float4 xi = Load4(x + i);
    const Float4 e = Levels::Nearest(xi * inverse) * scale - xi;
    error += Load4(w + i) * e * e;
  }
  return Sum(error);
}

// Continuous scale of one group. Candidates map the largest magnitude to the ends of the levels and around them.
template <typename Levels, int kSize>
float BestScale(const float* x, const float* w, int steps, float step) {
  float extreme = 0.0f;
  for (int i = 0; i < kSize; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  if (extreme == 0.0f) return 0.0f;
  float best_scale = 0.0f, best_gain = 0.0f;
  const auto try_inverse = [&](float inverse) {
    const ScaleSums s = SumCodes<Levels, kSize>(x, w, inverse);
    const float scale = s.cc > 0.0f ? s.xc / s.cc : 0.0f;
    if (s.xc * scale > best_gain) {  // the squared error is sum(w x x) - xc^2 / cc
      best_gain = s.xc * scale;
      best_scale = scale;
    }
  };
  for (float end : {Levels::kLowest, Levels::kHighest}) {
    for (int k = -steps; k <= steps; ++k) try_inverse((end + step * static_cast<float>(k)) / extreme);
  }
  for (int round = 0; round < 2; ++round) {
    const float before = best_gain;
    try_inverse(Inverse(best_scale));
    if (!(best_gain > before)) break;
  }
  return best_scale;
}

// One block of kGroups groups: value = d * ls * level, ls in [kScaleLo, kScaleHi].
template <int kGroups>
struct ScaledFit {
  float d = 0.0f;
  int ls[kGroups] = {};
  float error = kNoFit;
};

template <typename Levels, int kGroups, int kSize, int kScaleLo, int kScaleHi>
class ScaledSearch {
 public:
  using Fit = ScaledFit<kGroups>;

  ScaledSearch(const float* x, const float* w, int steps, float step) : x_(x), w_(w) {
    for (int g = 0; g < kGroups; ++g) {
      target_[g] = BestScale<Levels, kSize>(x + g * kSize, w + g * kSize, steps, step);
      if (std::fabs(target_[g]) > std::fabs(top_)) top_ = target_[g];
    }
  }

  // Tries `candidates` ways to map the largest group scale to an integer, from each end of the integer range.
  Fit Run(int candidates, int window) const {
    Fit best;
    if (top_ == 0.0f) return best;
    for (int k = 0; k < candidates; ++k) {
      for (int end : {kScaleLo + k, kScaleHi - k}) {
        AssignScales(ToHalfScale(top_ / static_cast<float>(end)), window, &best);
      }
    }
    for (int round = 0; round < kRefits && best.error < kNoFit; ++round) {
      const float d = Refit(best);
      if (d == 0.0f || !AssignScales(ToHalfScale(d), window, &best)) break;
    }
    if (best.error == kNoFit) best.d = std::numeric_limits<float>::infinity();
    return best;
  }

 private:
  // Replaces *best when block scale d allows a smaller error.
  bool AssignScales(float d, int window, Fit* best) const {
    Fit fit;
    fit.d = d;
    fit.error = 0.0f;
    const float inverse = Inverse(d);
    for (int g = 0; g < kGroups && fit.error < best->error; ++g) {
      const int near = static_cast<int>(ScaleLevels::Nearest(target_[g] * inverse));
      float group_error = kNoFit;
      for (int ls = std::max(near - window, kScaleLo); ls <= std::min(near + window, kScaleHi); ++ls) {
        const float error = ScaleError<Levels, kSize>(x_ + g * kSize, w_ + g * kSize, d * static_cast<float>(ls));
        if (error < group_error) {
          group_error = error;
          fit.ls[g] = ls;
        }
      }
      fit.error += group_error;
    }
    if (!(fit.error < best->error)) return false;
    *best = fit;
    return true;
  }

  float Refit(const Fit& fit) const {
    float xc = 0.0f, cc = 0.0f;
    for (int g = 0; g < kGroups; ++g) {
      const float ls = static_cast<float>(fit.ls[g]);
      const ScaleSums s = SumCodes<Levels, kSize>(x_ + g * kSize, w_ + g * kSize, Inverse(fit.d * ls));
      xc += ls * s.xc;
      cc += ls * ls * s.cc;
    }
    return cc > 0.0f ? xc / cc : 0.0f;
  }

  using ScaleLevels = IntegerLevels<kScaleLo, kScaleHi>;

  const float* x_;
  const float* w_;
  float target_[kGroups] = {};
  float top_ = 0.0f;
};

// ---- value = scale * code - min, code in [0, kTop] ---------------------------------------------------------------

struct Affine {
  float scale = 0.0f;
  float min = 0.0f;
};

struct AffineSums {
  float c = 0.0f, cc = 0.0f, xc = 0.0f;  // sums of w c, w c c, w x c
};

template <int kTop, int kSize>
AffineSums SumAffine(const float* x, const float* w, Affine a) {
  using Levels = IntegerLevels<0, kTop>;
  const float inverse = Inverse(a.scale);
  Float4 c1 = {}, c2 = {}, xc = {};
  for (int i = 0; i < kSize; i += 4) {
    const Float4 xi = Load4(x + i);
    const Float4 c = Levels::Nearest((xi + a.min) * inverse);
    const Float4 wc = Load4(w + i) * c;
    c1 += wc;
    c2 += wc * c;
    xc += wc * xi;
  }
  return {Sum(c1), Sum(c2), Sum(xc)};
}

template <int kTop, int kSize>
float AffineError(const float* x, const float* w, Affine a) {
  using Levels = IntegerLevels<0, kTop>;
  const float inverse = Inverse(a.scale);
  Float4 error = {};
  for (int i = 0; i < kSize; i += 4) {
    const Float4 xi = Load4(x + i);
    const Float4 e = (Levels::Nearest((xi + a.min) * inverse) * a.scale - a.min) - xi;
    error += Load4(w + i) * e * e;
  }
  return Sum(error);
}

// Continuous scale and minimum of one group. `sign` is the sign that min may have.
template <int kTop, int kSize>
Affine BestAffine(const float* x, const float* w, float sign, int steps, float step) {
  float sum_w = 0.0f, sum_x = 0.0f, lowest = x[0], highest = x[0];
  for (int i = 0; i < kSize; ++i) {
    sum_w += w[i];
    sum_x += w[i] * x[i];
    lowest = std::min(lowest, x[i]);
    highest = std::max(highest, x[i]);
  }
  if (lowest * sign > 0.0f) lowest = 0.0f;  // min = -lowest must have `sign`
  if (!(highest > lowest)) return {0.0f, -lowest};

  Affine best{0.0f, 0.0f};
  float best_error = kNoFit;
  const auto try_codes = [&](Affine from) {
    const AffineSums s = SumAffine<kTop, kSize>(x, w, from);
    const float det = sum_w * s.cc - s.c * s.c;
    Affine fit;
    if (det > 0.0f) {
      fit.scale = (sum_w * s.xc - s.c * sum_x) / det;
      fit.min = (s.c * s.xc - s.cc * sum_x) / det;
    }
    if (!(det > 0.0f) || fit.min * sign < 0.0f) fit = {s.cc > 0.0f ? s.xc / s.cc : 0.0f, 0.0f};
    if (!(fit.scale > 0.0f)) return false;
    const float error = AffineError<kTop, kSize>(x, w, fit);
    if (!(error < best_error)) return false;
    best_error = error;
    best = fit;
    return true;
  };
  // From one code fewer than the format has (evenly spaced values may need that) to a clipped range.
  for (int k = -static_cast<int>(1.0f / step); k <= steps; ++k) {
    try_codes({(highest - lowest) / (static_cast<float>(kTop) + step * static_cast<float>(k)), -lowest});
  }
  for (int round = 0; round < 3 && try_codes(best); ++round) {
  }
  return best;
}

// One block of kGroups groups: value = d * sc * code - dmin * mn, sc and mn in [0, kScaleTop].
template <int kGroups>
struct AffineFit {
  float d = 0.0f, dmin = 0.0f;
  int sc[kGroups] = {}, mn[kGroups] = {};
  float error = kNoFit;
};

template <int kTop, int kGroups, int kSize, int kScaleTop>
class AffineSearch {
 public:
  using Fit = AffineFit<kGroups>;

  AffineSearch(const float* x, const float* w, float sign, int steps, float step) : x_(x), w_(w) {
    for (int g = 0; g < kGroups; ++g) {
      target_[g] = BestAffine<kTop, kSize>(x + g * kSize, w + g * kSize, sign, steps, step);
      top_scale_ = std::max(top_scale_, target_[g].scale);
      if (std::fabs(target_[g].min) > std::fabs(top_min_)) top_min_ = target_[g].min;
    }
  }

  Fit Run(int candidates, int window) const {
    Fit best;
    for (int k = 0; k < candidates; ++k) {
      const float d = ToHalfScale(top_scale_ / static_cast<float>(kScaleTop - k));
      for (int m = 0; m < candidates; ++m) {
        AssignScales(d, ToHalfScale(top_min_ / static_cast<float>(kScaleTop - m)), window, &best);
      }
    }
    for (int round = 0; round < kRefits && best.error < kNoFit; ++round) {
      float d, dmin;
      if (!Refit(best, &d, &dmin) || !AssignScales(ToHalfScale(d), ToHalfScale(dmin), window, &best)) break;
    }
    if (best.error == kNoFit) best.d = std::numeric_limits<float>::infinity();
    return best;
  }

 private:
  // Replaces *best when block scales d and dmin allow a smaller error.
  bool AssignScales(float d, float dmin, int window, Fit* best) const {
    using ScaleLevels = IntegerLevels<0, kScaleTop>;
    Fit fit;
    fit.d = d;
    fit.dmin = dmin;
    fit.error = 0.0f;
    const float inv_d = Inverse(d), inv_dmin = Inverse(dmin);
    const int mn_window = dmin == 0.0f ? 0 : window;
    for (int g = 0; g < kGroups && fit.error < best->error; ++g) {
      const int near_sc = static_cast<int>(ScaleLevels::Nearest(target_[g].scale * inv_d));
      const int near_mn = static_cast<int>(ScaleLevels::Nearest(target_[g].min * inv_dmin));
      float group_error = kNoFit;
      for (int sc = std::max(near_sc - window, 0); sc <= std::min(near_sc + window, kScaleTop); ++sc) {
        for (int mn = std::max(near_mn - mn_window, 0); mn <= std::min(near_mn + mn_window, kScaleTop); ++mn) {
          const Affine a{d * static_cast<float>(sc), dmin * static_cast<float>(mn)};
          const float error = AffineError<kTop, kSize>(x_ + g * kSize, w_ + g * kSize, a);
          if (error < group_error) {
            group_error = error;
            fit.sc[g] = sc;
            fit.mn[g] = mn;
          }
        }
      }
      fit.error += group_error;
    }
    if (!(fit.error < best->error)) return false;
    *best = fit;
    return true;
  }

  // Least squares for d and dmin on the codes of `fit`; false when the codes do not determine a scale.
  bool Refit(const Fit& fit, float* d, float* dmin) const {
    // Minimise sum w (d A - dmin B - x)^2 with A = sc * code, B = mn.
    double aa = 0.0, ab = 0.0, bb = 0.0, ax = 0.0, bx = 0.0;
    for (int g = 0; g < kGroups; ++g) {
      const float* x = x_ + g * kSize;
      const float* w = w_ + g * kSize;
      const double sc = fit.sc[g], mn = fit.mn[g];
      const Affine a{fit.d * static_cast<float>(fit.sc[g]), fit.dmin * static_cast<float>(fit.mn[g])};
      const AffineSums s = SumAffine<kTop, kSize>(x, w, a);
      double sum_w = 0.0, sum_x = 0.0;
      for (int i = 0; i < kSize; ++i) {
        sum_w += w[i];
        sum_x += w[i] * x[i];
      }
      aa += sc * sc * s.cc;
      ab += sc * mn * s.c;
      bb += mn * mn * sum_w;
      ax += sc * s.xc;
      bx += mn * sum_x;
    }
    const double det = aa * bb - ab * ab;
    if (det > 1e-9 * aa * bb) {
      *d = static_cast<float>((ax * bb - ab * bx) / det);
      *dmin = static_cast<float>((ab * ax - aa * bx) / det);
    } else if (aa > 0.0) {
      *d = static_cast<float>(ax / aa);
      *dmin = 0.0f;
    } else {
      return false;
    }
    return *d > 0.0f;
  }

  const float* x_;
  const float* w_;
  Affine target_[kGroups];
  float top_scale_ = 0.0f;
  float top_min_ = 0.0f;
};

}  // namespace bellhop::quant::search
