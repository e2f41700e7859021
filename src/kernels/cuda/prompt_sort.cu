// Routes of a prompt's chunk by expert, stable, so that nothing depends on timing: counts of spans of rows, their sums
// over all spans before, then each route's place.
#include "cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/prompt_step.h"

namespace bellhop::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kScanThreads = kMaxPromptExperts;  // one an expert
constexpr int kMaskRows = 32;                    // of a word
constexpr int kMasks = kPromptSortRows / kMaskRows;

// Counts of a span and an expert: routes that have a slot, and all but dropped ones.
constexpr uint32_t kChosen = 1u << 16, kInSlot = kChosen + 1;
static_assert(kPromptSortRows < 1 << 16, "a row has an expert once");

struct Span {
  int first, end;  // routes
  __device__ explicit Span(const PromptSortArgs& args)
      : first(static_cast<int>(blockIdx.x) * kPromptSortRows * args.used),
        end(min(first + kPromptSortRows * args.used, args.rows * args.used)) {}
};

// Behind the counts of all spans: the experts' slots.
__device__ __forceinline__ int32_t* SlotsOf(const PromptSortArgs& args) {
  return args.span_counts + int64_t{PromptSortSpans(args.rows)} * args.experts;
}

// A block a span of rows.
__global__ void __launch_bounds__(kThreads) CountKernel(const __grid_constant__ PromptSortArgs args) {
  __shared__ uint32_t counts[kMaxPromptExperts];
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  AwaitPrevious();
  const Span span(args);
  int32_t* const slots = SlotsOf(args);
  for (int r = span.first + thread; r < span.end; r += kThreads) {
    const int e = args.routes.ids[r], slot = args.routes.slots[r];
    if (e < 0 || e >= args.experts || slot == cuda::kDroppedRoute) continue;
    const uint32_t before = atomicAdd_block(&counts[e], slot >= 0 ? kInSlot : kChosen);
    if (before == 0) slots[e] = slot;  // every route's is the same
  }
  __syncthreads();
  int32_t* const to = args.span_counts + int64_t{blockIdx.x} * args.experts;
  for (int e = thread; e < args.experts; e += kThreads) to[e] = static_cast<int32_t>(counts[e]);
}

struct ExpertSums {
  int32_t routes, tiles;
};
// Of the threads before this one; those of all behind `total`.
__device__ __forceinline__ ExpertSums SumBefore(const ExpertSums& own, ExpertSums* total) {
  constexpr int kWarps = kScanThreads / 32;
  __shared__ ExpertSums of_warp[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  auto scan = [lane](ExpertSums to) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int32_t routes = __shfl_up_sync(~0u, to.routes, step), tiles = __shfl_up_sync(~0u, to.tiles, step);
      if (lane >= step) to.routes += routes, to.tiles += tiles;
    }
    return to;
  };
  const ExpertSums to = scan(own);
  if (lane == 31) of_warp[warp] = to;
  __syncthreads();
  static_assert(kWarps == 32, "a warp scans the warps' sums");
  if (warp == 0) of_warp[lane] = scan(of_warp[lane]);
  __syncthreads();
  *total = of_warp[kWarps - 1];
  const ExpertSums before = warp == 0 ? ExpertSums{0, 0} : of_warp[warp - 1];
  return {before.routes + to.routes - own.routes, before.tiles + to.tiles - own.tiles};
}

// One block, a thread an expert: where its routes begin, all and those of each span, and its tiles.
__global__ void __launch_bounds__(kScanThreads) ScanKernel(const __grid_constant__ PromptSortArgs args) {
  constexpr int kAtOnce = 16;
  LetNextStart();
  AwaitPrevious();
  const int e = static_cast<int>(threadIdx.x), spans = PromptSortSpans(args.rows);
  const bool have = e < args.experts;
  int32_t routes = 0, chosen = 0;
  for (int base = 0; have && base < spans; base += kAtOnce) {
    uint32_t counts[kAtOnce];
    int32_t* const own = args.span_counts + int64_t{base} * args.experts + e;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      counts[i] = base + i < spans ? static_cast<uint32_t>(own[int64_t{i} * args.experts]) : 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (base + i < spans) own[int64_t{i} * args.experts] = routes;
      routes += static_cast<int32_t>(counts[i] & 0xFFFFu);
      chosen += static_cast<int32_t>(counts[i] >> 16);
    }
  }
  const int32_t tile_rows = args.routes.tile_rows, tiles = (routes + tile_rows - 1) / tile_rows;
  const int32_t slot = chosen > 0 ? SlotsOf(args)[e] : -1;
  ExpertSums total;
  const ExpertSums at = SumBefore({routes, tiles}, &total);
  if (have) args.offsets[e] = at.routes;
  for (int32_t i = 0; i < tiles; ++i) {
    const int32_t each = EvenTileRows(routes, tiles), done = i * each, left = routes - done;
    args.routes.tiles[at.tiles + i] = {slot, e, at.routes + done, left < each ? left : each};
  }
  if (have && args.route_counts != nullptr) args.route_counts[e] += static_cast<uint32_t>(chosen);
  const bool in_slot = routes > 0 && slot < args.first_staging;
  const int hits = __syncthreads_count(chosen > 0 && in_slot), all = __syncthreads_count(chosen > 0);
  if (e != 0) return;
  *args.routes.tile_count = total.tiles;
  args.offsets[args.experts] = total.routes;
  if (args.distinct == nullptr) return;
  cuda::AddToTotal(&args.distinct[0], static_cast<uint64_t>(hits));
  cuda::AddToTotal(&args.distinct[1], static_cast<uint64_t>(all - hits));
}

// A block a span of rows: an expert's rows as bits say how many of them are before a route's.
__global__ void __launch_bounds__(kThreads) PlaceKernel(const __grid_constant__ PromptSortArgs args) {
  __shared__ uint32_t masks[kMasks][kMaxPromptExperts];
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kMasks * kMaxPromptExperts; i += kThreads) masks[0][i] = 0;
  __syncthreads();
  AwaitPrevious();
  const Span span(args);
  for (int r = span.first + thread; r < span.end; r += kThreads) {
    if (args.routes.slots[r] < 0) continue;
    const int row = (r - span.first) / args.used;
    atomicOr_block(&masks[row / kMaskRows][args.routes.ids[r]], 1u << row % kMaskRows);
  }
  __syncthreads();
  const int32_t* const before = args.span_counts + int64_t{blockIdx.x} * args.experts;
  for (int r = span.first + thread; r < span.end; r += kThreads) {
    if (args.routes.slots[r] < 0) continue;
    const int row = (r - span.first) / args.used, e = args.routes.ids[r];
    int32_t to = args.offsets[e] + before[e];
#pragma unroll
    for (int i = 0; i < kMasks; ++i) {
      const int rows = min(max(row - i * kMaskRows, 0), kMaskRows);
      to += __popc(masks[i][e] & (rows == kMaskRows ? ~0u : (1u << rows) - 1u));
    }
    args.routes.order[to] = r;
  }
}

}  // namespace

cudaError_t LaunchPromptSort(const PromptSortArgs& args, const cuda::LaunchQueue& queue) {
  if (args.rows <= 0 || args.used <= 0 || args.experts <= 0 || args.experts > kMaxPromptExperts ||
      args.routes.tile_rows <= 0 || args.routes.tile_rows % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  const auto spans = static_cast<uint64_t>(PromptSortSpans(args.rows)), experts = static_cast<uint64_t>(args.experts);
  const uint64_t bytes = static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(args.used) * 8;
  const dim3 grid(static_cast<unsigned>(spans));
  cudaError_t error = cuda::Launch(queue, {.name = "count routes", .bytes = bytes + spans * experts * 4},
                                   {.grid = grid, .block = dim3(kThreads), .overlap = true}, CountKernel, args);
  if (error != cudaSuccess) return error;
  error = cuda::Launch(queue, {.name = "sum counts", .bytes = spans * experts * 8},
                       {.grid = dim3(1), .block = dim3(kScanThreads), .overlap = true}, ScanKernel, args);
  if (error != cudaSuccess) return error;
  return cuda::Launch(queue, {.name = "sort routes", .bytes = bytes * 3 / 2 + spans * experts * 4},
                      {.grid = grid, .block = dim3(kThreads), .overlap = true}, PlaceKernel, args);
}

}  // namespace bellhop::kernels
