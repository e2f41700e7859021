// What is left of a block's warps and a row's splits becomes one result: merges in ascending order, all in f32.
//
// A split leaves a message for each piece of 16 result columns of its KV head: their sums, and maximum and sum of the
// weights of the heads of the first and the last column. Who merges the messages of all splits is either the block that
// comes last (a counter), or, for one row, where latency is all, some blocks that wait (AttendPlan::consumers): then
// messages are words that say themselves that they are there, without fence and counter. The results are the same.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/mma.cuh"

namespace bellhop::kernels {

inline constexpr int kAttendWarps = 4;
// Up to so many splits of one page each; then splits grow, up to so many pages, before there are more of them.
inline constexpr int kFewSplits = 8, kFewPages = 4;

// Chosen at launch.
struct AttendPlan {
  int32_t splits = 1, warps = kAttendWarps;
  int32_t stages = 1;                  // slices that a warp has in flight: 1, 2 or 4
  int32_t key_row = 0, value_row = 0;  // bytes of a position in shared memory
  int32_t merge_at = 0, bytes = 0;     // shared memory: where merges begin, all
  int32_t consumers = 0;               // last splits of a KV head that wait for the others; 0: a counter
};

// What a block works for.
struct AttendPart {
  int32_t row, kv_head, split;
  int32_t group;  // query heads
};

inline constexpr int kPieceColumns = 16, kPieceQuads = kPieceColumns / 4, kMessageQuads = kPieceQuads + 1;
inline constexpr int kMessageBytes = kMessageQuads * 16;

// Messages of one row and KV head in global memory: [pieces][splits].
__device__ __forceinline__ float4* MessagesOf(const AttendArgs& args, const AttendPlan& plan, const AttendPart& part) {
  const int64_t pieces = part.group * args.kv.value_dim / kPieceColumns;
  float* const base = plan.consumers > 0 ? args.words : args.partials;
  return reinterpret_cast<float4*>(base) +
         (int64_t{part.row} * args.kv.kv_heads + part.kv_head) * pieces * plan.splits * kMessageQuads;
}

// A word of zero bits is not there yet, so zeros are sent as -0.
__device__ __forceinline__ float AsWord(float x) { return __float_as_uint(x) == 0 ? __uint_as_float(0x80000000u) : x; }
__device__ __forceinline__ void Send(float4* to, const float4& x) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(AsWord(x.x)), "f"(AsWord(x.y)),
               "f"(AsWord(x.z)), "f"(AsWord(x.w))
               : "memory");
}
__device__ __forceinline__ float4 Look(const float4* from) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from)
               : "memory");
  return x;
}
__device__ __forceinline__ bool IsThere(const float4& x) {
  return __float_as_uint(x.x) != 0 && __float_as_uint(x.y) != 0 && __float_as_uint(x.z) != 0 &&
         __float_as_uint(x.w) != 0;
}

__device__ __forceinline__ float4 Fma(float a, float4 b, float4 c) {
  return make_float4(__fmaf_rn(a, b.x, c.x), __fmaf_rn(a, b.y, c.y), __fmaf_rn(a, b.z, c.z), __fmaf_rn(a, b.w, c.w));
}

// Maximum and sum of a head over the warps, whose states are `stride` apart; the warps' weights.
__device__ __forceinline__ float2 MergeStates(const float2* states, int32_t stride, int32_t warps,
                                              float (&weights)[kAttendWarps]) {
  float2 own[kAttendWarps];
  float max = -INFINITY, sum = 0;
#pragma unroll
  for (int w = 0; w < kAttendWarps; ++w) {
    own[w] = w < warps ? states[w * stride] : make_float2(-INFINITY, 0);
    max = fmaxf(max, own[w].x);
  }
#pragma unroll
  for (int w = 0; w < kAttendWarps; ++w) {
    weights[w] = Exp2(own[w].x - Reference(max));
    if (w < warps) sum = __fmaf_rn(own[w].y, weights[w], sum);
  }
  return make_float2(max, sum);
}

// The block's message. Shared memory: results [warps][kHeads][kValueDim + 4], then states [warps][kHeads].
template <typename Math>
__device__ void MergeWarps(const float* results, const AttendPlan& plan, const AttendPart& part, int32_t value_dim,
                           float4* messages) {
  constexpr int kRow = Math::kMaxValueDim + 4;
  if (Math::kRowBytes > 0) value_dim = Math::kMaxValueDim;
  const auto* const states = reinterpret_cast<const float2*>(results + plan.warps * Math::kHeads * kRow);
  const int32_t columns = part.group * value_dim;
  for (int32_t i = 4 * static_cast<int32_t>(threadIdx.x); i < columns; i += 4 * static_cast<int32_t>(blockDim.x)) {
    const int32_t head = i / value_dim, d = i - head * value_dim, quad = i % kPieceColumns / 4;
    float4* const to = messages + (i / kPieceColumns * plan.splits + part.split) * kMessageQuads;
    float weights[kAttendWarps];
    const float2 state = MergeStates(states + head, Math::kHeads, plan.warps, weights);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kAttendWarps; ++w) {
      if (w >= plan.warps) break;
      const float* const from = results + (w * Math::kHeads + head) * kRow + d;
      sum = Fma(weights[w], *reinterpret_cast<const float4*>(from), sum);
    }
    Send(to + quad, sum);
    if (quad != 0) continue;
    const int32_t last_head = (i + kPieceColumns - 1) / value_dim;
    const float2 last = last_head == head ? state : MergeStates(states + last_head, Math::kHeads, plan.warps, weights);
    Send(to + kPieceQuads, make_float4(state.x, state.y, last.x, last.y));
  }
}

// Whether all other splits of the row and KV head are in global memory. Leaves the counter at zero after the last.
__device__ __forceinline__ bool IsLastSplit(uint32_t* counter, int32_t used) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const auto wrap = static_cast<uint32_t>(used - 1);
    last = used == 1 || atomicInc(counter, wrap) == wrap;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Shared memory of a block that merges; then messages [pieces][used].
struct MergeScratch {
  float weights[kAttentionMaxGroup][kAttentionMaxSplits];
  float inverse[kAttentionMaxGroup];
};
static_assert(sizeof(MergeScratch) % 16 == 0);

// Pieces of result columns, and the splits that each has messages of.
struct MergePieces {
  int32_t first, count, used;
};

// Messages to shared memory, many of a thread under way; words are left zero. Who sends them does not wait for anybody,
// or has sent them before.
__device__ __forceinline__ void Receive(const AttendPlan& plan, const MergePieces& pieces, float4* messages,
                                        float4* to) {
  constexpr int kAtOnce = 8;
  const auto threads = static_cast<int32_t>(blockDim.x), thread = static_cast<int32_t>(threadIdx.x);
  const int32_t of_piece = pieces.used * kMessageQuads, all = pieces.count * of_piece;
  const bool words = plan.consumers > 0;
  const float inverse = 1.0f / static_cast<float>(of_piece);
  for (int32_t base = thread; base < all; base += kAtOnce * threads) {
    float4* from[kAtOnce];
    float4 got[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int32_t i = min(base + u * threads, all - 1),
                    piece = static_cast<int32_t>((static_cast<float>(i) + 0.5f) * inverse);
      from[u] = messages + ((pieces.first + piece) * plan.splits * kMessageQuads + i - piece * of_piece);
      if (base + u * threads < all) got[u] = Look(from[u]);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (base + u * threads >= all) break;
      if (words) {
        while (!IsThere(got[u])) got[u] = Look(from[u]);
        *from[u] = make_float4(0, 0, 0, 0);
      }
      to[base + u * threads] = got[u];
    }
  }
}

// Weights of the splits' sums, and the factor of their sum, for the heads of some pieces, a head a warp.
__device__ __forceinline__ void WeighSplits(const AttendArgs& args, const AttendPart& part, const MergePieces& pieces,
                                            const float4* messages, MergeScratch* scratch) {
  constexpr int kOfLane = kAttentionMaxSplits / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int32_t dim = args.kv.value_dim, begin = pieces.first * kPieceColumns;
  const int32_t end = begin + pieces.count * kPieceColumns;
  for (auto h = begin / dim + static_cast<int32_t>(threadIdx.x / 32); h * dim < end;
       h += static_cast<int32_t>(blockDim.x / 32)) {
    // Of the first piece that has columns of the head: its first head's state, or its last one's.
    const int32_t piece = max(h * dim / kPieceColumns, pieces.first), is_last = piece * kPieceColumns < h * dim ? 1 : 0;
    const float4* const own = messages + (piece - pieces.first) * pieces.used * kMessageQuads + kPieceQuads;
    float2 states[kOfLane];
    float max = args.sinks == nullptr ? -INFINITY : args.sinks[part.kv_head * part.group + h] * kLog2E;
    const float sink = max;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int split = lane + 32 * i;
      states[i] = split < pieces.used ? reinterpret_cast<const float2*>(own + split * kMessageQuads)[is_last]
                                      : make_float2(-INFINITY, 0);
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) max = fmaxf(max, states[i].x);
    for (int mask = 16; mask > 0; mask /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, mask));
    const float reference = Reference(max);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const float weight = Exp2(states[i].x - reference);
      scratch->weights[h][lane + 32 * i] = weight;
      sum = __fmaf_rn(states[i].y, weight, sum);
    }
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    if (args.sinks != nullptr) sum += Exp2(sink - reference);
    if (lane == 0) scratch->inverse[h] = 1.0f / sum;
  }
}

// Four elements of row m from column e on; four lanes have the sixteen of a piece, whole warps take part.
__device__ __forceinline__ void EmitQuad(const TermRows& to, int32_t m, int32_t e, const float4& x, bool have) {
  float rest[4] = {x.x, x.y, x.z, x.w};
  float sum = ((rest[0] + rest[1]) + rest[2]) + rest[3];
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (!have) return;
  uint16_t* const at = to.data + int64_t{m} * to.terms * to.stride + TermPosition(e);
  for (int32_t t = 0; t < to.terms; ++t) {
    const uint32_t low = TakePair(rest[0], rest[1]), high = TakePair(rest[2], rest[3]);
    *reinterpret_cast<uint2*>(at + int64_t{t} * to.stride) = make_uint2(low, high);
  }
  if (e % kPieceColumns == 0) to.sums[int64_t{m} * (to.stride / 16) + e / 16] = sum;
}

// Results of some pieces from the messages in shared memory. A thread adds up a quad, in ascending order of splits.
__device__ __forceinline__ void EmitPieces(const AttendArgs& args, const AttendPart& part, const MergePieces& pieces,
                                           const float4* messages, const MergeScratch& scratch) {
  const int32_t quads = pieces.count * kPieceQuads, columns = part.group * args.kv.value_dim;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t q = thread; q / 32 * 32 < quads; q += static_cast<int32_t>(blockDim.x)) {
    const bool have = q < quads;
    const int32_t piece = have ? q / kPieceQuads : 0, quad = q % kPieceQuads;
    const int32_t e = (pieces.first + piece) * kPieceColumns + 4 * quad, head = e / args.kv.value_dim;
    const float4* const from = messages + piece * pieces.used * kMessageQuads + quad;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int32_t s = 0; s < pieces.used; ++s) sum = Fma(scratch.weights[head][s], from[s * kMessageQuads], sum);
    const float inverse = scratch.inverse[head];
    sum = make_float4(sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse);
    EmitQuad(args.out, part.row, part.kv_head * columns + e, sum, have);
  }
}

// Zeros in columns [begin, end) of a row, multiples of 16.
__device__ __forceinline__ void EmitZeros(const TermRows& to, int32_t m, int32_t begin, int32_t end) {
  for (int32_t e = begin + 4 * static_cast<int32_t>(threadIdx.x); (e - begin) / 128 * 128 + begin < end;
       e += 4 * static_cast<int32_t>(blockDim.x)) {
    EmitQuad(to, m, e, make_float4(0, 0, 0, 0), e < end);
  }
}

// Merges all splits of pieces [first, end) of a KV head, and emits them. Whole blocks take part.
__device__ __forceinline__ void MergeSplits(const AttendArgs& args, const AttendPlan& plan, const AttendPart& part,
                                            int32_t used, int32_t first, int32_t end, float4* messages,
                                            uint8_t* shared) {
  auto* const scratch = reinterpret_cast<MergeScratch*>(shared + plan.merge_at);
  auto* const received = reinterpret_cast<float4*>(scratch + 1);
  const int32_t room = plan.bytes - plan.merge_at - static_cast<int32_t>(sizeof(MergeScratch));
  const int32_t at_once = room / (used * kMessageBytes);
  for (int32_t piece = first; piece < end; piece += at_once) {
    const MergePieces pieces = {piece, min(at_once, end - piece), used};
    Receive(plan, pieces, messages, received);
    __syncthreads();
    WeighSplits(args, part, pieces, received, scratch);
    __syncthreads();
    EmitPieces(args, part, pieces, received, *scratch);
    if (piece + at_once < end) __syncthreads();
  }
}

}  // namespace bellhop::kernels
