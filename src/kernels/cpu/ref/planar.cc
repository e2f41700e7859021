// The reference of the planar formats: lanes.h word for word.
#include "quant/planar.h"

#include <cmath>

#include "base/units.h"
#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "kernels/lanes.h"

namespace bellhop::kernels {
namespace {

float Reduce(float* a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  }
  return a[0];
}

float PlanarDot(const quant::QuantView& w, int64_t row, const float* x) {
  const bool zero_points = w.planes[quant::kZeroPointsPlane].data != nullptr;
  float acc[kLanes] = {};
  for (int64_t g = 0; g < quant::GroupCount(w); ++g) {
    const int64_t begin = g * w.group;
    const int64_t n = w.cols - begin < w.group ? w.cols - begin : w.group;
    const int64_t lanes = n < kLanes ? n : kLanes;  // a group begins at a multiple of 16: these lanes have elements
    const float scale = quant::PlanarScale(w, row, g);
    float p[kLanes] = {}, s[kLanes] = {};
    for (int64_t e = 0; e < n; ++e) {
      const float code = quant::PlanarCodeValue(w.format, quant::PlanarCode(w, row, begin + e));
      p[e % kLanes] = std::fma(code, x[begin + e], p[e % kLanes]);
      s[e % kLanes] += x[begin + e];
    }
    for (int64_t l = 0; l < lanes; ++l) acc[l] = std::fma(scale, p[l], acc[l]);
    if (!zero_points) continue;
    const int implicit = quant::Planar(w.format).zero_point;
    const float bias = static_cast<float>(implicit - quant::PlanarZeroPoint(w, row, g)) * scale;
    for (int64_t l = 0; l < lanes; ++l) acc[l] = std::fma(bias, s[l], acc[l]);
  }
  return Reduce(acc) * w.global_scale;
}

void PlanarDotReference(const DotArgs& args) {
  for (int64_t r = args.range.begin; r < args.range.end; ++r) {
    for (int64_t m = 0; m < args.x.rows; ++m) args.y.Row(m)[r] = PlanarDot(args.weights, r, args.x.Row(m));
  }
}

}  // namespace

#define BELLHOP_DEFINE_kReference(dot, decode)                                                                   \
  void dot(const DotArgs& args) noexcept { PlanarDotReference(args); }                                           \
  void decode(const quant::QuantView& weights, int64_t row, int64_t begin, int64_t count, float* dst) noexcept { \
    quant::DecodePlanarSlice(weights, row, begin, count, dst);                                                   \
  }
#define BELLHOP_DEFINE_kAvx2(dot, decode)
#define BELLHOP_DEFINE_kAvx512(dot, decode)
#define BELLHOP_PLANAR(dot, decode, isa, format) BELLHOP_DEFINE_##isa(dot, decode)
#include "kernels/planar.def"

}  // namespace bellhop::kernels
