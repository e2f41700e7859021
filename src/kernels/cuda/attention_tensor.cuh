// A slice of 16 positions on the tensor cores, by one warp. Scores are [positions x heads], results [dims x heads], so
// that a lane's maxima and factors are those of its own columns: heads 2t and 2t + 1 of each tile, t = lane % 4.
#pragma once

#include <cstdint>

#include "kernels/cuda/kv_element.cuh"
#include "kernels/cuda/mma.cuh"

namespace bellhop::kernels {

inline constexpr int kSlice = 16;         // positions
inline constexpr int kScoreColumns = 32;  // of a key, at a time
inline constexpr float kLog2E = 1.44269504088896341f;

// As LoadMatrices, each matrix transposed.
__device__ __forceinline__ void LoadTransposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ uint32_t TransposeMatrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// d[16 x 8] += a[16 x 16] * b[16 x 8].
template <typename T>
__device__ __forceinline__ void MmaKv(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void MmaKv<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void MmaKv<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t PackKv(__half a, __half b) {
  return __half_as_ushort(a) | static_cast<uint32_t>(__half_as_ushort(b)) << 16;
}
__device__ __forceinline__ uint32_t PackKv(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __bfloat16_as_ushort(a) | static_cast<uint32_t>(__bfloat16_as_ushort(b)) << 16;
}

// 2^x; below 2^-126 it is 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What a maximum is subtracted as: nothing above -Inf gives weights of 0, not of NaN.
__device__ __forceinline__ float Reference(float max) { return max == -INFINITY ? 0.0f : max; }

// Bytes of a position in shared memory: 64-byte multiples and 16 bytes more. No two of eight rows begin in the same
// banks, and key rows have their zeros.
constexpr int32_t SharedRow(int32_t bytes) { return (bytes + 63) / 64 * 64 + 16; }

// What a warp knows of its slices: maxima of scores (in units of log 2), sums of weights, results. kExact: keys and
// values are kValueDim long, so that loops and addresses are known when this is compiled.
template <typename T, int kTiles, int kValueDim, bool kExact>
struct TensorMath {
  using Element = T;
  static constexpr int kHeads = 8 * kTiles, kMaxValueDim = kValueDim;
  static constexpr int kRowBytes = kExact ? kValueDim * static_cast<int>(sizeof(T)) : 0;  // of a key and of a value

  float scores[kTiles][4];
  uint32_t weights[kTiles][2];
  float max[kTiles][2], sum[kTiles][2];  // sum: of the lane's own positions
  float out[kValueDim / 16][kTiles][4];

  __device__ __forceinline__ TensorMath() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      max[i][0] = max[i][1] = -INFINITY;
      sum[i][0] = sum[i][1] = 0;
#pragma unroll
      for (int d = 0; d < kValueDim / 16; ++d) out[d][i][0] = out[d][i][1] = out[d][i][2] = out[d][i][3] = 0;
    }
  }

  // Shared memory: keys [16][key_row bytes], query [kHeads][key_row bytes], zeros from the head's size up to a multiple
  // of 32 elements.
  __device__ __forceinline__ void Scores(const uint8_t* keys, const uint8_t* query, int32_t key_row, int32_t key_dim) {
    constexpr int kUnroll = kExact ? kValueDim / kScoreColumns : 2;
    if (kExact) key_dim = kValueDim, key_row = SharedRow(kRowBytes);
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const auto a = static_cast<uint32_t>(__cvta_generic_to_shared(keys + lane % 16 * key_row + lane / 16 * 16));
    const auto b = static_cast<uint32_t>(__cvta_generic_to_shared(query + lane % 8 * key_row + lane / 8 * 16));
    float odd[kTiles][4] = {};  // a second chain
#pragma unroll
    for (int i = 0; i < kTiles; ++i) scores[i][0] = scores[i][1] = scores[i][2] = scores[i][3] = 0;
#pragma unroll kUnroll
    for (int32_t e = 0; e < key_dim; e += kScoreColumns) {
      uint32_t k0[4], k1[4];
      LoadMatrices(k0, a + static_cast<uint32_t>(2 * e));
      LoadMatrices(k1, a + static_cast<uint32_t>(2 * e) + 32);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        uint32_t q[4];
        LoadMatrices(q, b + static_cast<uint32_t>(8 * i * key_row + 2 * e));
        MmaKv<T>(scores[i], k0, q[0], q[1]);
        MmaKv<T>(odd[i], k1, q[2], q[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) scores[i][c] += odd[i][c];
    }
  }

  // Positions [lo, hi) of the slice are visible. `scale` includes log2(e).
  __device__ __forceinline__ void Weigh(float scale, int32_t lo, int32_t hi) {
    const auto row = static_cast<int32_t>(threadIdx.x % 32 / 4);
    const bool first = row >= lo && row < hi, second = row + 8 >= lo && row + 8 < hi;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      float factor[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float a = scores[i][c] * scale, b = scores[i][c + 2] * scale;
        float top = fmaxf(first ? a : -INFINITY, second ? b : -INFINITY);
        for (int mask = 4; mask < 32; mask *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
        top = fmaxf(max[i][c], top);
        const float reference = Reference(top);
        factor[c] = Exp2(max[i][c] - reference);
        max[i][c] = top;
        scores[i][c] = first ? Exp2(a - reference) : 0.0f;
        scores[i][c + 2] = second ? Exp2(b - reference) : 0.0f;
        sum[i][c] = __fmaf_rn(sum[i][c], factor[c], scores[i][c] + scores[i][c + 2]);
      }
      weights[i][0] = TransposeMatrix(PackKv(ToKv<T>(scores[i][0]), ToKv<T>(scores[i][1])));
      weights[i][1] = TransposeMatrix(PackKv(ToKv<T>(scores[i][2]), ToKv<T>(scores[i][3])));
#pragma unroll
      for (int d = 0; d < kValueDim / 16; ++d) {
#pragma unroll
        for (int c = 0; c < 4; ++c) out[d][i][c] *= factor[c % 2];
      }
    }
  }

  // Shared memory: values [16][value_row bytes], zeros at invisible positions.
  __device__ __forceinline__ void Values(const uint8_t* values, int32_t value_row, int32_t value_dim) {
    if (kExact) value_dim = kValueDim, value_row = SharedRow(kRowBytes);
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const uint8_t* const row = values + (lane % 8 + lane / 16 * 8) * value_row + lane / 8 % 2 * 16;
    const auto a = static_cast<uint32_t>(__cvta_generic_to_shared(row));
#pragma unroll
    for (int d = 0; d < kValueDim / 16; ++d) {
      if (d * 16 >= value_dim) break;
      uint32_t v[4];
      LoadTransposed(v, a + static_cast<uint32_t>(d) * 32);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) MmaKv<T>(out[d][i], v, weights[i][0], weights[i][1]);
    }
  }

  // To shared memory: results [kHeads][kValueDim + 4], and maximum and sum of each head.
  __device__ __forceinline__ void Export(float* results, float2* states) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int head = 8 * i + 2 * t + c;
        float total = sum[i][c];
        for (int mask = 4; mask < 32; mask *= 2) total += __shfl_xor_sync(~0u, total, mask);
        if (g == 0) states[head] = make_float2(max[i][c], total);
#pragma unroll
        for (int d = 0; d < kValueDim / 16; ++d) {
          results[head * (kValueDim + 4) + 16 * d + g] = out[d][i][c];
          results[head * (kValueDim + 4) + 16 * d + g + 8] = out[d][i][c + 2];
        }
      }
    }
  }
};

}  // namespace bellhop::kernels
