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

// What a lane needs of a head besides its elements.
struct HeadConstants {
  static constexpr int kPairSteps = kHeadSteps / 2;
  HeadPart weights;
  float2 turns[kPairSteps];  // of pairs lane, lane + 32, ...
  __device__ __forceinline__ void Load(const FinishQkvArgs& args, bool is_query, int32_t number, int32_t position,
                                       int lane) {
    const int32_t dim = args.kv.key_dim;
    if (args.norm != HeadNorm::kNone) {
      const float* const norm = is_query ? args.q_norm : args.k_norm;
      weights.Load(norm + (args.norm == HeadNorm::kFullWidth ? number * dim : 0), dim, lane);
    }
    if (args.rope == RopeOrder::kNone || position < 0) return;
    const float* const row = args.rope_table + int64_t{position} * args.rope_dims;
#pragma unroll
    for (int i = 0; i < kPairSteps; ++i) {
      const int32_t pair = lane + 32 * i;
      turns[i] = pair < args.rope_dims / 2 ? reinterpret_cast<const float2*>(row)[pair] : make_float2(1, 0);
    }
  }
};

__device__ __forceinline__ void Turn(float2 turn, float* a, float* b) {
  const float x = *a, y = *b;
  *a = __fmaf_rn(x, turn.x, -(y * turn.y));
  *b = __fmaf_rn(y, turn.x, x * turn.y);
}

// Pairs that are kSteps of a lane's elements apart.
template <int kSteps>
__device__ __forceinline__ void TurnInLane(const HeadConstants& constants, HeadPart* head) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) Turn(constants.turns[i], &head->x[i], &head->x[i + kSteps]);
}

// scratch: [dim], of the warp.
__device__ __forceinline__ void Rotate(const FinishQkvArgs& args, const HeadConstants& constants, int lane,
                                       float* scratch, HeadPart* head) {
  const int32_t dim = args.kv.key_dim, pairs = args.rope_dims / 2;
  const bool is_norm = args.rope == RopeOrder::kNorm;
  if (!is_norm && pairs == 32) return TurnInLane<1>(constants, head);
  if (!is_norm && pairs == 64) return TurnInLane<2>(constants, head);
  if (!is_norm && pairs == 128) return TurnInLane<4>(constants, head);
#pragma unroll
  for (int i = 0; i < kHeadSteps; ++i) {
    if (lane + 32 * i < dim) scratch[lane + 32 * i] = head->x[i];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < HeadConstants::kPairSteps; ++i) {
    const int32_t pair = lane + 32 * i;
    if (pair >= pairs) break;
    float* const a = scratch + (is_norm ? 2 * pair : pair);
    Turn(constants.turns[i], a, is_norm ? a + 1 : a + pairs);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kHeadSteps; ++i) {
    if (lane + 32 * i < dim) head->x[i] = scratch[lane + 32 * i];
  }
  __syncwarp();
}

// One head of q or k, by one warp. `full_inverse`: of the norm over all heads. scratch: as in Rotate.
__device__ __forceinline__ void NormAndRotate(const FinishQkvArgs& args, const HeadConstants& constants,
                                              int32_t position, bool is_query, float full_inverse, int lane,
                                              float* scratch, HeadPart* head) {
  if (args.norm != HeadNorm::kNone) {
    float inverse = full_inverse;
    if (args.norm == HeadNorm::kPerHead) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kHeadSteps; ++i) squares = __fmaf_rn(head->x[i], head->x[i], squares);
      inverse = InverseRms(WarpSum(squares), args.kv.key_dim, is_query ? args.q_epsilon : args.k_epsilon);
    }
#pragma unroll
    for (int i = 0; i < kHeadSteps; ++i) head->x[i] = head->x[i] * inverse * constants.weights.x[i];
  }
  if (args.rope != RopeOrder::kNone && position >= 0) Rotate(args, constants, lane, scratch, head);
}

template <typename T>
__device__ T* CacheRow(const FinishQkvArgs& args, int32_t m, int32_t position, Part part, int32_t head) {
  const StepTables& step = args.step;
  const int64_t table = step.positions == nullptr ? 0 : int64_t{m} * step.max_pages;
  const int64_t page = __ldcg(step.block_tables + table + position / kKvPageTokens);
  const int64_t dim = part == Part::kKey ? args.kv.key_dim : args.kv.value_dim;
  uint8_t* const layer = (part == Part::kKey ? args.kv.keys : args.kv.values) + page * args.kv.page_bytes;
  return reinterpret_cast<T*>(layer) + (int64_t{head} * kKvPageTokens + position % kKvPageTokens) * dim;
}

}  // namespace finish
}  // namespace bellhop::kernels
