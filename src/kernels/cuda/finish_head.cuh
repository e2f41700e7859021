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

// A head's elements of a lane: lane, lane + 32, ... below `dim`. kSteps: at most so many.
inline constexpr int kHeadSteps = kAttentionMaxDim / 32;
template <int kSteps>
struct HeadPart {
  float x[kSteps];
  __device__ __forceinline__ void Load(const float* head, int32_t dim, int lane) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) x[i] = lane + 32 * i < dim ? head[lane + 32 * i] : 0.0f;
  }
};

// What a lane needs of a head besides its elements.
template <int kSteps>
struct HeadConstants {
  static constexpr int kPairSteps = kSteps / 2;
  HeadPart<kSteps> weights;
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

// Pairs that are kApart of a lane's elements apart, if all are: whether they are.
template <int kApart, int kSteps, int kCount>
__device__ __forceinline__ bool TurnInLane(const FinishQkvArgs& args, const HeadConstants<kSteps>& constants,
                                           HeadPart<kSteps> (&heads)[kCount]) {
  if (args.rope != RopeOrder::kNeox || args.rope_dims != 64 * kApart) return false;
  if constexpr (2 * kApart <= kSteps) {
#pragma unroll
    for (int h = 0; h < kCount; ++h) {
#pragma unroll
      for (int i = 0; i < kApart; ++i) Turn(constants.turns[i], &heads[h].x[i], &heads[h].x[i + kApart]);
    }
  }
  return true;
}

// Any pairs. scratch: [dim], of the warp.
template <int kSteps>
__device__ __forceinline__ void TurnInShared(const FinishQkvArgs& args, const HeadConstants<kSteps>& constants,
                                             int lane, float* scratch, HeadPart<kSteps>* head) {
  const int32_t dim = args.kv.key_dim, pairs = args.rope_dims / 2;
  const bool is_norm = args.rope == RopeOrder::kNorm;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (lane + 32 * i < dim) scratch[lane + 32 * i] = head->x[i];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kSteps / 2; ++i) {
    const int32_t pair = lane + 32 * i;
    if (pair >= pairs) break;
    float* const a = scratch + (is_norm ? 2 * pair : pair);
    Turn(constants.turns[i], a, is_norm ? a + 1 : a + pairs);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (lane + 32 * i < dim) head->x[i] = scratch[lane + 32 * i];
  }
  __syncwarp();
}

// Some heads of q or of k with the same constants, by one warp. `full_inverse`: of the norm over all heads. scratch:
// [dim], of the warp.
template <int kSteps, int kCount>
__device__ __forceinline__ void NormAndRotate(const FinishQkvArgs& args, const HeadConstants<kSteps>& constants,
                                              int32_t position, bool is_query, float full_inverse, int lane,
                                              float* scratch, HeadPart<kSteps> (&heads)[kCount]) {
  if (args.norm != HeadNorm::kNone) {
    float inverse[kCount];
#pragma unroll
    for (int h = 0; h < kCount; ++h) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) squares = __fmaf_rn(heads[h].x[i], heads[h].x[i], squares);
      inverse[h] = squares;
    }
    if (args.norm == HeadNorm::kPerHead) {
      const float epsilon = is_query ? args.q_epsilon : args.k_epsilon;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
        for (int h = 0; h < kCount; ++h) inverse[h] += __shfl_xor_sync(~0u, inverse[h], offset);
      }
#pragma unroll
      for (int h = 0; h < kCount; ++h) inverse[h] = InverseRms(inverse[h], args.kv.key_dim, epsilon);
    }
#pragma unroll
    for (int h = 0; h < kCount; ++h) {
      const float own = args.norm == HeadNorm::kPerHead ? inverse[h] : full_inverse;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) heads[h].x[i] = heads[h].x[i] * own * constants.weights.x[i];
    }
  }
  if (args.rope == RopeOrder::kNone || position < 0) return;
  if (TurnInLane<1>(args, constants, heads) || TurnInLane<2>(args, constants, heads) ||
      TurnInLane<4>(args, constants, heads)) {
    return;
  }
#pragma unroll
  for (int h = 0; h < kCount; ++h) TurnInShared(args, constants, lane, scratch, &heads[h]);
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
