// Routes of a step by expert, which the last block of the router leaves to fc1 and fc2.
#pragma once

#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace router {

// One thread: experts of the layer in this step that have a slot, and others.
__device__ __forceinline__ void CountDistinct(const RouterArgs& args, uint32_t hits, uint32_t misses) {
  cuda::AddToTotal(&args.distinct[0], hits);
  cuda::AddToTotal(&args.distinct[1], misses);
}

// One warp, one row: each of its experts is a group, in ascending order. t: the routes, in shared memory.
inline __device__ void GroupRow(const RouterArgs& args, const RouteTable& t, int lane) {
  const bool stage = args.staged.count != nullptr, have = lane < args.used;
  const int32_t id = have ? t.ids[lane] : INT32_MAX;
  int32_t slot = have ? t.slots[lane] : cuda::kDroppedRoute;
  const bool grouped = stage ? slot != cuda::kDroppedRoute : slot >= 0, miss = grouped && slot < 0;
  const unsigned all = __ballot_sync(0xFFFFFFFFu, grouped), missing = __ballot_sync(0xFFFFFFFFu, miss);
  int32_t rank = 0, index = 0;
  for (int u = 0; u < args.used; ++u) {
    const bool before = __shfl_sync(0xFFFFFFFFu, id, u) < id;
    rank += before && (all >> u & 1u) != 0 ? 1 : 0;
    index += before && (missing >> u & 1u) != 0 ? 1 : 0;
  }
  if (miss) {
    args.staged.experts[index] = id;
    slot = args.first_staging_slot + index;
  }
  if (grouped) {
    args.routes.groups[rank] = {slot, id, rank, 1};
    args.routes.order[rank] = lane;
  }
  if (have) {
    args.routes.ids[lane] = id;
    args.routes.weights[lane] = t.weights[lane];
    args.routes.slots[lane] = slot;
  }
  if (lane != 0) return;
  *args.routes.group_count = __popc(all);
  if (stage) *args.staged.count = __popc(missing);
}

// Sums over the experts before a thread's own; those of all behind `total`.
struct GroupSums {
  uint32_t routes_groups;  // routes below 2^16, groups above
  uint32_t missing;
};
template <int kWarps>
__device__ __forceinline__ GroupSums SumBefore(const GroupSums& own, int thread, GroupSums* total) {
  __shared__ GroupSums of_warp[kWarps];
  const int warp = thread / 32, lane = thread % 32;
  GroupSums to = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t a = __shfl_up_sync(0xFFFFFFFFu, to.routes_groups, step);
    const uint32_t b = __shfl_up_sync(0xFFFFFFFFu, to.missing, step);
    if (lane >= step) to.routes_groups += a, to.missing += b;
  }
  if (lane == 31) of_warp[warp] = to;
  __syncthreads();
  GroupSums before = {to.routes_groups - own.routes_groups, to.missing - own.missing};
  *total = {0, 0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const GroupSums sums = of_warp[w];
    if (w < warp) before.routes_groups += sums.routes_groups, before.missing += sums.missing;
    total->routes_groups += sums.routes_groups;
    total->missing += sums.missing;
  }
  return before;
}

// The block: routes that have a slot, in order of their experts; within an expert in order of the rows, which have
// distinct experts each. Where misses are staged, they get slots first. t: ids and slots in shared memory; slots: of
// the experts, those of staged misses are written; scratch: [2][experts].
template <int kWarps>
__device__ void GroupRoutes(const RouterArgs& args, const RouteTable& t, int32_t* slots, int rows, uint32_t* scratch) {
  constexpr int kThreads = kWarps * 32;
  const bool stage = args.staged.count != nullptr;
  const int total = rows * args.used, thread = static_cast<int>(threadIdx.x);
  uint32_t* const masks = scratch;  // rows that use an expert
  uint32_t* const firsts = scratch + args.experts;
  for (int e = thread; e < args.experts; e += kThreads) masks[e] = 0;
  __syncthreads();
  for (int r = thread; r < total; r += kThreads) {
    if (t.slots[r] != cuda::kDroppedRoute) atomicOr_block(&masks[t.ids[r]], 1u << r / args.used);
  }
  __syncthreads();
  const int each = (args.experts + kThreads - 1) / kThreads;
  const int begin = thread * each, end = min(begin + each, args.experts);
  GroupSums own = {0, 0};
  for (int e = begin; e < end; ++e) {
    const uint32_t mask = masks[e];
    if (mask == 0) continue;
    const bool hit = slots[e] >= 0;
    if (hit || stage) own.routes_groups += static_cast<uint32_t>(__popc(mask)) + (1u << 16);
    if (!hit) ++own.missing;
  }
  GroupSums all;
  GroupSums at = SumBefore<kWarps>(own, thread, &all);
  for (int e = begin; e < end; ++e) {
    const uint32_t mask = masks[e];
    const bool hit = slots[e] >= 0;
    if (mask == 0 || !(hit || stage)) continue;
    if (!hit) {
      args.staged.experts[at.missing] = e;
      slots[e] = args.first_staging_slot + static_cast<int32_t>(at.missing++);
    }
    const auto first = static_cast<int32_t>(at.routes_groups & 0xFFFFu);
    firsts[e] = static_cast<uint32_t>(first);
    args.routes.groups[at.routes_groups >> 16] = {slots[e], e, first, __popc(mask)};
    at.routes_groups += static_cast<uint32_t>(__popc(mask)) + (1u << 16);
  }
  __syncthreads();
  for (int r = thread; r < total; r += kThreads) {
    const int32_t e = t.ids[r];
    if (stage ? t.slots[r] == cuda::kDroppedRoute : t.slots[r] < 0) continue;
    const uint32_t lower = (1u << r / args.used) - 1u;
    args.routes.order[firsts[e] + static_cast<uint32_t>(__popc(masks[e] & lower))] = r;
    if (stage) t.slots[r] = slots[e];
  }
  if (thread != 0) return;
  const uint32_t groups = all.routes_groups >> 16;
  *args.routes.group_count = static_cast<int32_t>(groups);
  if (stage) *args.staged.count = static_cast<int32_t>(all.missing);
  CountDistinct(args, stage ? groups - all.missing : groups, all.missing);
}

}  // namespace router
}  // namespace bellhop::kernels
