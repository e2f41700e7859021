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
    const float scale = quant::PlanarScale(w, row, g);
    const int shift = zero_points ? quant::Planar(w.format).zero_point - quant::PlanarZeroPoint(w, row, g) : 0;
    const float bias = static_cast<float>(shift) * scale;
    for (int64_t e = begin; e < begin + n; ++e) {
      const float code = quant::PlanarCodeValue(w.format, quant::PlanarCode(w, row, e));
      const float weight = zero_points ? std::fma(code, scale, bias) : code * scale;
      acc[e % kLanes] = std::fma(weight, x[e], acc[e % kLanes]);
    }
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
