// The element types of a KV cache.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace bellhop::kernels {

// Rounds to nearest even, as the CPU kernels do.
template <typename T>
__device__ __forceinline__ T ToKv(float x);
template <>
__device__ __forceinline__ float ToKv<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half ToKv<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 ToKv<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

__device__ __forceinline__ float FromKv(float x) { return x; }
__device__ __forceinline__ float FromKv(__half x) { return __half2float(x); }
__device__ __forceinline__ float FromKv(__nv_bfloat16 x) { return __bfloat162float(x); }

}  // namespace bellhop::kernels
