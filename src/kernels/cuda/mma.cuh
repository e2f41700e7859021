// Thin wrappers over the instructions that the decode family uses.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace bellhop::kernels {

// d[16 x 8] += a[16 x 16] * b[16 x 8], bf16 in, f32 out. sm_80.
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d = c + a * b, in registers of their own.
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                        const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// Matrices of 8 x 8 halves; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ uint32_t Bits(__nv_bfloat162 v) { return *reinterpret_cast<uint32_t*>(&v); }
__device__ __forceinline__ __nv_bfloat162 Pair(uint32_t bits) { return *reinterpret_cast<__nv_bfloat162*>(&bits); }

// (x & mask) | bits in one instruction.
template <uint32_t kMask, uint32_t kBits>
__device__ __forceinline__ uint32_t MaskOr(uint32_t x) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(x), "n"(kMask), "n"(kBits));
  return r;
}

__device__ __forceinline__ float HalfBits(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits & 0xFFFFu)));
}

// An f32 as bf16 terms, largest first; three give it exactly unless it is close to the smallest numbers.
__device__ __forceinline__ void SplitTerms(float x, int terms, uint16_t (&out)[3]) {
#pragma unroll
  for (int i = 0; i < terms; ++i) {
    const __nv_bfloat16 term = __float2bfloat16_rn(x);
    out[i] = __bfloat16_as_ushort(term);
    x -= __bfloat162float(term);
  }
}

// Two f32 to a pair of bf16, and what is left of them.
__device__ __forceinline__ uint32_t TakePair(float& a, float& b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  a -= __bfloat162float(pair.x);
  b -= __bfloat162float(pair.y);
  return Bits(pair);
}

}  // namespace bellhop::kernels
