#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels::avx512 {
namespace {

// 16 of the 32 registers accumulate; eight heads by two chunks keep both FMA ports busy and convert a row once.
constexpr int kTile = 16;
constexpr int kMaxHeads = 8;
constexpr int kSquareHeads = 4;

// Without it GCC folds the load into every use, and the load ports become the limit.
inline F32x16 InRegister(F32x16 x) {
  asm("" : "+v"(x.v));
  return x;
}

// Each step of the tree of lanes.h on two vectors at once: half of the sum comes from a, half from b. A blend can run
// where a shuffle cannot, so one of the two operands is made by blending.
inline __m512 AddEighths(F32x16 a, F32x16 b) {
  return _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, a.v, b.v), _mm512_shuffle_f32x4(a.v, b.v, 0x4E));
}
inline __m512 AddQuarters(__m512 a, __m512 b) {
  const __m512i swap = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
  return _mm512_add_ps(_mm512_mask_blend_ps(0xF0F0, a, b), _mm512_permutex2var_ps(a, swap, b));
}
inline __m512 AddPairs(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_mask_blend_ps(0xCCCC, a, b), _mm512_shuffle_ps(a, b, 0x4E));
}

// Sixteen sums at once; the order of the operands is the one that leaves sum t in lane t.
inline void ReduceTile(const F32x16 (&acc)[kTile], float* out) {
  __m512 pairs[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 a = AddQuarters(AddEighths(acc[2 * i], acc[2 * i + 8]), AddEighths(acc[2 * i + 4], acc[2 * i + 12]));
    const __m512 b =
        AddQuarters(AddEighths(acc[2 * i + 1], acc[2 * i + 9]), AddEighths(acc[2 * i + 5], acc[2 * i + 13]));
    pairs[i] = AddPairs(a, b);
  }
  const __m512 even = _mm512_shuffle_ps(pairs[0], pairs[1], 0x88), odd = _mm512_shuffle_ps(pairs[0], pairs[1], 0xDD);
  _mm512_storeu_ps(out, _mm512_add_ps(even, odd));
}

#include "kernels/cpu/exp_body.inc"

#include "kernels/cpu/attention_body.inc"

}  // namespace

extern constinit const AttentionKernel kAttention = {"attention_avx512", sys::Isa::kAvx512, Attend, AttendSpan,
                                                     MergeSpans};

}  // namespace bellhop::kernels::avx512
