#include <cmath>

#include "kernels/gemm.h"
#include "kernels/lanes.h"

namespace bellhop::kernels {
namespace {

float Dot(const float* w, const float* x, int64_t k) {
  float a[kLanes] = {};
  for (int64_t e = 0; e < k; ++e) a[e % kLanes] = std::fma(w[e], x[e], a[e % kLanes]);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  }
  return a[0];
}

}  // namespace

void gemm_f32_f32_f32_ref(const GemmArgs& args) noexcept {
  for (int64_t m = 0; m < args.x.rows; ++m) {
    for (int64_t r = 0; r < args.w.rows; ++r) args.y.Row(m)[r] = Dot(args.w.Row(r), args.x.Row(m), args.w.cols);
  }
}

}  // namespace bellhop::kernels
