// The end of a layer of experts: a row's results of its experts are added up, hits and staged misses apart, each in
// route order, then what the CPU computed, and the residual row is complete. Whoever completes a column waits for the
// CPU's sum of that column alone.
#pragma once

#include "cuda/doorbell_wait.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace experts {

// A route as the sum over a row's experts sees it.
struct RouteShare {
  int slot;
  float weight;
};
__device__ __forceinline__ RouteShare ShareOf(const ExpertArgs& args, int m, int u) {
  if (args.all_rows) return {0, args.use_shared_weights ? args.routes.shared_weights[m] : 1.0f};
  return {args.routes.slots[m * args.used + u], args.routes.weights[m * args.used + u]};
}

// One column of a row: the results of its experts on the GPU, in route order. Staged misses are added as AddMisses
// does: the lanes' results differ within that sum alone.
struct ExpertSum {
  float hits = 0, misses = 0;
  bool missed = false;

  __device__ __forceinline__ void Add(const ExpertArgs& args, const RouteShare& route, float out) {
    if (route.slot < 0) return;
    if (route.slot < args.bank.staging.first_slot) {
      hits = __fmaf_rn(route.weight, out, hits);
    } else {
      misses = __fmaf_rn(route.weight, out, misses);
      missed = true;
    }
  }
  // With the residual.
  __device__ __forceinline__ float Finish(const ExpertArgs& args, float before) const {
    const float value = before + args.port_scale * hits;
    return missed ? value + args.port_scale * misses : value;
  }
};
// share(u), out(u): expert u's.
template <typename Share, typename Out>
__device__ __forceinline__ float AddExperts(const ExpertArgs& args, float before, const Share& share, const Out& out) {
  ExpertSum sum;
  for (int u = 0; u < args.used; ++u) {
    const RouteShare route = share(u);
    if (route.slot >= 0) sum.Add(args, route, out(u));
  }
  return sum.Finish(args, before);
}
// The same from the results in args.partial, many of which are under way at once.
__device__ __forceinline__ float AddPartials(const ExpertArgs& args, int m, int column) {
  constexpr int kAtOnce = 16;
  const int hidden = args.x.hidden;
  const float before = args.x.values[int64_t{m} * hidden + column];
  ExpertSum sum;
#pragma unroll 1
  for (int base = 0; base < args.used; base += kAtOnce) {
    RouteShare shares[kAtOnce];
    float out[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      shares[i] = base + i < args.used ? ShareOf(args, m, base + i) : RouteShare{-1, 0};
      // Also of routes that have no result, whose share says so.
      out[i] = base + i < args.used ? __ldcg(&args.partial[int64_t{m * args.used + base + i} * hidden + column]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) sum.Add(args, shares[i], out[i]);
  }
  return sum.Finish(args, before);
}

// Of a row that has a miss: adds the CPU's sum as AddExperts adds those of staged misses, so that the lanes' results
// differ within that sum alone. word: what SumWait::Look gave.
__device__ __forceinline__ float AddMisses(const ExpertArgs& args, float value, uint32_t word, int m, int column,
                                           cuda::SumWait* wait) {
  float sum = 0;
  return wait->Take(word, m, column, &sum) ? value + args.port_scale * sum : value;
}

// Columns [first_column, first_column + kColumns) of rows [first_row, end_row), by a block, from the results in
// args.partial. May wait for the CPU: a block that has other work does that first. Blocks of a layer have all rows and
// columns between them; of those with the first column, the one that has the first row with a miss looks for all.
template <int kThreads, int kColumns>
__device__ __forceinline__ void CombineColumns(const ExpertArgs& args, int first_column, int first_row, int end_row) {
  static_assert(kColumns % 32 == 0 && kThreads % kColumns == 0);  // a warp has one row
  constexpr int kStep = kThreads / kColumns, kAtOnce = 4;
  const int column = first_column + static_cast<int>(threadIdx.x) % kColumns, hidden = args.x.hidden;
  const int own = first_row + static_cast<int>(threadIdx.x) / kColumns;
  cuda::SumWait wait;
  if (args.waits) wait = cuda::SumWait(args.layer, args.channel, args.doorbell);
  const int first = wait.first_row();  // with a miss
  const bool leads = wait.any() && column < 32 && first >= own && first < end_row && (first - own) % kStep == 0;
  wait.Lead(leads);
  const auto has = [&](int m) { return m < end_row && column < hidden && wait.has(m); };
  for (int base = own; base < end_row; base += kAtOnce * kStep) {
    uint32_t words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      words[i] = has(base + i * kStep) ? wait.Look(base + i * kStep, column) : cuda::kNoSum;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int m = base + i * kStep;
      if (m >= end_row) break;
      float value = column < hidden ? AddPartials(args, m, column) : 0.0f;
      if (has(m)) {
        const bool late = words[i] == cuda::kNoSum;
        value = AddMisses(args, value, words[i], m, column, &wait);
        // The others have most likely come with it: all of them are looked at in one transfer.
#pragma unroll
        for (int j = i + 1; j < kAtOnce; ++j) {
          if (late && has(base + j * kStep)) words[j] = wait.Look(base + j * kStep, column);
        }
      }
      if (args.completes) {
        WriteResidual(args.next, m, column, value, true);
      } else if (column < hidden) {
        args.x.values[int64_t{m} * hidden + column] = value;
      }
    }
  }
  if (leads && column == 0) wait.Finish();
}

}  // namespace experts
}  // namespace bellhop::kernels
