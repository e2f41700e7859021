// What is left of a block's warps and a row's splits becomes one result: merges in ascending order, all in f32.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/mma.cuh"

namespace bellhop::kernels {

inline constexpr int kAttendWarps = 4;

// Chosen at launch.
struct AttendPlan {
  int32_t splits = 1, warps = kAttendWarps;
  int32_t stages = 1;                  // slices that a warp has in flight: 1, 2 or 4
  int32_t key_row = 0, value_row = 0;  // bytes of a position in shared memory
};

// What a block works for.
struct AttendPart {
  int32_t row, kv_head, split;
  int32_t group;  // query heads
};

// Results and states of one split in global memory.
struct Partial {
  float* results;  // [group][value_dim]
  float2* states;  // [group]: maximum, sum
};
__device__ __forceinline__ Partial PartialOf(const AttendArgs& args, const AttendPlan& plan, const AttendPart& part,
                                             int32_t split) {
  const int64_t all = int64_t{args.step.rows} * plan.splits * args.heads;
  const int64_t at = (int64_t{part.row * args.kv.kv_heads + part.kv_head} * plan.splits + split) * part.group;
  auto* const states = reinterpret_cast<float2*>(args.partials + all * args.kv.value_dim);
  return {args.partials + at * args.kv.value_dim, states + at};
}

// Shared memory of the last block of a row and KV head, over that of the stages.
struct MergeScratch {
  float weights[kAttentionMaxSplits][kAttentionMaxGroup];
  float inverse[kAttentionMaxGroup];
  // then results [group][value_dim]
};
static_assert(sizeof(MergeScratch) % 16 == 0);

__device__ __forceinline__ float4 Fma(float a, float4 b, float4 c) {
  return make_float4(__fmaf_rn(a, b.x, c.x), __fmaf_rn(a, b.y, c.y), __fmaf_rn(a, b.z, c.z), __fmaf_rn(a, b.w, c.w));
}

// Shared memory: results [warps][kHeads][kValueDim + 4], then states [warps][kHeads].
template <typename Math>
__device__ void MergeWarps(const float* results, const AttendPart& part, int32_t value_dim, const Partial& to) {
  constexpr int kRow = Math::kMaxValueDim + 4;
  __shared__ float weights[kAttendWarps][kAttentionMaxGroup];
  const auto warps = static_cast<int32_t>(blockDim.x / 32), thread = static_cast<int32_t>(threadIdx.x);
  const auto* const states = reinterpret_cast<const float2*>(results + warps * Math::kHeads * kRow);
  if (thread < part.group) {
    float max = -INFINITY, sum = 0;
    for (int32_t w = 0; w < warps; ++w) max = fmaxf(max, states[w * Math::kHeads + thread].x);
    for (int32_t w = 0; w < warps; ++w) {
      const float2 state = states[w * Math::kHeads + thread];
      weights[w][thread] = exp2f(state.x - Reference(max));
      sum = __fmaf_rn(state.y, weights[w][thread], sum);
    }
    to.states[thread] = make_float2(max, sum);
  }
  __syncthreads();
  for (int32_t i = 4 * thread; i < part.group * value_dim; i += 4 * static_cast<int32_t>(blockDim.x)) {
    const int32_t head = i / value_dim, d = i - head * value_dim;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int32_t w = 0; w < warps; ++w) {
      const float* const from = results + (w * Math::kHeads + head) * kRow + d;
      sum = Fma(weights[w][head], *reinterpret_cast<const float4*>(from), sum);
    }
    *reinterpret_cast<float4*>(to.results + i) = sum;
  }
}

// Whether all other splits of the row and KV head are in global memory. Leaves the counter at zero after the last.
__device__ __forceinline__ bool IsLastSplit(uint32_t* counter, int32_t used) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto wrap = static_cast<uint32_t>(used - 1);
    last = used == 1 || atomicInc(counter, wrap) == wrap;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Weights of the splits' results, and the factor of their sum, one head a warp.
__device__ __forceinline__ void WeighSplits(const AttendArgs& args, const AttendPart& part, int32_t used,
                                            const Partial& first, MergeScratch* scratch) {
  constexpr int kOfLane = kAttentionMaxSplits / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (auto h = static_cast<int32_t>(threadIdx.x / 32); h < part.group; h += static_cast<int32_t>(blockDim.x / 32)) {
    float2 states[kOfLane];
    float max = args.sinks == nullptr ? -INFINITY : args.sinks[part.kv_head * part.group + h] * kLog2E;
    const float sink = max;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int split = lane + 32 * i;
      states[i] = split < used ? __ldcg(first.states + split * part.group + h) : make_float2(-INFINITY, 0);
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) max = fmaxf(max, states[i].x);
    for (int mask = 16; mask > 0; mask /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, mask));
    const float reference = Reference(max);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const float weight = exp2f(states[i].x - reference);
      if (lane + 32 * i < used) scratch->weights[lane + 32 * i][h] = weight;
      sum = __fmaf_rn(states[i].y, weight, sum);
    }
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    if (args.sinks != nullptr) sum += exp2f(sink - reference);
    if (lane == 0) scratch->inverse[h] = 1.0f / sum;
  }
}

// Results of all splits to shared memory. One block reads them all, so that a thread has many loads under way.
__device__ __forceinline__ void MergeSplits(const AttendPart& part, int32_t value_dim, int32_t used,
                                            const float* partials, const MergeScratch& scratch, float* results) {
  constexpr int kAtOnce = 8, kPieces = 2;
  const int32_t floats = part.group * value_dim, stride = 4 * static_cast<int32_t>(blockDim.x);
  for (int32_t i = 4 * static_cast<int32_t>(threadIdx.x); i < floats; i += kPieces * stride) {
    float4 sum[kPieces] = {};
    int32_t at[kPieces], head[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      at[p] = i + p * stride < floats ? i + p * stride : i;  // the same once more where there is no other
      head[p] = at[p] / value_dim;
    }
    for (int32_t s = 0; s < used; s += kAtOnce) {
      float4 from[kPieces][kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int32_t split = min(s + u, used - 1);
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          from[p][u] = __ldcg(reinterpret_cast<const float4*>(partials + int64_t{split} * floats + at[p]));
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (s + u >= used) break;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) sum[p] = Fma(scratch.weights[s + u][head[p]], from[p][u], sum[p]);
      }
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const float inverse = scratch.inverse[head[p]];
      *reinterpret_cast<float4*>(results + at[p]) =
          make_float4(sum[p].x * inverse, sum[p].y * inverse, sum[p].z * inverse, sum[p].w * inverse);
    }
  }
}

// Sixteen elements of row m from column e on, a multiple of 16.
__device__ __forceinline__ void EmitTerms(const TermRows& to, int32_t m, int32_t e, const float (&x)[16]) {
  float sum = 0;
#pragma unroll
  for (int quad = 0; quad < 4; ++quad) {
    float rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rest[i] = x[4 * quad + i], sum += rest[i];
    uint16_t* const at = to.data + int64_t{m} * to.terms * to.stride + TermPosition(e + 4 * quad);
    for (int32_t t = 0; t < to.terms; ++t) {
      const uint32_t low = TakePair(rest[0], rest[1]), high = TakePair(rest[2], rest[3]);
      *reinterpret_cast<uint2*>(at + int64_t{t} * to.stride) = make_uint2(low, high);
    }
  }
  to.sums[int64_t{m} * (to.stride / 16) + e / 16] = sum;
}

// The results of a KV head, and zeros behind the last one.
__device__ __forceinline__ void EmitResults(const AttendArgs& args, const AttendPart& part, const float* results) {
  const int32_t columns = part.group * args.kv.value_dim, first = part.kv_head * columns;
  const int32_t end = part.kv_head + 1 == args.kv.kv_heads ? args.out.stride - first : columns;
  for (int32_t e = 16 * static_cast<int32_t>(threadIdx.x); e < end; e += 16 * static_cast<int32_t>(blockDim.x)) {
    float x[16] = {};
    if (e < columns) {
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = results[e + i];
    }
    EmitTerms(args.out, part.row, first + e, x);
  }
}

}  // namespace bellhop::kernels
