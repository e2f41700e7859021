#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/cpu/vec_ops_isa.h"

namespace bellhop::kernels::avx512 {
namespace {

// 16 of the 32 registers accumulate; eight heads by two chunks keep both FMA ports busy and convert a row once.
constexpr int kTile = 16;
constexpr int kMaxHeads = 8;

// The tree of lanes.h on sixteen vectors at once: each step halves the lanes of two vectors and puts both into one.
inline void ReduceTile(const F32x16 (&acc)[kTile], float* out) {
  __m512 quads[4];  // quads[g]: four lanes each of vectors g, g + 4, g + 8, g + 12
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __m512 a = acc[g].v, b = acc[g + 4].v, c = acc[g + 8].v, d = acc[g + 12].v;
    const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    quads[g] = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  }
  const __m512 r =
      _mm512_add_ps(_mm512_shuffle_ps(quads[0], quads[1], 0x44), _mm512_shuffle_ps(quads[0], quads[1], 0xEE));
  const __m512 s =
      _mm512_add_ps(_mm512_shuffle_ps(quads[2], quads[3], 0x44), _mm512_shuffle_ps(quads[2], quads[3], 0xEE));
  _mm512_storeu_ps(out, _mm512_add_ps(_mm512_shuffle_ps(r, s, 0x88), _mm512_shuffle_ps(r, s, 0xDD)));
}

#include "kernels/cpu/attention_body.inc"

}  // namespace

extern constinit const AttentionKernel kAttention = {"attention_avx512", sys::Isa::kAvx512, Attention};

}  // namespace bellhop::kernels::avx512
