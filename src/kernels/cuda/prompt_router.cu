// The router for many rows: scores by tiles of rows and experts, then a warp a row chooses.
#include "cuda/launch.h"
#include "kernels/cuda/prompt_step.h"
#include "kernels/cuda/router_row.cuh"

namespace bellhop::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kOwnRows = 4, kOwnExperts = 8;  // of a warp
constexpr int kBlockRows = 4 * kOwnRows, kBlockExperts = 2 * kOwnExperts;

// Each score is the sum that the decode router makes. Grid: rows, experts.
__global__ void __launch_bounds__(kThreads) ScoreKernel(const __grid_constant__ PromptRouterArgs args) {
  LetNextStart();
  AwaitPrevious();
  const RouterArgs& r = args.router;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int hidden = r.x.hidden, outputs = r.experts + (r.shared_gate ? 1 : 0);
  const int first_row = static_cast<int>(blockIdx.x) * kBlockRows + warp % 4 * kOwnRows;
  const int first_expert = static_cast<int>(blockIdx.y) * kBlockExperts + warp / 4 * kOwnExperts;
  if (first_row >= args.rows || first_expert >= outputs) return;
  const float *x[kOwnRows], *w[kOwnExperts];
  // What does not exist is read as the last one.
#pragma unroll
  for (int m = 0; m < kOwnRows; ++m) x[m] = r.x.values + int64_t{min(first_row + m, args.rows - 1)} * hidden;
#pragma unroll
  for (int e = 0; e < kOwnExperts; ++e) w[e] = r.weights + int64_t{min(first_expert + e, outputs - 1)} * hidden;
  float sums[kOwnRows][kOwnExperts] = {};
  for (int c = 4 * lane; c < hidden; c += 128) {
    const float4 g = __ldg(reinterpret_cast<const float4*>(r.x.norm + c));
    float4 own[kOwnRows];
#pragma unroll
    for (int m = 0; m < kOwnRows; ++m) {
      const float4 v = *reinterpret_cast<const float4*>(x[m] + c);
      own[m] = make_float4(v.x * g.x, v.y * g.y, v.z * g.z, v.w * g.w);
    }
#pragma unroll
    for (int e = 0; e < kOwnExperts; ++e) {
      const float4 v = __ldg(reinterpret_cast<const float4*>(w[e] + c));
#pragma unroll
      for (int m = 0; m < kOwnRows; ++m) {
        sums[m][e] = __fmaf_rn(v.x, own[m].x, sums[m][e]);
        sums[m][e] = __fmaf_rn(v.y, own[m].y, sums[m][e]);
        sums[m][e] = __fmaf_rn(v.z, own[m].z, sums[m][e]);
        sums[m][e] = __fmaf_rn(v.w, own[m].w, sums[m][e]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kOwnRows; ++m) {
#pragma unroll
    for (int e = 0; e < kOwnExperts; ++e) {
      float sum = WarpSum(sums[m][e]);
      const int row = first_row + m, expert = first_expert + e;
      if (lane != 0 || row >= args.rows || expert >= outputs) continue;
      sum *= args.inverse_rms[row];
      if (r.bias != nullptr && expert < r.experts) sum += r.bias[expert];
      r.logits[int64_t{row} * (r.experts + 1) + expert] = sum;
    }
  }
}

__global__ void __launch_bounds__(kThreads) ChooseKernel(const __grid_constant__ PromptRouterArgs args) {
  extern __shared__ float scratch[];  // [kWarps][2][experts]
  LetNextStart();
  AwaitPrevious();
  const RouterArgs& r = args.router;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (row >= args.rows) return;
  float* const own = scratch + int64_t{warp} * 2 * r.experts;
  router::Route(r, r.routes, row, r.logits + int64_t{row} * (r.experts + 1), own, lane);
  __syncwarp();
  const bool have = lane < r.used;
  const int64_t route = int64_t{row} * r.used + lane;
  const bool bad = __any_sync(~0u, have && !isfinite(r.routes.weights[route]));
  if (have) {
    const int slot = bad ? cuda::kDroppedRoute : r.expert_to_slot[r.layer][r.routes.ids[route]];
    r.routes.slots[route] = bad || slot >= 0 ? slot : cuda::kMissRoute;
  }
  if (lane != 0) return;
  if (bad && args.bad_row != nullptr) atomicMax(args.bad_row, ~static_cast<uint32_t>(row));
  if (!r.shared_gate) return;
  const float gate = r.logits[int64_t{row} * (r.experts + 1) + r.experts];
  r.routes.shared_weights[row] = 1.0f / (1.0f + expf(-gate));
}

}  // namespace

cudaError_t LaunchPromptRouter(const PromptRouterArgs& args, const cuda::LaunchQueue& queue) {
  const RouterArgs& r = args.router;
  if (args.rows <= 0 || r.used <= 0 || r.used > 32 || r.used > r.experts || r.x.hidden % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  const int outputs = r.experts + (r.shared_gate ? 1 : 0);
  const auto shared = static_cast<uint32_t>(kWarps * 2 * r.experts * static_cast<int>(sizeof(float)));
  cudaError_t error = cudaSuccess;
  if (shared > 48 * 1024) {
    error = cudaFuncSetAttribute(ChooseKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  auto blocks = [](int n, int of) { return static_cast<unsigned>((n + of - 1) / of); };
  const auto rows = static_cast<uint64_t>(args.rows), hidden = static_cast<uint64_t>(r.x.hidden);
  error = cuda::Launch(queue,
                       {.name = "prompt scores",
                        .bytes = (static_cast<uint64_t>(outputs) + rows) * hidden * sizeof(float),
                        .flops = 2 * rows * static_cast<uint64_t>(outputs) * hidden},
                       {.grid = dim3(blocks(args.rows, kBlockRows), blocks(outputs, kBlockExperts)),
                        .block = dim3(kThreads),
                        .overlap = true},
                       ScoreKernel, args);
  if (error != cudaSuccess) return error;
  return cuda::Launch(
      queue, {.name = "prompt routes", .bytes = rows * static_cast<uint64_t>(r.experts + 3 * r.used) * sizeof(float)},
      {.grid = dim3(blocks(args.rows, kWarps)), .block = dim3(kThreads), .shared_bytes = shared, .overlap = true},
      ChooseKernel, args);
}

}  // namespace bellhop::kernels
