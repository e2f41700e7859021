#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels::avx2 {
namespace {

// 8 of the 16 registers accumulate (two per sixteen lanes); the rest hold a converted chunk and operands.
constexpr int kTile = 4;
constexpr int kMaxHeads = 4;

// Eight of the sixteen columns of the result, from rows `first` on.
inline void TransposeHalf(const float* in, int64_t first, float* out, int64_t n) {
  const auto rows = [in, first](int64_t i, int64_t e) {
    const float* const p = in + 16 * (first + i) + e;
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(p)), _mm_load_ps(p + 64), 1);
  };
  for (int64_t e = 0; e < n; e += 4) {
    const __m256 a = rows(0, e), b = rows(1, e), c = rows(2, e), d = rows(3, e);  // row i, 4 + i
    const __m256d ab0 = _mm256_castps_pd(_mm256_unpacklo_ps(a, b)), ab1 = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
    const __m256d cd0 = _mm256_castps_pd(_mm256_unpacklo_ps(c, d)), cd1 = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
    float* const to = out + e * kKvPageTokens + first;
    _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(ab0, cd0)));
    if (e + 1 < n) _mm256_storeu_ps(to + kKvPageTokens, _mm256_castpd_ps(_mm256_unpackhi_pd(ab0, cd0)));
    if (e + 2 < n) _mm256_storeu_ps(to + 2 * kKvPageTokens, _mm256_castpd_ps(_mm256_unpacklo_pd(ab1, cd1)));
    if (e + 3 < n) _mm256_storeu_ps(to + 3 * kKvPageTokens, _mm256_castpd_ps(_mm256_unpackhi_pd(ab1, cd1)));
  }
}

inline void TransposeTile(const float* in, float* out, int64_t n) {
  TransposeHalf(in, 0, out, n);
  TransposeHalf(in, 8, out, n);
}

#include "kernels/cpu/exp_body.inc"

#include "kernels/cpu/attention_body.inc"

}  // namespace

extern constinit const AttentionKernel kAttention = {"attention_avx2", sys::Isa::kAvx2, Attend, AttendSpan, MergeSpans};

}  // namespace bellhop::kernels::avx2
