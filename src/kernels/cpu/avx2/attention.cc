#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels::avx2 {
namespace {

// 8 of the 16 registers accumulate (two per sixteen lanes); the rest hold a converted chunk and operands.
constexpr int kTile = 4;
constexpr int kMaxHeads = 4;
constexpr int kSquareHeads = 2;

inline F32x16 InRegister(F32x16 x) { return x; }

// The tree of lanes.h: a[i] + a[i + 8], then a[i] + a[i + 4].
inline __m128 ReduceToFour(F32x16 x) {
  const __m256 a8 = _mm256_add_ps(x.lo, x.hi);
  return _mm_add_ps(_mm256_castps256_ps128(a8), _mm256_extractf128_ps(a8, 1));
}

// The rest of the tree on four vectors at once.
inline void ReduceTile(const F32x16 (&acc)[kTile], float* out) {
  const __m128 a = ReduceToFour(acc[0]), b = ReduceToFour(acc[1]);
  const __m128 c = ReduceToFour(acc[2]), d = ReduceToFour(acc[3]);
  const __m128 ab = _mm_add_ps(_mm_shuffle_ps(a, b, 0x44), _mm_shuffle_ps(a, b, 0xEE));
  const __m128 cd = _mm_add_ps(_mm_shuffle_ps(c, d, 0x44), _mm_shuffle_ps(c, d, 0xEE));
  _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xDD)));
}

#include "kernels/cpu/exp_body.inc"

#include "kernels/cpu/attention_body.inc"

}  // namespace

extern constinit const AttentionKernel kAttention = {"attention_avx2", sys::Isa::kAvx2, Attend, AttendSpan, MergeSpans};

}  // namespace bellhop::kernels::avx2
