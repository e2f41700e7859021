// Sixteen rows of queries against tiles of positions on the tensor cores, by one warp: scores are [queries x
// positions], results [queries x dims]. A lane has rows g and g + 8 and columns 2t, 2t + 1 of each n8 tile.
#pragma once

#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/prompt_attention.h"

namespace bellhop::kernels {
namespace prompt_attention {

__device__ __forceinline__ int32_t FirstVisible(int32_t position, int32_t window) {
  return window > 0 && position + 1 > window ? position + 1 - window : 0;
}

// What a lane's two rows are: a query of the chunk and a head, or nothing (query < 0).
struct LaneRows {
  int32_t query[2], head[2];
  int32_t begin[2], end[2];  // visible positions
};

__device__ __forceinline__ uint32_t SharedAt(const uint8_t* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

template <typename T, int kDim>
struct WarpAttention {
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;  // positions of a tile, within a page
  static constexpr int kRowBytes = kDim * 2 + 16;      // of a position in shared memory: no two of eight share banks
  static constexpr int kTiles = kKeys / 8;

  uint32_t query[kDim / 16][4];
  float scores[kTiles][4];
  float out[kDim / 8][4];
  float max[2], sum[2];  // sum: of the lane's own columns

  __device__ __forceinline__ void Begin(const PromptAttendArgs& args, const LaneRows& rows, int lane) {
    const int t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) max[i] = -INFINITY, sum[i] = 0;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[d][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2, e = 16 * k + i / 2 * 8 + 2 * t;
        query[k][i] = 0;
        if (rows.query[r] < 0 || e >= args.kv.key_dim) continue;
        const float* const q = args.q + rows.query[r] * args.q_stride + rows.head[r] * args.kv.key_dim + e;
        query[k][i] = PackKv(ToKv<T>(q[0]), ToKv<T>(q[1]));
      }
    }
  }

  // Shared memory: keys [kKeys][kRowBytes]. Columns from key_dim to the next multiple of 16 are numbers.
  __device__ __forceinline__ void Scores(const uint8_t* keys, int32_t key_dim, int lane) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
    }
    const auto from = SharedAt(keys + (lane / 16 * 8 + lane % 8) * kRowBytes + lane / 8 % 2 * 16);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      if (16 * k >= key_dim) break;
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        uint32_t b[4];
        LoadMatrices(b, from + n * 8 * kRowBytes + k * 32);
        MmaKv<T>(scores[n], query[k], b[0], b[1]);
        MmaKv<T>(scores[n + 1], query[k], b[2], b[3]);
      }
    }
  }

  // Scores become weights. first: the tile's first position; scale: in units of log 2.
  __device__ __forceinline__ void Weigh(const LaneRows& rows, float scale, int32_t first, int lane) {
    const int t = lane % 4;
    float top[2] = {-INFINITY, -INFINITY}, factor[2], reference[2], own[2] = {0, 0};
    // Most tiles are seen by all rows.
    if (__all_sync(~0u, first >= rows.begin[0] && first >= rows.begin[1] && first + kKeys <= rows.end[0] &&
                            first + kKeys <= rows.end[1])) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[n][i] *= scale;
      }
    } else {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t position = first + 8 * n + 2 * t + i % 2;
          const bool visible = position >= rows.begin[i / 2] && position < rows.end[i / 2];
          scores[n][i] = visible ? scores[n][i] * scale : -INFINITY;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) top[i / 2] = fmaxf(top[i / 2], scores[n][i]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
      top[r] = fmaxf(max[r], top[r]);
      reference[r] = Reference(top[r]);
      factor[r] = exp2f(max[r] - reference[r]);
      max[r] = top[r];
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2;
        scores[n][i] = exp2f(scores[n][i] - reference[r]);
        own[r] += scores[n][i];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = __fmaf_rn(sum[r], factor[r], own[r]);
    // Most tiles do not raise a maximum, and times one is exact.
    if (!__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[d][i] *= factor[i / 2];
    }
  }

  // Shared memory: values [kKeys][kRowBytes], zeros where no row of the block sees.
  __device__ __forceinline__ void Values(const uint8_t* values, int32_t value_dim, int lane) {
    const auto from = SharedAt(values + (lane / 8 % 2 * 8 + lane % 8) * kRowBytes + lane / 16 * 16);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      uint32_t weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const pair = scores[2 * k + i / 2] + i % 2 * 2;
        weights[i] = PackKv(ToKv<T>(pair[0]), ToKv<T>(pair[1]));
      }
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        if (16 * d >= value_dim) break;
        uint32_t b[4];
        LoadTransposed(b, from + k * 16 * kRowBytes + d * 32);
        MmaKv<T>(out[2 * d], weights, b[0], b[1]);
        MmaKv<T>(out[2 * d + 1], weights, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void Store(const PromptAttendArgs& args, const LaneRows& rows, int lane) const {
    const int t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      if (rows.query[r] < 0) continue;
      float factor = 1;
      if (args.sinks != nullptr) {
        const float sink = args.sinks[rows.head[r]] * kLog2E, reference = Reference(fmaxf(max[r], sink));
        factor = exp2f(max[r] - reference);
        total = __fmaf_rn(total, factor, exp2f(sink - reference));
      }
      factor = factor / total;
      uint16_t* const to = args.out.data + int64_t{rows.query[r]} * args.out.stride;
      const int first = rows.head[r] * args.kv.value_dim + 2 * t;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        if (8 * d >= args.kv.value_dim) break;
        const __nv_bfloat162 pair = __floats2bfloat162_rn(out[d][2 * r] * factor, out[d][2 * r + 1] * factor);
        *reinterpret_cast<__nv_bfloat162*>(to + PromptPosition(first + 8 * d)) = pair;
      }
    }
  }
};

}  // namespace prompt_attention
}  // namespace bellhop::kernels
