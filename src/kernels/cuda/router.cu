// The router of a step: all blocks make scores, the last few of them choose experts for some rows each, and the last
// one classifies, rings, and groups the routes by expert.
#include <algorithm>

#include "cuda/launch.h"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/router_groups.cuh"
#include "kernels/cuda/router_ring.cuh"
#include "kernels/cuda/router_row.cuh"
#include "kernels/cuda/router_score.cuh"
#include "kernels/cuda/router_words.cuh"

namespace bellhop::kernels {
namespace {

using router::kScoreExperts, router::kScoreThreads, router::kScoreWarps;

// Blocks wait for words alone, and only after they have sent all their own scores: for scores that blocks send without
// waiting for anybody, then the last block for routes. Waiting blocks are this many at most, and the next kernel does
// not start before all blocks of this one have: all words come if a device has room for one block more.
constexpr int kChoosers = 8;
// Few rows are chosen by the last block alone, a warp each: nobody has to be told.
constexpr int kOwnRows = kScoreWarps;

// Shared memory beside the partial sums. Of each warp: two numbers an expert for the choice, then its row's scores.
__host__ __device__ constexpr int WarpFloats(int experts) { return 2 * experts + (experts + 2) / 2 * 2; }
__host__ __device__ constexpr int ScratchFloats(int experts) { return kScoreWarps * WarpFloats(experts); }

// The step's routes and the layer's slots, behind the warps' scratch.
struct StepRoutes {
  RouteTable routes;
  int32_t* slots;
  __device__ StepRoutes(const RouterArgs& args, float* scratch) : routes(args.routes) {
    routes.ids = reinterpret_cast<int32_t*>(scratch + ScratchFloats(args.experts));
    routes.slots = routes.ids + kMaxStepRows * args.used;
    routes.weights = reinterpret_cast<float*>(routes.slots + kMaxStepRows * args.used);
    slots = reinterpret_cast<int32_t*>(routes.weights + kMaxStepRows * args.used);
  }
};
constexpr int StepFloats(int experts, int used) { return 3 * kMaxStepRows * used + experts; }

// One warp: row m's experts, from the scores that all blocks send. scale: its 1 / rms.
__device__ __forceinline__ void ChooseRow(const RouterArgs& args, const RouteTable& routes, int m, float scale,
                                          float* scratch, int lane) {
  constexpr int kAtOnce = 17;  // 512 experts and a shared gate
  float* const logits = scratch + 2 * args.experts;
  router::ReceiveWords<kAtOnce>(router::ScoreWords(args, m), args.experts + (args.shared_gate ? 1 : 0), lane,
                                [&](int e, uint64_t word) {
                                  float score = router::LowerOf(word) * scale;
                                  if (args.bias != nullptr && e < args.experts) score += args.bias[e];
                                  logits[e] = score;
                                  args.logits[int64_t{m} * (args.experts + 1) + e] = score;
                                });
  __syncwarp();
  router::Route(args, routes, m, logits, scratch, lane);
  if (!args.shared_gate || lane != 0) return;
  const float gate = logits[args.experts];
  args.routes.shared_weights[m] = 1.0f / (1.0f + expf(-gate));
}

__device__ __forceinline__ void SendRoutes(const RouterArgs& args, const RouteTable& routes, int m, float scale,
                                           int lane) {
  uint64_t* const words = router::RouteWords(args, m);
  const int r = m * args.used + lane;
  if (lane < args.used) router::SendWord(words + lane, static_cast<uint32_t>(routes.ids[r]) + 1, routes.weights[r]);
  if (lane == 0) router::SendWord(words + args.used, 1, scale);
}

// The block: routes and 1 / rms of all rows.
__device__ __forceinline__ void ReceiveRoutes(const RouterArgs& args, const RouteTable& routes, int rows,
                                              float* norms) {
  constexpr int kAtOnce = 3;  // 320 routes of 32 rows
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row_words = args.used + 1, each = (rows * row_words + kScoreWarps - 1) / kScoreWarps;
  const int first = warp * each, count = min(each, rows * row_words - first);
  router::ReceiveWords<kAtOnce>(router::RouteWords(args, 0) + first, count, lane, [&](int i, uint64_t word) {
    const int m = (first + i) / row_words, u = (first + i) % row_words;
    if (u == args.used) {
      norms[m] = router::LowerOf(word);
      return;
    }
    routes.ids[m * args.used + u] = static_cast<int32_t>(router::UpperOf(word) - 1);
    routes.weights[m * args.used + u] = router::LowerOf(word);
  });
}

// What Classify reads comes to L1 while scores are made. Who stores it keeps the loads alive.
__device__ __forceinline__ uint32_t Touch(const cuda::DoorbellState& state, int lane) {
  return static_cast<uint32_t>(state.rows[lane].code) + static_cast<uint32_t>(state.steps);
}

// The last block, with all routes in its shared memory.
__device__ __forceinline__ void Finish(const RouterArgs& args, const StepRoutes& step, int rows, uint64_t placement,
                                       const float* norms, float* scratch) {
  __shared__ cuda::ClassifyScratch classify;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const RouteTable& routes = step.routes;
  // Distinct experts are counted where the routes are grouped.
  const cuda::ClassifyArgs classified = {.layer = args.layer,
                                         .rows = rows,
                                         .used = args.used,
                                         .experts = args.experts,
                                         .ids = routes.ids,
                                         .weights = routes.weights,
                                         .expert_to_slot = step.slots,
                                         .placement = placement,
                                         .route_slots = routes.slots,
                                         .route_counts = args.route_counts,
                                         .last_steps = nullptr,
                                         .ring_misses = args.ring_misses};
  if (rows == 1) {
    // One warp, without barriers of the block; the experts of one row are distinct.
    if (warp == 0) {
      __syncwarp();
      cuda::Classify(cuda::WarpGroup(), classified, args.channel, args.doorbell, &classify);
      if (lane == 0) router::CountDistinct(args, classify.hits, classify.misses);
    }
    __syncthreads();
  } else {
    __syncthreads();
    cuda::Classify(cuda::BlockGroup(), classified, args.channel, args.doorbell, &classify);
  }
  // Of one row, while its routes are grouped.
  const int ringing = rows == 1 ? 1 : 0;
  if (classify.ring != 0 && warp >= ringing) {
    router::RingMisses(args, classified, classify, norms, {ringing * 32, kScoreThreads - ringing * 32});
  }
  if (rows == 1) {
    if (warp == 0) router::GroupRow(args, routes, lane);
    return;
  }
  __syncthreads();
  router::GroupRoutes<kScoreWarps>(args, routes, step.slots, rows, reinterpret_cast<uint32_t*>(scratch));
  __syncthreads();
  for (int r = static_cast<int>(threadIdx.x); r < rows * args.used; r += kScoreThreads) {
    args.routes.ids[r] = routes.ids[r];
    args.routes.weights[r] = routes.weights[r];
    args.routes.slots[r] = routes.slots[r];
  }
}

// bucket: rows that may be read.
template <int kSteps, int kBatch>
__global__ void __launch_bounds__(kScoreThreads) RouterKernel(const __grid_constant__ RouterArgs args, int bucket) {
  extern __shared__ __align__(16) float scratch[];
  __shared__ router::Partials<kBatch> partials;
  __shared__ float norms[kMaxStepRows];
  __shared__ volatile uint32_t touched;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int chooser = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // 0: the last block
  router::Scorer<kSteps, kBatch> scorer(args);
  // A placement changes between steps alone.
  const StepRoutes step(args, scratch);
  uint64_t placement = 0;
  if (chooser == 0) {
    const int32_t* const table = args.expert_to_slot[args.layer];
    for (int e = static_cast<int>(threadIdx.x); e < args.experts; e += kScoreThreads) step.slots[e] = table[e];
    placement = *args.placement;
  }
  AwaitPrevious();
  scorer.Load(args, 0, bucket);
  const int rows = *args.rows;
  const int choosers = rows <= kOwnRows ? 1 : min(kChoosers, static_cast<int>(gridDim.x));
  const bool chooses = chooser < choosers;
  float scale = 0;
  const int own = chooser + choosers * warp;
  if (chooses && own < rows) scale = RowScale(NormOf(args.x), own, lane);  // while the rows are on their way
  const uint32_t touch = chooser == 0 && warp == kScoreWarps - 1 ? Touch(*args.doorbell, lane) : 0;
  scorer.Run(args, rows, &partials);
  if (!chooses) return;
  __syncthreads();  // the block's own scores are sent: no warp waits for its own lanes
  float* const own_scratch = scratch + warp * WarpFloats(args.experts);
#pragma unroll 1
  for (int m = own; m < rows; m += choosers * kScoreWarps) {
    if (m != own) scale = RowScale(NormOf(args.x), m, lane);
    ChooseRow(args, step.routes, m, scale, own_scratch, lane);
    if (choosers > 1) {
      SendRoutes(args, step.routes, m, scale, lane);
    } else if (lane == 0) {
      norms[m] = scale;
    }
  }
  if (chooser != 0) return;
  if (warp == kScoreWarps - 1) touched = touch;
  if (choosers > 1) {
    __syncthreads();  // its own routes are sent
    ReceiveRoutes(args, step.routes, rows, norms);
  }
  Finish(args, step, rows, placement, norms, scratch);
}

template <int kSteps, int kBatch>
cudaError_t LaunchAs(const RouterArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const int outputs = args.experts + (args.shared_gate ? 1 : 0);
  const auto shared = static_cast<uint32_t>((ScratchFloats(args.experts) + StepFloats(args.experts, args.used)) *
                                            static_cast<int>(sizeof(float)));
  constexpr uint32_t kStaticBytes = sizeof(router::Partials<kBatch>) + 512;
  if (shared + kStaticBytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(
        RouterKernel<kSteps, kBatch>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  return cuda::Launch(
      queue,
      {.name = "router",
       .bytes = static_cast<uint64_t>(outputs + bucket) * static_cast<uint64_t>(args.x.hidden) * sizeof(float)},
      {.grid = dim3(static_cast<unsigned>((outputs + kScoreExperts - 1) / kScoreExperts)),
       .block = dim3(kScoreThreads),
       .shared_bytes = shared,
       .overlap = true},
      RouterKernel<kSteps, kBatch>, args, bucket);
}

}  // namespace

cudaError_t LaunchRouter(const RouterArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  if (args.x.hidden % 4 != 0 || args.used > 32 || args.used > args.experts) return cudaErrorInvalidValue;
  // Weights of five steps and four rows fit into registers together, or of eight and two.
  const bool narrow = args.x.hidden <= 5 * router::kScoreStep;
  if (bucket == 1) return narrow ? LaunchAs<5, 1>(args, bucket, queue) : LaunchAs<8, 1>(args, bucket, queue);
  return narrow ? LaunchAs<5, 4>(args, bucket, queue) : LaunchAs<8, 2>(args, bucket, queue);
}

}  // namespace bellhop::kernels
