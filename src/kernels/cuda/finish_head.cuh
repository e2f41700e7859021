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

// Lane's share of a head in shared memory; the warp is in step around it.
__device__ __forceinline__ void Rotate(const FinishQkvArgs& args, const float* table, int lane, float* head) {
  const int32_t pairs = args.rope_dims / 2;
  for (int32_t j = lane; j < pairs; j += 32) {
    float* const a = head + (args.rope == RopeOrder::kNorm ? 2 * j : j);
    float* const b = args.rope == RopeOrder::kNorm ? a + 1 : a + pairs;
    const float x = *a, y = *b, cos = table[2 * j], sin = table[2 * j + 1];
    *a = __fmaf_rn(x, cos, -(y * sin));
    *b = __fmaf_rn(y, cos, x * sin);
  }
}

// One head x of q or k to shared memory, by one warp. `full_inverse`: of the norm over all heads.
__device__ __forceinline__ void NormAndRotate(const FinishQkvArgs& args, const float* x, int32_t position,
                                              bool is_query, int32_t head, float full_inverse, int lane,
                                              float* scratch) {
  const int32_t dim = args.kv.key_dim;
  float inverse = full_inverse, squares = 0;
  for (int32_t e = lane; e < dim; e += 32) {
    scratch[e] = x[e];
    squares = __fmaf_rn(scratch[e], scratch[e], squares);
  }
  if (args.norm == HeadNorm::kPerHead) {
    inverse = InverseRms(WarpSum(squares), dim, is_query ? args.q_epsilon : args.k_epsilon);
  }
  if (args.norm != HeadNorm::kNone) {
    const float* const weights =
        (is_query ? args.q_norm : args.k_norm) + (args.norm == HeadNorm::kFullWidth ? head * dim : 0);
    for (int32_t e = lane; e < dim; e += 32) scratch[e] = scratch[e] * inverse * weights[e];
  }
  __syncwarp();
  if (args.rope != RopeOrder::kNone && position >= 0) {
    Rotate(args, args.rope_table + int64_t{position} * args.rope_dims, lane, scratch);
  }
  __syncwarp();
}

template <typename T>
__device__ T* CacheRow(const FinishQkvArgs& args, int32_t m, int32_t position, Part part, int32_t head) {
  const StepTables& step = args.step;
  const int64_t page = step.block_tables[int64_t{m} * step.max_pages + position / kKvPageTokens];
  const int64_t dim = part == Part::kKey ? args.kv.key_dim : args.kv.value_dim;
  uint8_t* const layer = (part == Part::kKey ? args.kv.keys : args.kv.values) + page * args.kv.page_bytes;
  return reinterpret_cast<T*>(layer) + (int64_t{head} * kKvPageTokens + position % kKvPageTokens) * dim;
}

}  // namespace finish
}  // namespace bellhop::kernels
