// Experts of a prompt's chunk: routes sorted by expert, stable, so that nothing depends on timing; then products over
// tiles of routes.
#include "cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/prompt_gemm.h"

namespace bellhop::kernels {
namespace {

constexpr int kCountThreads = 1024;
constexpr int kScatterThreads = 256;
constexpr int kScatterOwn = 8;  // consecutive routes of a thread

// Where each expert's routes begin, and their tiles. One block.
__global__ void __launch_bounds__(kCountThreads) CountKernel(PromptSortArgs args) {
  __shared__ int32_t counts[kMaxPromptExperts], chosen[kMaxPromptExperts], slots[kMaxPromptExperts];
  __shared__ int32_t offsets[kMaxPromptExperts], first_tiles[kMaxPromptExperts];
  __shared__ int32_t used[2];  // experts in slots, others
  LetNextStart();
  AwaitPrevious();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, total = args.rows * args.used;
  const int32_t tile_rows = args.routes.tile_rows;
  for (int e = thread; e < args.experts; e += kCountThreads) counts[e] = chosen[e] = 0;
  if (thread < 2) used[thread] = 0;
  __syncthreads();
  for (int r = thread; r < total; r += kCountThreads) {
    const int e = args.routes.ids[r], slot = args.routes.slots[r];
    if (e < 0 || e >= args.experts || slot == cuda::kDroppedRoute) continue;
    atomicAdd_block(&chosen[e], 1);
    if (slot < 0) continue;
    atomicAdd_block(&counts[e], 1);
    slots[e] = slot;  // every route's is the same
  }
  __syncthreads();
  if (thread < 32) {
    int32_t routes = 0, tiles = 0;
    for (int base = 0; base < args.experts; base += 32) {
      const int e = base + lane, count = e < args.experts ? counts[e] : 0;
      const int32_t own = (count + tile_rows - 1) / tile_rows;
      int32_t routes_to = count, tiles_to = own;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int32_t before = __shfl_up_sync(~0u, routes_to, step), tiles_before = __shfl_up_sync(~0u, tiles_to, step);
        if (lane >= step) routes_to += before, tiles_to += tiles_before;
      }
      if (e < args.experts) {
        offsets[e] = routes + routes_to - count;
        first_tiles[e] = tiles + tiles_to - own;
      }
      routes += __shfl_sync(~0u, routes_to, 31);
      tiles += __shfl_sync(~0u, tiles_to, 31);
    }
    if (lane == 0) {
      *args.routes.tile_count = tiles;
      args.offsets[args.experts] = routes;
    }
  }
  __syncthreads();
  for (int e = thread; e < args.experts; e += kCountThreads) {
    args.offsets[e] = offsets[e];
    if (args.route_counts != nullptr) args.route_counts[e] += static_cast<uint32_t>(chosen[e]);
    if (chosen[e] > 0) atomicAdd_block(&used[counts[e] > 0 && slots[e] < args.first_staging ? 0 : 1], 1);
    const int32_t tiles = (counts[e] + tile_rows - 1) / tile_rows;
    for (int i = 0; i < tiles; ++i) {
      const int32_t each = EvenTileRows(counts[e], tiles), done = i * each, left = counts[e] - done;
      args.routes.tiles[first_tiles[e] + i] = {slots[e], e, offsets[e] + done, left < each ? left : each};
    }
  }
  __syncthreads();
  if (args.distinct != nullptr && thread < 2)
    cuda::AddToTotal(&args.distinct[thread], static_cast<uint64_t>(used[thread]));
}

// A block an expert: its routes, in ascending order.
__global__ void __launch_bounds__(kScatterThreads) ScatterKernel(PromptSortArgs args) {
  constexpr int kWarps = kScatterThreads / 32;
  __shared__ int32_t warp_counts[2][kWarps];
  LetNextStart();
  AwaitPrevious();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int expert = static_cast<int>(blockIdx.x), total = args.rows * args.used;
  int32_t at = args.offsets[expert];
  if (at == args.offsets[expert + 1]) return;
  for (int base = 0, turn = 0; base < total; base += kScatterThreads * kScatterOwn, turn ^= 1) {
    const int first = base + thread * kScatterOwn;
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < kScatterOwn; ++i) {
      const int r = first + i;
      if (r < total && args.routes.ids[r] == expert && args.routes.slots[r] >= 0) mine |= 1u << i;
    }
    const int32_t count = __popc(mine);
    int32_t before = count;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    if (lane == 31) warp_counts[turn][warp] = before;
    __syncthreads();
    int32_t to = at + before - count;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int32_t of_warp = warp_counts[turn][w];
      if (w < warp) to += of_warp;
      at += of_warp;
    }
#pragma unroll
    for (int i = 0; i < kScatterOwn; ++i) {
      if ((mine >> i & 1u) != 0) args.routes.order[to++] = first + i;
    }
  }
}

PromptProduct Product(const PromptExpertArgs& args) {
  PromptProduct p;
  p.rows = args.rows;
  p.books = args.books;
  p.port_scale = args.port_scale;
  p.slot_bytes = args.bank.slot_bytes;
  p.staging = args.bank.staging;
  p.device = args.device;
  if (args.all_rows) return p;
  p.used = args.used;
  p.first_slot = args.first_slot;
  p.end_slot = args.end_slot;
  p.tiles = args.routes.tiles;
  p.tile_count = args.routes.tile_count;
  p.order = args.routes.order;
  p.experts = args.experts;
  p.tile_rows = args.routes.tile_rows;
  p.max_tiles = PromptTiles(int64_t{args.rows} * args.used, args.experts, p.tile_rows);
  return p;
}

bool IsPossible(const PromptExpertArgs& args) {
  if (args.rows <= 0) return false;
  return args.all_rows ? args.used == 1 : args.used > 0 && args.experts > 0;
}

}  // namespace

cudaError_t LaunchPromptSort(const PromptSortArgs& args, const cuda::LaunchQueue& queue) {
  if (args.rows <= 0 || args.used <= 0 || args.experts <= 0 || args.experts > kMaxPromptExperts ||
      args.routes.tile_rows <= 0 || args.routes.tile_rows % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  const uint64_t bytes = static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(args.used) * 8;
  const cudaError_t error =
      cuda::Launch(queue, {.name = "count routes", .bytes = bytes},
                   {.grid = dim3(1), .block = dim3(kCountThreads), .overlap = true}, CountKernel, args);
  if (error != cudaSuccess) return error;
  return cuda::Launch(
      queue, {.name = "sort routes", .bytes = bytes * 3 / 2},
      {.grid = dim3(static_cast<unsigned>(args.experts)), .block = dim3(kScatterThreads), .overlap = true},
      ScatterKernel, args);
}

cudaError_t LaunchPromptFc1(const PromptExpertArgs& args, const cuda::LaunchQueue& queue) {
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  PromptProduct p = Product(args);
  p.w = args.bank.gate;
  p.up = args.bank.up;
  p.w_bias = args.bank.gate_bias;
  p.up_bias = args.bank.up_bias;
  p.w_factor = args.bank.gate_scale;
  p.up_factor = args.bank.up_scale;
  p.w_staged = args.bank.staging.gate;
  p.up_staged = args.bank.staging.up;
  p.activates = true;
  p.x = args.x;
  p.gathers = !args.all_rows;
  p.hidden = args.hidden;
  p.activation = args.activation;
  p.alpha = args.alpha;
  p.beta = args.beta;
  p.limit = args.limit;
  return LaunchPromptProduct(p, queue);
}

cudaError_t LaunchPromptFc2(const PromptExpertArgs& args, const cuda::LaunchQueue& queue) {
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  PromptProduct p = Product(args);
  p.w = args.bank.down;
  p.w_bias = args.bank.down_bias;
  p.w_factor = args.bank.down_scale;
  p.w_staged = args.bank.staging.down;
  p.x = args.hidden;
  p.scatters = !args.all_rows;
  p.y = args.all_rows ? args.residual : args.partial;
  p.y_stride = args.bank.down.rows;
  p.adds = args.all_rows;
  p.row_factors = args.all_rows ? args.shared_weights : nullptr;
  return LaunchPromptProduct(p, queue);
}

}  // namespace bellhop::kernels
