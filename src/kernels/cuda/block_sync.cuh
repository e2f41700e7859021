// Small pieces that the kernels of a step share.
#pragma once

#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/overlap.cuh"

namespace bellhop::kernels {

// True in every thread of the block that arrives last of `count`. What the others wrote before is visible to it. The
// counter is zero again. One thread's fence is enough: the barrier before it makes the block's writes its own.
__device__ __forceinline__ bool ArriveLast(uint32_t* counter, uint32_t count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = count == 1 || atomicInc(counter, count - 1) == count - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

__device__ __forceinline__ float WarpSum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, offset);
  return v;
}
__device__ __forceinline__ float SumOf16(float v) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, offset);
  return v;
}

// One warp: 1 / rms of a row.
__device__ __forceinline__ float RowScale(const RowNorm& norm, int m, int lane) {
  if (norm.squares == nullptr) return 1;
  constexpr int kAtOnce = 4;
  const float* const squares = norm.squares + int64_t{m} * norm.count;
  float sum = 0;
#pragma unroll 1
  for (int base = lane; base < norm.count; base += 32 * kAtOnce) {
    float square[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) square[i] = base + 32 * i < norm.count ? squares[base + 32 * i] : 0.0f;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum += square[i];
  }
  sum = WarpSum(sum);
  return 1.0f / sqrtf(sum / static_cast<float>(norm.hidden) + norm.epsilon);
}

// Sixteen lanes with consecutive columns of one row, the first a multiple of 16, all of the warp taking part. Columns
// beyond the row are 0; lanes whose `write` is false have no row.
__device__ __forceinline__ void WriteTerms(const TermRows& x, int m, int column, float value, bool write) {
  const float sum = SumOf16(value);
  if (!write) return;
  uint16_t terms[3];
  SplitTerms(value, 3, terms);
  uint16_t* const to = x.data + int64_t{m} * x.terms * x.stride + TermPosition(column);
  to[0] = terms[0];
  to[x.stride] = terms[1];
  if (x.terms == 3) to[2 * x.stride] = terms[2];
  if (column % 16 == 0) x.sums[int64_t{m} * (x.stride / 16) + column / 16] = sum;
}

// The same lanes: a residual value that is complete. norm: of the column, anything beyond the row.
__device__ __forceinline__ void WriteResidual(const ResidualRows& x, int m, int column, float value, float norm,
                                              bool write) {
  const bool inside = column < x.hidden;
  const float square = SumOf16(inside ? value * value : 0.0f);
  if (write && inside) {
    x.values[int64_t{m} * x.hidden + column] = value;
    if (column % 16 == 0) x.squares[int64_t{m} * x.square_count() + column / 16] = square;
  }
  WriteTerms(x.terms, m, column, inside ? value * norm : 0.0f, write);
}
__device__ __forceinline__ void WriteResidual(const ResidualRows& x, int m, int column, float value, bool write) {
  WriteResidual(x, m, column, value, column < x.hidden ? x.norm[column] : 0.0f, write);
}

}  // namespace bellhop::kernels
