// The router for many rows: scores by tiles of rows and experts, then a warp a row chooses.
#include <algorithm>

#include "cuda/launch.h"
#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/prompt_step.h"
#include "kernels/cuda/router_row.cuh"
#include "kernels/cuda/router_score.cuh"

namespace bellhop::kernels {
namespace {

using router::kScorePieces, router::kScoreStep, router::kScoreSums;

// Each score is the sum that the decode router makes (router_score.cuh). Four groups of warps have one of its four sums
// each; their columns lie side by side, so 16 columns of all steps (a part) are loaded for all groups together.
constexpr int kParts = kScorePieces / kScoreSums;  // of a row
constexpr int kPartColumns = 4 * kScoreSums;       // of a step
constexpr int kStageSteps = 5;                     // of one part, at most
constexpr int kStages = 3;
// Rows of an odd number of 16 bytes: eight rows are in all banks.
constexpr int kRowFloats = kStageSteps * kPartColumns + 4;
constexpr int kScoreTileExperts = 64;
constexpr int kOwn = 8;  // rows and experts of a thread
constexpr int kWarpRows = 4 * kOwn;

template <int kRowWarps>
constexpr int kScoreRows = kWarpRows* kRowWarps;
template <int kRowWarps>
constexpr int kScoreTileThreads = 32 * kScoreSums* kRowWarps;
template <int kRowWarps>
constexpr int kStageFloats = (kScoreRows<kRowWarps> + kScoreTileExperts) * kRowFloats;
template <int kRowWarps>
constexpr int kTileBytes = kStages* kStageFloats<kRowWarps>* static_cast<int>(sizeof(float));

// The steps that one stage has of a part.
struct StageCut {
  int cuts, each, steps;  // of a part: stages, steps of each, steps
  __device__ explicit StageCut(int hidden) : cuts(1), each(0), steps((hidden + kScoreStep - 1) / kScoreStep) {
    cuts = (steps + kStageSteps - 1) / kStageSteps;
    each = (steps + cuts - 1) / cuts;
    cuts = (steps + each - 1) / each;
  }
  __device__ int count() const { return kParts * cuts; }
};

// Rows and weights of one stage. Four threads have the 64 bytes of a row and a step.
template <int kRowWarps>
class TileLoads {
 public:
  __device__ TileLoads(const PromptRouterArgs& args, int first_row, int first_expert, float* stages)
      : hidden_(args.router.x.hidden), column_(4 * (static_cast<int>(threadIdx.x) % kScoreSums)), stages_(stages) {
    const RouterArgs& r = args.router;
    const int line = static_cast<int>(threadIdx.x) / kScoreSums, outputs = r.experts + (r.shared_gate ? 1 : 0);
    // What does not exist is read as the last one.
    x_ = r.x.values + int64_t{min(first_row + line, args.rows - 1)} * hidden_;
#pragma unroll
    for (int i = 0; i < kWeightLines; ++i) {
      w_[i] = r.weights + int64_t{min(first_expert + line + i * kLines, outputs - 1)} * hidden_;
    }
    to_ = line * kRowFloats + column_;
  }
  __device__ void Start(const StageCut& cut, int stage) const {
    if (stage < cut.count()) {
      const int part = stage / cut.cuts, first = stage % cut.cuts * cut.each, end = min(first + cut.each, cut.steps);
      float* const to = stages_ + stage % kStages * kStageFloats<kRowWarps> + to_;
      for (int i = first; i < end; ++i) {
        const int c = i * kScoreStep + part * kPartColumns + column_, at = (i - first) * kPartColumns;
        const bool have = c < hidden_;
        CopyAsync16(to + at, have ? x_ + c : x_, have);
#pragma unroll
        for (int k = 0; k < kWeightLines; ++k) {
          CopyAsync16(to + (kScoreRows<kRowWarps> + k * kLines) * kRowFloats + at, have ? w_[k] + c : w_[k], have);
        }
      }
    }
    CommitCopies();
  }

 private:
  static constexpr int kLines = kScoreTileThreads<kRowWarps> / kScoreSums, kWeightLines = kScoreTileExperts / kLines;
  static_assert(kLines == kScoreRows<kRowWarps> && kScoreTileExperts % kLines == 0, "a line is a row");
  int hidden_, column_, to_;
  float* stages_;
  const float *x_, *w_[kWeightLines];
};

// A thread's sums: rows 4 apart, experts 8 apart.
template <int kExperts>
struct OwnSums {
  float piece[kOwn][kExperts];     // of the piece that is under way
  float all[kOwn][kExperts] = {};  // of those before

  // x, w: the piece's four columns of the first row and expert.
  template <bool kFirst>
  __device__ __forceinline__ void Add(const float* x, const float* w) {
    float4 weights[kExperts];
#pragma unroll
    for (int e = 0; e < kExperts; ++e) weights[e] = router::LoadFour(w + 8 * e * kRowFloats);
#pragma unroll
    for (int m = 0; m < kOwn; ++m) {
      const float4 row = router::LoadFour(x + 4 * m * kRowFloats);
#pragma unroll
      for (int e = 0; e < kExperts; ++e)
        piece[m][e] = kFirst ? __fmul_rn(weights[e].x, row.x) : __fmaf_rn(weights[e].x, row.x, piece[m][e]);
#pragma unroll
      for (int e = 0; e < kExperts; ++e) piece[m][e] = __fmaf_rn(weights[e].y, row.y, piece[m][e]);
#pragma unroll
      for (int e = 0; e < kExperts; ++e) piece[m][e] = __fmaf_rn(weights[e].z, row.z, piece[m][e]);
#pragma unroll
      for (int e = 0; e < kExperts; ++e) piece[m][e] = __fmaf_rn(weights[e].w, row.w, piece[m][e]);
    }
  }
  __device__ __forceinline__ void FinishPiece() {
#pragma unroll
    for (int m = 0; m < kOwn; ++m) {
#pragma unroll
      for (int e = 0; e < kExperts; ++e) all[m][e] += piece[m][e];
    }
  }
};

// kExperts: the first so many of each eighth of the tile's experts.
template <int kRowWarps, int kExperts>
__device__ __forceinline__ void MakeScores(const PromptRouterArgs& args, int first_row, int first_expert,
                                           float* stages) {
  const RouterArgs& r = args.router;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = warp / kRowWarps, own_row = warp % kRowWarps * kWarpRows + lane / 8, own_expert = lane % 8;
  const TileLoads<kRowWarps> loads(args, first_row, first_expert, stages);
  const StageCut cut(r.x.hidden);
  OwnSums<kExperts> sums;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) loads.Start(cut, s);
  for (int stage = 0, of_part = 0; stage < cut.count(); ++stage) {
    AwaitCopies<kStages - 2>();
    __syncthreads();  // the stage is there, and nobody reads the one before it any more
    loads.Start(cut, stage + kStages - 1);
    const float* const tile = stages + stage % kStages * kStageFloats<kRowWarps> + 4 * group;
    const float *x = tile + own_row * kRowFloats, *w = tile + (kScoreRows<kRowWarps> + own_expert) * kRowFloats;
    const int steps = min(cut.each, cut.steps - of_part * cut.each);
    if (of_part == 0) {
      sums.template Add<true>(x, w);
    } else {
      sums.template Add<false>(x, w);
    }
#pragma unroll 1
    for (int i = 1; i < steps; ++i) {
      x += kPartColumns, w += kPartColumns;
      sums.template Add<false>(x, w);
    }
    if (++of_part < cut.cuts) continue;
    of_part = 0;
    sums.FinishPiece();
  }
  AwaitCopies<0>();
  __syncthreads();
  // Rows of 8 words more than experts: a warp's 32 are in all banks.
  constexpr int kExpertFloats = kScoreTileExperts + 8;
#pragma unroll
  for (int m = 0; m < kOwn; ++m) {
#pragma unroll
    for (int e = 0; e < kExperts; ++e) {
      stages[(group * kScoreRows<kRowWarps> + own_row + 4 * m) * kExpertFloats + own_expert + 8 * e] = sums.all[m][e];
    }
  }
  __syncthreads();
  const int outputs = r.experts + (r.shared_gate ? 1 : 0);
  for (int i = static_cast<int>(threadIdx.x); i < kScoreRows<kRowWarps> * kScoreTileExperts;
       i += kScoreTileThreads<kRowWarps>) {
    const int own = i / kScoreTileExperts, row = first_row + own, expert = first_expert + i % kScoreTileExperts;
    if (row >= args.rows || expert >= outputs) continue;
    const float* const four = stages + own * kExpertFloats + i % kScoreTileExperts;
    float sum = four[0];
#pragma unroll
    for (int s = 1; s < kScoreSums; ++s) sum += four[s * kScoreRows<kRowWarps> * kExpertFloats];
    sum *= args.inverse_rms[row];
    if (r.bias != nullptr && expert < r.experts) sum += r.bias[expert];
    r.logits[int64_t{row} * (r.experts + 1) + expert] = sum;
  }
}

// Grid: experts, rows.
template <int kRowWarps>
__global__ void __launch_bounds__(kScoreTileThreads<kRowWarps>, 1)
    ScoreKernel(const __grid_constant__ PromptRouterArgs args) {
  extern __shared__ __align__(16) float stages[];
  LetNextStart();
  AwaitPrevious();
  const int first_expert = static_cast<int>(blockIdx.x) * kScoreTileExperts;
  const int first_row = static_cast<int>(blockIdx.y) * kScoreRows<kRowWarps>;
  // The last tile may have no more than a shared gate.
  if (args.router.experts + (args.router.shared_gate ? 1 : 0) - first_expert <= kScoreTileExperts / kOwn) {
    MakeScores<kRowWarps, 1>(args, first_row, first_expert, stages);
  } else {
    MakeScores<kRowWarps, kOwn>(args, first_row, first_expert, stages);
  }
}

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;

__global__ void __launch_bounds__(kThreads) ChooseKernel(const __grid_constant__ PromptRouterArgs args) {
  extern __shared__ __align__(16) float scratch[];  // [kWarps][2][experts]
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

unsigned Blocks(int n, int of) { return static_cast<unsigned>((n + of - 1) / of); }

template <int kRowWarps>
cudaError_t LaunchScores(const PromptRouterArgs& args, const cuda::LaunchQueue& queue) {
  const RouterArgs& r = args.router;
  const int outputs = r.experts + (r.shared_gate ? 1 : 0);
  const auto rows = static_cast<uint64_t>(args.rows), hidden = static_cast<uint64_t>(r.x.hidden);
  const cudaError_t error =
      cudaFuncSetAttribute(ScoreKernel<kRowWarps>, cudaFuncAttributeMaxDynamicSharedMemorySize, kTileBytes<kRowWarps>);
  if (error != cudaSuccess) return error;
  return cuda::Launch(queue,
                      {.name = "prompt scores",
                       .bytes = (static_cast<uint64_t>(outputs) + rows) * hidden * sizeof(float),
                       .flops = 2 * rows * static_cast<uint64_t>(outputs) * hidden},
                      {.grid = dim3(Blocks(outputs, kScoreTileExperts), Blocks(args.rows, kScoreRows<kRowWarps>)),
                       .block = dim3(kScoreTileThreads<kRowWarps>),
                       .shared_bytes = kTileBytes<kRowWarps>,
                       .overlap = true,
                       .shared_carveout = 100},
                      ScoreKernel<kRowWarps>, args);
}

}  // namespace

cudaError_t LaunchPromptRouter(const PromptRouterArgs& args, const cuda::LaunchQueue& queue) {
  const RouterArgs& r = args.router;
  if (args.rows <= 0 || r.used <= 0 || r.used > 32 || r.used > r.experts || r.x.hidden % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  const auto shared = static_cast<uint32_t>(kWarps * 2 * r.experts * static_cast<int>(sizeof(float)));
  cudaError_t error = cudaSuccess;
  if (shared > 48 * 1024) {
    error = cudaFuncSetAttribute(ChooseKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  // Smaller tiles where large ones would leave most of a GPU without any.
  constexpr unsigned kFewTiles = 80;
  const unsigned tiles = Blocks(args.rows, kScoreRows<2>) * Blocks(r.experts, kScoreTileExperts);
  error = tiles > kFewTiles ? LaunchScores<2>(args, queue) : LaunchScores<1>(args, queue);
  if (error != cudaSuccess) return error;
  const auto rows = static_cast<uint64_t>(args.rows);
  return cuda::Launch(
      queue, {.name = "prompt routes", .bytes = rows * static_cast<uint64_t>(r.experts + 3 * r.used) * sizeof(float)},
      {.grid = dim3(Blocks(args.rows, kWarps)), .block = dim3(kThreads), .shared_bytes = shared, .overlap = true},
      ChooseKernel, args);
}

}  // namespace bellhop::kernels
