// A slice of 16 positions with f32 keys and values, by one warp: lane l scores position l % 16 for half of the heads,
// then owns two of every 64 result columns of all heads.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_tensor.cuh"

namespace bellhop::kernels {

// Members as in TensorMath.
template <int kTiles, int kValueDim>
struct PlainMath {
  using Element = float;
  static constexpr int kHeads = 8 * kTiles, kMaxValueDim = kValueDim, kOwn = kHeads / 2, kPairs = kValueDim / 64;
  static constexpr int kRowBytes = 0;

  float scores[kOwn], max[kOwn], sum[kOwn];
  float2 out[kHeads][kPairs];

  __device__ __forceinline__ PlainMath() {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) max[i] = -INFINITY, sum[i] = 0;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int p = 0; p < kPairs; ++p) out[h][p] = make_float2(0, 0);
    }
  }

  __device__ __forceinline__ void Scores(const uint8_t* keys, const uint8_t* query, int32_t key_row, int32_t key_dim) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const uint8_t* const k = keys + lane % 16 * key_row;
    const uint8_t* const q = query + lane / 16 * kOwn * key_row;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) scores[i] = 0;
#pragma unroll 1
    for (int32_t e = 0; e < key_dim; e += 4) {
      const float4 b = *reinterpret_cast<const float4*>(k + 4 * e);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const float4 a = *reinterpret_cast<const float4*>(q + i * key_row + 4 * e);
        scores[i] = __fmaf_rn(a.x, b.x, scores[i]);
        scores[i] = __fmaf_rn(a.y, b.y, scores[i]);
        scores[i] = __fmaf_rn(a.z, b.z, scores[i]);
        scores[i] = __fmaf_rn(a.w, b.w, scores[i]);
      }
    }
  }

  __device__ __forceinline__ void Weigh(float scale, int32_t lo, int32_t hi) {
    const auto row = static_cast<int32_t>(threadIdx.x % 16);
    const bool visible = row >= lo && row < hi;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float a = scores[i] * scale;
      float top = visible ? a : -INFINITY;
      for (int mask = 1; mask < 16; mask *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
      top = fmaxf(max[i], top);
      const float reference = Reference(top), factor = Exp2(max[i] - reference);
      max[i] = top;
      scores[i] = visible ? Exp2(a - reference) : 0.0f;
      sum[i] = __fmaf_rn(sum[i], factor, scores[i]);
      const float low = __shfl_sync(~0u, factor, 0), high = __shfl_sync(~0u, factor, 16);
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        out[i][p].x *= low, out[i][p].y *= low;
        out[kOwn + i][p].x *= high, out[kOwn + i][p].y *= high;
      }
    }
  }

  __device__ __forceinline__ void Values(const uint8_t* values, int32_t value_row, int32_t value_dim) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
#pragma unroll 1
    for (int32_t j = 0; j < kSlice; ++j) {
      const auto* const row = reinterpret_cast<const float*>(values + j * value_row);
      float2 v[kPairs];
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        const int32_t d = 64 * p + 2 * lane;
        v[p] = d < value_dim ? *reinterpret_cast<const float2*>(row + d) : make_float2(0, 0);
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const float low = __shfl_sync(~0u, scores[i], j), high = __shfl_sync(~0u, scores[i], j + 16);
#pragma unroll
        for (int p = 0; p < kPairs; ++p) {
          out[i][p].x = __fmaf_rn(low, v[p].x, out[i][p].x);
          out[i][p].y = __fmaf_rn(low, v[p].y, out[i][p].y);
          out[kOwn + i][p].x = __fmaf_rn(high, v[p].x, out[kOwn + i][p].x);
          out[kOwn + i][p].y = __fmaf_rn(high, v[p].y, out[kOwn + i][p].y);
        }
      }
    }
  }

  __device__ __forceinline__ void Export(float* results, float2* states) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      float total = sum[i];
      for (int mask = 1; mask < 16; mask *= 2) total += __shfl_xor_sync(~0u, total, mask);
      if (lane % 16 == 0) states[lane / 16 * kOwn + i] = make_float2(max[i], total);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        *reinterpret_cast<float2*>(results + h * (kValueDim + 4) + 64 * p + 2 * lane) = out[h][p];
      }
    }
  }
};

}  // namespace bellhop::kernels
