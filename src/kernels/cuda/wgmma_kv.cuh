// Products of attention on Hopper's tensor cores, as wgmma.cuh has them for matrices: f16 or bf16 in, f32 out. Scores
// have both operands in shared memory; results have weights in registers and values as they lie, [positions][dims].
// sm_90a alone.
#pragma once

#include "kernels/cuda/kv_element.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace bellhop::kernels {

// 2^x; results below the smallest normal number are 0.
__device__ __forceinline__ float PowerOfTwo(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t RoundPair(float a, float b, __half) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t RoundPair(float a, float b, __nv_bfloat16) {
  return Bits(__floats2bfloat162_rn(a, b));
}

// The descriptor of values [positions][64 dims], each row 128 bytes in the pattern of wgmma.cuh, as operand b of
// WgmmaTransposed: eight positions further is 1024 bytes further, the next 64 dims are `segment` bytes further.
// shared_address: of a position that is a multiple of 16, as a multiple of 1024.
constexpr uint64_t WgmmaTransposedRows(uint32_t shared_address, uint32_t segment) {
  return uint64_t{1} << 62 | uint64_t{kWgmmaPatternBytes >> 4} << 32 | uint64_t{segment >> 4} << 16 |
         (shared_address & 0x3FFFFu) >> 4;
}

// d[64 x kN] = or += a[64 x 16] * b[kN x 16]^T, both rows of WgmmaRows.
template <typename T, int kN>
__device__ __forceinline__ void WgmmaShared(float* d, uint64_t a, uint64_t b, bool adds);
// d[64 x kN] += a[64 x 16] * b[16 x kN], b of WgmmaTransposedRows.
template <typename T, int kN>
__device__ __forceinline__ void WgmmaTransposed(float* d, const uint32_t (&a)[4], uint64_t b);

#define BELLHOP_REGISTERS_32                               \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define BELLHOP_REGISTERS_64                                         \
  BELLHOP_REGISTERS_32                                               \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define BELLHOP_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BELLHOP_SUMS_16(i) BELLHOP_SUMS_4(i), BELLHOP_SUMS_4(i + 4), BELLHOP_SUMS_4(i + 8), BELLHOP_SUMS_4(i + 12)
#define BELLHOP_SUMS_32 BELLHOP_SUMS_16(0), BELLHOP_SUMS_16(16)
#define BELLHOP_SUMS_64 BELLHOP_SUMS_32, BELLHOP_SUMS_16(32), BELLHOP_SUMS_16(48)
// n columns in r registers; operands behind the sums.
#define BELLHOP_WGMMA(T, type, n, r, o0, o1, o2, o3, o4)                                                             \
  template <>                                                                                                        \
  __device__ __forceinline__ void WgmmaShared<T, n>(float* d, uint64_t a, uint64_t b, bool adds) {                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " o2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
                 "." type " {" BELLHOP_REGISTERS_##r "}, " o0 ", " o1 ", p, 1, 1, 0, 0;\n}"                          \
                 : BELLHOP_SUMS_##r                                                                                  \
                 : "l"(a), "l"(b), "r"(adds ? 1 : 0));                                                               \
  }                                                                                                                  \
  template <>                                                                                                        \
  __device__ __forceinline__ void WgmmaTransposed<T, n>(float* d, const uint32_t(&a)[4], uint64_t b) {               \
    asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type      \
                 "." type " {" BELLHOP_REGISTERS_##r "}, {" o0 "," o1 "," o2 "," o3 "}, " o4 ", p, 1, 1, 1;\n}"      \
                 : BELLHOP_SUMS_##r                                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                              \
  }
BELLHOP_WGMMA(__half, "f16", 64, 32, "%32", "%33", "%34", "%35", "%36")
BELLHOP_WGMMA(__half, "f16", 128, 64, "%64", "%65", "%66", "%67", "%68")
BELLHOP_WGMMA(__nv_bfloat16, "bf16", 64, 32, "%32", "%33", "%34", "%35", "%36")
BELLHOP_WGMMA(__nv_bfloat16, "bf16", 128, 64, "%64", "%65", "%66", "%67", "%68")
#undef BELLHOP_WGMMA
#undef BELLHOP_SUMS_64
#undef BELLHOP_SUMS_32
#undef BELLHOP_SUMS_16
#undef BELLHOP_SUMS_4
#undef BELLHOP_REGISTERS_64
#undef BELLHOP_REGISTERS_32

}  // namespace bellhop::kernels
