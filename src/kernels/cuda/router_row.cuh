// What a row's scores make of its experts: the selection that all routers share.
#pragma once

#include <cmath>

#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace router {

inline constexpr float kMinWeightSum = 6.103515625e-5f;  // 2^-14, as moe/router.cc

__device__ __forceinline__ float Quiet() { return __int_as_float(0x7FC00000); }
__device__ __forceinline__ float Never() { return __int_as_float(0xFF800000u); }

__device__ __forceinline__ float WarpMax(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, offset));
  return v;
}

// One warp: probabilities of a row, as the gating says.
inline __device__ void Probabilities(const RouterArgs& args, const float* logits, float* p, int lane) {
  const int experts = args.experts;
  for (int e = lane; e < experts; e += 32) {
    p[e] = args.gating == DeviceGating::kSigmoid ? 1.0f / (1.0f + expf(-logits[e])) : logits[e];
  }
  if (args.gating != DeviceGating::kSoftmax) return;
  float max = Never(), sum = 0;
  for (int e = lane; e < experts; e += 32) max = fmaxf(max, p[e]);
  max = WarpMax(max);
  for (int e = lane; e < experts; e += 32) {
    p[e] = expf(p[e] - max);
    sum += p[e];
  }
  sum = WarpSum(sum);
  for (int e = lane; e < experts; e += 32) p[e] = p[e] / sum;
}

// One warp: scores of experts outside of the best groups become -Inf.
inline __device__ void RestrictToGroups(const RouterArgs& args, float* scores, int lane) {
  const int per_group = args.experts / args.groups;
  float own = Never();
  if (lane < args.groups) {
    float best = Never(), second = Never();
    for (int e = lane * per_group; e < (lane + 1) * per_group; ++e) {
      second = scores[e] > best ? best : fmaxf(second, scores[e]);
      best = fmaxf(best, scores[e]);
    }
    own = per_group > 1 ? best + second : best;
  }
  int better = 0;
  for (int other = 0; other < args.groups; ++other) {
    const float score = __shfl_sync(0xFFFFFFFFu, own, other);
    better += score > own || (score == own && other < lane) ? 1 : 0;
  }
  if (lane < args.groups && better >= args.groups_used) {
    for (int e = lane * per_group; e < (lane + 1) * per_group; ++e) scores[e] = Never();
  }
  __syncwarp();
}

// One warp: the best expert that is left, ties to the lowest id; it is taken out (NaN).
inline __device__ int TakeBest(float* scores, int experts, int lane) {
  float best = Never();
  int id = INT32_MAX;
  for (int e = lane; e < experts; e += 32) {
    if (isnan(scores[e]) || (id != INT32_MAX && !(scores[e] > best))) continue;
    best = scores[e];
    id = e;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, best, offset);
    const int other_id = __shfl_xor_sync(0xFFFFFFFFu, id, offset);
    if (other_id != INT32_MAX && (id == INT32_MAX || other > best || (other == best && other_id < id))) {
      best = other;
      id = other_id;
    }
  }
  if (lane == 0) scores[id] = Quiet();
  __syncwarp();
  return id;
}

// One warp: ids and weights from the experts that the lanes have, lane u's route u; p: their probabilities. A row with
// a score or weight that is no number (`clean` is false) gets weights that are none either.
__device__ __forceinline__ void WriteRoutes(const RouterArgs& args, const RouteTable& routes, int m, int id, float p,
                                            bool clean, int lane) {
  const int used = args.used;
  const bool have = lane < used;
  float weight = have ? p : Never();
  if (args.gating == DeviceGating::kSoftmaxSelected) {
    const float max = WarpMax(weight);
    weight = have ? expf(weight - max) : 0.0f;
    weight = weight / WarpSum(weight);
  }
  if (args.normalise) weight = weight / fmaxf(WarpSum(have ? weight : 0.0f), kMinWeightSum);
  if (args.weights_scale != 0 && args.weights_scale != 1) weight *= args.weights_scale;
  if (have && !isfinite(weight)) clean = false;
  clean = __all_sync(0xFFFFFFFFu, clean);
  if (!have) return;
  routes.ids[m * used + lane] = id;
  routes.weights[m * used + lane] = clean ? weight : Quiet();
}

// One warp: the routes of a row. No part of the usual way, so it is not made part of its code.
inline __device__ __noinline__ void RouteRow(const RouterArgs& args, const RouteTable& routes, int m,
                                             const float* logits, float* p, float* scores, int lane) {
  Probabilities(args, logits, p, lane);
  bool clean = true;
  for (int e = lane; e < args.experts; e += 32) {
    scores[e] = args.selection_bias != nullptr ? p[e] + args.selection_bias[e] : p[e];
    if (!isnan(scores[e])) continue;
    scores[e] = Never();
    clean = false;
  }
  __syncwarp();
  if (args.groups > 1) RestrictToGroups(args, scores, lane);
  // Lane u has route u; at most 32 are used.
  int id = 0;
  for (int u = 0; u < args.used; ++u) {
    const int taken = TakeBest(scores, args.experts, lane);
    if (lane == u) id = taken;
  }
  WriteRoutes(args, routes, m, id, lane < args.used ? p[id] : 0.0f, clean, lane);
}

// Numbers in the order of the scores, above 0.
__device__ __forceinline__ uint32_t OrderOf(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // one zero
  return bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFu : 0x80000000u);
}

// One warp: the best that is left, ties to the lowest id, one after the other. Lane l has l, l + 32, ...; 0: nobody's.
template <int kOwn>
__device__ __forceinline__ int TakeOrders(uint32_t (&order)[kOwn], int used, int lane) {
  int id = 0;
#pragma unroll 1
  for (int u = 0; u < used; ++u) {
    uint32_t best = order[0], first = UINT32_MAX;
#pragma unroll
    for (int i = 1; i < kOwn; ++i) best = max(best, order[i]);
    best = __reduce_max_sync(0xFFFFFFFFu, best);
#pragma unroll
    for (int i = kOwn - 1; i >= 0; --i) first = order[i] == best ? static_cast<uint32_t>(lane + 32 * i) : first;
    first = __reduce_min_sync(0xFFFFFFFFu, first);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (first == static_cast<uint32_t>(lane + 32 * i)) order[i] = 0;
    }
    if (lane == u) id = static_cast<int>(first);
  }
  return id;
}

// One warp: the same choice; lane u's is the id of route u. Orders below the used-th best of the lanes' best ones are
// none of the `used` best; of those that are left, few as a rule, all are compared with all. scratch: [experts].
template <int kOwn>
__device__ __forceinline__ int BestOrders(uint32_t (&order)[kOwn], int used, uint64_t* scratch, int lane) {
  uint32_t best = order[0];
#pragma unroll
  for (int i = 1; i < kOwn; ++i) best = max(best, order[i]);
  int better = 0;
#pragma unroll
  for (int other = 0; other < 32; ++other) {
    const uint32_t its = __shfl_sync(0xFFFFFFFFu, best, other);
    better += its > best || (its == best && other < lane) ? 1 : 0;
  }
  const unsigned last = __ballot_sync(0xFFFFFFFFu, better == used - 1);
  const uint32_t least = max(__shfl_sync(0xFFFFFFFFu, best, __ffs(last) - 1), 1u);
  int count = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const unsigned have = __ballot_sync(0xFFFFFFFFu, order[i] >= least);
    const int at = count + __popc(have & ((1u << lane) - 1u));
    if (order[i] >= least && at < 32) {
      scratch[at] = uint64_t{order[i]} << 32 | (UINT32_MAX - static_cast<uint32_t>(lane + 32 * i));
    }
    count += __popc(have);
  }
  if (count > 32) return TakeOrders(order, used, lane);
  __syncwarp();
  const uint64_t own = lane < count ? scratch[lane] : 0;
  int rank = 0;
#pragma unroll 4
  for (int other = 0; other < count; ++other) rank += scratch[other] > own ? 1 : 0;
  __syncwarp();
  if (lane < count && rank < used) scratch[rank] = own;
  __syncwarp();
  return lane < used ? static_cast<int>(UINT32_MAX - static_cast<uint32_t>(scratch[lane])) : 0;
}

// The same with everything in registers: experts in one group, at most 32 * kOwn. Lane l has l, l + 32, ...
template <int kOwn>
__device__ __forceinline__ void RouteShortRow(const RouterArgs& args, const RouteTable& routes, int m,
                                              const float* logits, uint64_t* scratch, int lane) {
  const int experts = args.experts;
  float p[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) p[i] = lane + 32 * i < experts ? logits[lane + 32 * i] : Never();
  if (args.gating == DeviceGating::kSigmoid) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) p[i] = 1.0f / (1.0f + expf(-p[i]));
  } else if (args.gating == DeviceGating::kSoftmax) {
    float max = Never(), sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) max = fmaxf(max, p[i]);
    max = WarpMax(max);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      p[i] = expf(p[i] - max);
      if (lane + 32 * i < experts) sum += p[i];
    }
    sum = WarpSum(sum);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) p[i] = p[i] / sum;
  }
  bool clean = true;
  uint32_t order[kOwn];  // 0: nobody's, or taken
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = lane + 32 * i;
    float score = p[i];
    if (args.selection_bias != nullptr && e < experts) score += args.selection_bias[e];
    if (isnan(score) && e < experts) {
      score = Never();
      clean = false;
    }
    order[i] = e < experts ? OrderOf(score) : 0;
  }
  const int id = BestOrders(order, args.used, scratch, lane);
  float own = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float other = __shfl_sync(0xFFFFFFFFu, p[i], id % 32);
    if (id / 32 == i) own = other;
  }
  WriteRoutes(args, routes, m, id, own, clean, lane);
}

// One warp: the routes of row m. scratch: [2 * experts], aligned to 8.
__device__ __forceinline__ void Route(const RouterArgs& args, const RouteTable& routes, int m, const float* logits,
                                      float* scratch, int lane) {
  if (args.groups == 1 && args.experts <= 128) {
    RouteShortRow<4>(args, routes, m, logits, reinterpret_cast<uint64_t*>(scratch), lane);
  } else if (args.groups == 1 && args.experts <= 512) {
    RouteShortRow<16>(args, routes, m, logits, reinterpret_cast<uint64_t*>(scratch), lane);
  } else {
    RouteRow(args, routes, m, logits, scratch, scratch + args.experts, lane);
  }
}

}  // namespace router
}  // namespace bellhop::kernels
