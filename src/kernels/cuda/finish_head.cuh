// What becomes of a head of q or k before attention sees it, and where its row of the cache is.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/kv_element.cuh"

namespace bellhop::kernels {
namespace finish {

enum class Part { kQuery, kKey, kValue };

__device__ __forceinline__ float InverseRms(float squares, int32_t n, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(n) + epsilon);
}

// A head's elements of a lane: lane, lane + 32, ... below `dim`.
inline constexpr int kHeadSteps = kAttentionMaxDim / 32;
struct HeadPart {
  float x[kHeadSteps];
  __device__ __forceinline__ void Load(const float* head, int32_t dim, int lane) {
#pragma unroll
    for (int i = 0; i < kHeadSteps; ++i) x[i] = lane + 32 * i < dim ? head[lane + 32 * i] : 0.0f;
  }
};

// Lane's share of a head in shared memory; the warp is in step around it.
__device__ __forceinline__ void Rotate(const FinishQkvArgs& args, const float2* table, int lane, float* head) {
  constexpr int kPairSteps = kHeadSteps / 2;
  const int32_t pairs = args.rope_dims / 2;
  float2 turn[kPairSteps];
#pragma unroll
  for (int i = 0; i < kPairSteps; ++i) {
    turn[i] = lane + 32 * i < pairs ? table[lane + 32 * i] : make_float2(1, 0);
  }
#pragma unroll
  for (int i = 0; i < kPairSteps; ++i) {
    const int32_t j = lane + 32 * i;
    if (j >= pairs) break;
    float* const a = head + (args.rope == RopeOrder::kNorm ? 2 * j : j);
    float* const b = args.rope == RopeOrder::kNorm ? a + 1 : a + pairs;
    const float x = *a, y = *b, cos = turn[i].x, sin = turn[i].y;
    *a = __fmaf_rn(x, cos, -(y * sin));
    *b = __fmaf_rn(y, cos, x * sin);
  }
}

// One head of q or k to shared memory, by one warp. `full_inverse`: of the norm over all heads.
__device__ __forceinline__ void NormAndRotate(const FinishQkvArgs& args, const HeadPart& head, int32_t position,
                                              bool is_query, int32_t number, float full_inverse, int lane,
                                              float* scratch) {
  const int32_t dim = args.kv.key_dim;
  HeadPart weights;
  if (args.norm != HeadNorm::kNone) {
    weights.Load((is_query ? args.q_norm : args.k_norm) + (args.norm == HeadNorm::kFullWidth ? number * dim : 0), dim,
                 lane);
  }
  float inverse = full_inverse;
  if (args.norm == HeadNorm::kPerHead) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kHeadSteps; ++i) squares = __fmaf_rn(head.x[i], head.x[i], squares);
    inverse = InverseRms(WarpSum(squares), dim, is_query ? args.q_epsilon : args.k_epsilon);
  }
#pragma unroll
  for (int i = 0; i < kHeadSteps; ++i) {
    const int32_t e = lane + 32 * i;
    if (e >= dim) break;
    scratch[e] = args.norm != HeadNorm::kNone ? head.x[i] * inverse * weights.x[i] : head.x[i];
  }
  __syncwarp();
  if (args.rope != RopeOrder::kNone && position >= 0) {
    const float* const table = args.rope_table + int64_t{position} * args.rope_dims;
    Rotate(args, reinterpret_cast<const float2*>(table), lane, scratch);
  }
  __syncwarp();
}

template <typename T>
__device__ T* CacheRow(const FinishQkvArgs& args, int32_t m, int32_t position, Part part, int32_t head) {
  const StepTables& step = args.step;
  const int64_t table = step.positions == nullptr ? 0 : int64_t{m} * step.max_pages;
  const int64_t page = step.block_tables[table + position / kKvPageTokens];
  const int64_t dim = part == Part::kKey ? args.kv.key_dim : args.kv.value_dim;
  uint8_t* const layer = (part == Part::kKey ? args.kv.keys : args.kv.values) + page * args.kv.page_bytes;
  return reinterpret_cast<T*>(layer) + (int64_t{head} * kKvPageTokens + position % kKvPageTokens) * dim;
}

}  // namespace finish
}  // namespace bellhop::kernels
