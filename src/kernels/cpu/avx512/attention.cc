#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels::avx512 {
namespace {

// 16 of the 32 registers accumulate; eight heads by two chunks keep both FMA ports busy and load a row once.
constexpr int kTile = 16;
constexpr int kMaxHeads = 8;

// Inserting 128 bits from memory needs no shuffle port, so that only two of the four steps of a transposition do.
inline void TransposeTile(const float* in, float* out, int64_t n) {
  const auto rows = [in](int64_t i, int64_t e) {
    const float* const p = in + 16 * i + e;
    __m512 v = _mm512_castps128_ps512(_mm_load_ps(p));
    v = _mm512_insertf32x4(v, _mm_load_ps(p + 64), 1);
    v = _mm512_insertf32x4(v, _mm_load_ps(p + 128), 2);
    return _mm512_insertf32x4(v, _mm_load_ps(p + 192), 3);
  };
  for (int64_t e = 0; e < n; e += 4) {
    const __m512 a = rows(0, e), b = rows(1, e), c = rows(2, e), d = rows(3, e);  // row i, 4 + i, 8 + i, 12 + i
    const __m512d ab0 = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)), ab1 = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    const __m512d cd0 = _mm512_castps_pd(_mm512_unpacklo_ps(c, d)), cd1 = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    float* const to = out + e * kKvPageTokens;
    _mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpacklo_pd(ab0, cd0)));
    if (e + 1 < n) _mm512_storeu_ps(to + kKvPageTokens, _mm512_castpd_ps(_mm512_unpackhi_pd(ab0, cd0)));
    if (e + 2 < n) _mm512_storeu_ps(to + 2 * kKvPageTokens, _mm512_castpd_ps(_mm512_unpacklo_pd(ab1, cd1)));
    if (e + 3 < n) _mm512_storeu_ps(to + 3 * kKvPageTokens, _mm512_castpd_ps(_mm512_unpackhi_pd(ab1, cd1)));
  }
}

#include "kernels/cpu/exp_body.inc"

#include "kernels/cpu/attention_body.inc"

}  // namespace

extern constinit const AttentionKernel kAttention = {"attention_avx512", sys::Isa::kAvx512, Attend, AttendSpan,
                                                     MergeSpans};

}  // namespace bellhop::kernels::avx512
