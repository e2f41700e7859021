// The router: scores by many blocks; one of them chooses, classifies, rings, and groups the routes
// by expert.
#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/router_row.cuh"

namespace bellhop::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
// Four warps an expert: every lane has at most a few loads, all under way at once.
constexpr int kExpertWarps = 4;
constexpr int kExperts = kWarps / kExpertWarps;  // of a block
constexpr int kColumnStep = 4 * 32 * kExpertWarps;
constexpr int kAhead = 4;  // weights of this many steps are loaded before the kernel ahead has ended

__device__ __forceinline__ float4 LoadFour(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ __forceinline__ float Dot(const float4& w, const float4& x, const float4& g, float sum) {
  sum = __fmaf_rn(w.x, x.x * g.x, sum);
  sum = __fmaf_rn(w.y, x.y * g.y, sum);
  sum = __fmaf_rn(w.z, x.z * g.z, sum);
  return __fmaf_rn(w.w, x.w * g.w, sum);
}

// Scores of one row go from block to block as words that say themselves that they are there: no fence, no counter and
// no second look. The last block waits for them; all others end without waiting for anybody.
__device__ __forceinline__ bool SendsWords(const RouterArgs& args, int rows) {
  return rows == 1 && args.row_scores != nullptr;
}
__device__ __forceinline__ void Send(uint64_t* word, float score) {
  *static_cast<volatile uint64_t*>(word) = uint64_t{1} << 32 | __float_as_uint(score);
}
// Leaves a zero.
__device__ __forceinline__ float Receive(uint64_t* word) {
  uint64_t got = 0;
  while (got == 0) got = *static_cast<const volatile uint64_t*>(word);
  *word = 0;
  return __uint_as_float(static_cast<uint32_t>(got));
}

// The scores of the block's experts for all rows. norms: 1 / rms of the rows, left for the last block.
__device__ void Score(const RouterArgs& args, float* norms, int* active) {
  __shared__ float partial[kMaxStepRows][kExperts][kExpertWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp / kExpertWarps, expert = static_cast<int>(blockIdx.x) * kExperts + own;
  const int outputs = args.experts + (args.shared_gate ? 1 : 0), hidden = args.x.hidden;
  const int first = 4 * (warp % kExpertWarps * 32 + lane);
  const float* const w = args.weights + int64_t{min(expert, outputs - 1)} * hidden;
  float4 ahead[kAhead], gain[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int c = first + i * kColumnStep;
    ahead[i] = c < hidden ? LoadFour(w + c) : make_float4(0, 0, 0, 0);
    gain[i] = c < hidden ? LoadFour(args.x.norm + c) : make_float4(0, 0, 0, 0);
  }
  AwaitPrevious();
  const int rows = *args.rows;
  *active = rows;
  for (int m = 0; m < rows; ++m) {
    const float* const x = args.x.values + int64_t{m} * hidden;
    float4 row[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int c = first + i * kColumnStep;
      row[i] = c < hidden ? LoadFour(x + c) : make_float4(0, 0, 0, 0);
    }
    if (m % kWarps == warp) {  // while the row is on its way
      const float scale = RowScale(NormOf(args.x), m, lane);
      if (lane == 0) norms[m] = scale;
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum = Dot(ahead[i], row[i], gain[i], sum);
    for (int c = first + kAhead * kColumnStep; c < hidden; c += kColumnStep) {
      sum = Dot(LoadFour(w + c), LoadFour(x + c), LoadFour(args.x.norm + c), sum);
    }
    sum = WarpSum(sum);
    if (lane == 0) partial[m][own][warp % kExpertWarps] = sum;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * kExperts; i += kThreads) {
    const int m = i / kExperts, e = static_cast<int>(blockIdx.x) * kExperts + i % kExperts;
    if (e >= outputs) continue;
    float score = 0;
    for (int part = 0; part < kExpertWarps; ++part) score += partial[m][i % kExperts][part];
    score *= norms[m];
    if (args.bias != nullptr && e < args.experts) score += args.bias[e];
    args.logits[int64_t{m} * (args.experts + 1) + e] = score;
    if (SendsWords(args, rows)) Send(&args.row_scores[e], score);
  }
}

// Whether this block chooses for all. Scores that came as words are then in `received`, [outputs].
__device__ bool IsChooser(const RouterArgs& args, int rows, float* received) {
  if (!SendsWords(args, rows)) return ArriveLast(args.arrivals, gridDim.x);
  if (blockIdx.x + 1 != gridDim.x) return false;
  const int outputs = args.experts + (args.shared_gate ? 1 : 0);
  __syncthreads();  // its own scores are sent: no warp waits for a lane of its own
  for (int e = static_cast<int>(threadIdx.x); e < outputs; e += kThreads) received[e] = Receive(&args.row_scores[e]);
  __syncthreads();
  return true;
}

// One thread: experts of the layer in this step, and those of them that have a slot.
__device__ __forceinline__ void CountDistinct(const RouterArgs& args, uint32_t experts, uint32_t hits) {
  cuda::AddToTotal(&args.distinct[0], hits);
  cuda::AddToTotal(&args.distinct[1], experts - hits);
}

// The block: routes that have a slot, in order of their experts; within an expert in route order. Where misses are
// staged, they get slots first. scratch: [2][experts].
__device__ void GroupRoutes(const RouterArgs& args, const RouteTable& t, int rows,
                            const cuda::ClassifyScratch& classify, int32_t* scratch) {
  __shared__ int32_t groups, staged;
  const bool stage = args.staged.count != nullptr;
  const int total = rows * args.used, thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int32_t *const counts = scratch, *const slot_of = scratch + args.experts;
  // The same before and after a miss gets its slot.
  auto grouped = [&](int r) { return stage ? t.slots[r] != cuda::kDroppedRoute : t.slots[r] >= 0; };
  for (int e = thread; e < args.experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  for (int r = thread; r < total; r += kThreads) {
    if (!grouped(r)) continue;
    atomicAdd_block(&counts[t.ids[r]], 1);
    slot_of[t.ids[r]] = t.slots[r];
  }
  __syncthreads();
  if (thread < 32) {
    int32_t done = 0, offset = 0, missing = 0;
    for (int base = 0; base < args.experts; base += 32) {
      const int e = base + lane, count = e < args.experts ? counts[e] : 0;
      const bool miss = count > 0 && slot_of[e] < 0;
      const unsigned have = __ballot_sync(0xFFFFFFFFu, count > 0), misses = __ballot_sync(0xFFFFFFFFu, miss);
      const unsigned lower = (1u << lane) - 1u;
      int32_t before = count;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int32_t other = __shfl_up_sync(0xFFFFFFFFu, before, step);
        if (lane >= step) before += other;
      }
      const int32_t sum = __shfl_sync(0xFFFFFFFFu, before, 31);
      before -= count;
      if (miss) {
        const int32_t index = missing + __popc(misses & lower);
        args.staged.experts[index] = e;
        slot_of[e] = args.first_staging_slot + index;
      }
      if (count > 0) t.groups[done + __popc(have & lower)] = {slot_of[e], e, offset + before, count};
      if (e < args.experts) counts[e] = offset + before;
      done += __popc(have);
      missing += __popc(misses);
      offset += sum;
    }
    if (lane == 0) {
      groups = done;
      staged = missing;
    }
  }
  __syncthreads();
  for (int r = thread; r < total; r += kThreads) {
    if (!grouped(r)) continue;
    int32_t rank = 0;
    for (int other = 0; other < r; ++other) rank += grouped(other) && t.ids[other] == t.ids[r] ? 1 : 0;
    t.order[counts[t.ids[r]] + rank] = r;
    if (stage) t.slots[r] = slot_of[t.ids[r]];
  }
  if (thread != 0) return;
  *t.group_count = groups;
  if (stage) *args.staged.count = staged;
  CountDistinct(args, classify.experts, static_cast<uint32_t>(groups - staged));
}

// One warp, one row: each of its experts is a group, in ascending order.
__device__ void GroupRow(const RouterArgs& args, const RouteTable& t, int lane) {
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

// The input of the experts for the rows that the CPU is asked for.
__device__ void WriteNormed(const RouterArgs& args, int rows, const float* norms) {
  const int hidden = args.x.hidden;
  for (int i = static_cast<int>(threadIdx.x); i < rows * hidden; i += kThreads) {
    args.x_norm[i] = args.x.values[i] * args.x.norm[i % hidden] * norms[i / hidden];
  }
  __syncthreads();
}

// What Classify reads of a step of one row comes to L1 while another warp chooses the experts. The store keeps the
// loads alive.
__device__ __forceinline__ void Touch(const cuda::DoorbellState& state) {
  __shared__ volatile uint32_t touched;
  touched = static_cast<uint32_t>(state.rows[0].code) + static_cast<uint32_t>(state.steps);
}

// Probabilities and scores of a row for each warp.
__host__ __device__ constexpr int ScratchFloats(int experts) { return kWarps * 2 * experts; }

// Shared memory of the last block, behind the warps' scratch: the step's routes, and the layer's slots.
struct LastBlock {
  RouteTable routes;
  int32_t* slots;
  __device__ LastBlock(const RouterArgs& args, float* scratch) : routes(args.routes) {
    routes.ids = reinterpret_cast<int32_t*>(scratch + ScratchFloats(args.experts));
    routes.slots = routes.ids + kMaxStepRows * args.used;
    routes.weights = reinterpret_cast<float*>(routes.slots + kMaxStepRows * args.used);
    slots = reinterpret_cast<int32_t*>(routes.weights + kMaxStepRows * args.used);
  }
};

__global__ void __launch_bounds__(kThreads) RouterKernel(RouterArgs args) {
  extern __shared__ float scratch[];
  __shared__ cuda::ClassifyScratch classify;
  __shared__ float norms[kMaxStepRows];
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // A placement changes between steps alone.
  const LastBlock shared(args, scratch);
  const int32_t* const table = args.expert_to_slot[args.layer];
  for (int e = static_cast<int>(threadIdx.x); e < args.experts; e += kThreads) shared.slots[e] = table[e];
  const uint64_t placement = *args.placement;
  int rows = 0;
  Score(args, norms, &rows);
  float* const received = scratch + 2 * args.experts;  // the second warp's, which has no row then
  if (!IsChooser(args, rows, received)) return;
  if (rows == 1 && warp == 1) Touch(*args.doorbell);

  const RouteTable& routes = shared.routes;
  cuda::ClassifyArgs classified = {.layer = args.layer,
                                   .rows = rows,
                                   .used = args.used,
                                   .experts = args.experts,
                                   .ids = routes.ids,
                                   .weights = routes.weights,
                                   .expert_to_slot = shared.slots,
                                   .placement = placement,
                                   .x = args.x_norm,
                                   .x_stride = args.x.hidden,
                                   .route_slots = routes.slots,
                                   .route_counts = args.route_counts,
                                   .last_steps = args.last_steps,
                                   .ring_misses = args.ring_misses};
  float* const own = scratch + int64_t{warp} * 2 * args.experts;
  for (int m = warp; m < rows; m += kWarps) {
    const float* const logits = SendsWords(args, rows) ? received : args.logits + int64_t{m} * (args.experts + 1);
    router::Route(args, routes, m, logits, own, lane);
    if (args.shared_gate && lane == 0) {
      const float gate = logits[args.experts];
      args.routes.shared_weights[m] = 1.0f / (1.0f + expf(-gate));
    }
  }
  const cuda::BlockGroup block;
  if (rows == 1) {
    // One warp, without barriers of the block; the experts of one row are distinct.
    if (warp == 0) {
      __syncwarp();
      classified.last_steps = nullptr;
      cuda::Classify(cuda::WarpGroup(), classified, args.channel, args.doorbell, &classify);
      if (lane == 0) CountDistinct(args, classify.hits + classify.misses, classify.hits);
    }
    __syncthreads();
  } else {
    __syncthreads();
    cuda::Classify(block, classified, args.channel, args.doorbell, &classify);
  }
  if (classify.ring != 0) {
    WriteNormed(args, rows, norms);
    cuda::Ring(block, classified, args.channel, args.doorbell, classify);
  }
  if (rows == 1) {
    if (warp == 0) GroupRow(args, routes, lane);
    return;
  }
  __syncthreads();
  GroupRoutes(args, routes, rows, classify, reinterpret_cast<int32_t*>(scratch));
  __syncthreads();
  for (int r = static_cast<int>(threadIdx.x); r < rows * args.used; r += kThreads) {
    args.routes.ids[r] = routes.ids[r];
    args.routes.weights[r] = routes.weights[r];
    args.routes.slots[r] = routes.slots[r];
  }
}

}  // namespace

cudaError_t LaunchRouter(const RouterArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const int outputs = args.experts + (args.shared_gate ? 1 : 0);
  const auto shared = static_cast<uint32_t>(
      (ScratchFloats(args.experts) + 3 * kMaxStepRows * args.used + args.experts) * static_cast<int>(sizeof(float)));
  if (shared > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(RouterKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  return cuda::Launch(
      queue,
      {.name = "router",
       .bytes = static_cast<uint64_t>(outputs + bucket) * static_cast<uint64_t>(args.x.hidden) * sizeof(float)},
      {.grid = dim3(static_cast<unsigned>((outputs + kExperts - 1) / kExperts)),
       .block = dim3(kThreads),
       .shared_bytes = shared,
       .overlap = true},
      RouterKernel, args);
}

}  // namespace bellhop::kernels
