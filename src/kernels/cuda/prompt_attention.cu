#include "kernels/cuda/prompt_attention.cuh"

#include "cuda/launch.h"
#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/prompt_attention_wgmma.h"

namespace bellhop::kernels {
namespace prompt_attention {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = kWarps * 16;  // of a block: queries times the heads of one KV head

// Copies of tiles of K or V of one KV head to shared memory, by a block.
class TileCopy {
 public:
  __device__ __forceinline__ TileCopy(const uint8_t* head, int64_t page_bytes, int32_t dim)
      : head_(head), page_bytes_(page_bytes), pieces_(dim / 8) {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    row_ = thread / pieces_;
    piece_ = thread % pieces_;
    row_step_ = kThreads / pieces_;
    piece_step_ = kThreads % pieces_;
  }
  // Zeros for rows outside of [lo, hi). `in_page`: of the first row.
  template <int kKeys, int kRowBytes>
  __device__ __forceinline__ void Start(int64_t page, int32_t in_page, int32_t lo, int32_t hi, uint8_t* to) const {
    const uint8_t* const from = head_ + page * page_bytes_ + int64_t{in_page} * pieces_ * 16;
    int32_t row = row_, piece = piece_;
    while (row < kKeys) {
      CopyAsync16(to + row * kRowBytes + piece * 16, from + (row * pieces_ + piece) * 16, row >= lo && row < hi);
      row += row_step_;
      piece += piece_step_;
      if (piece >= pieces_) piece -= pieces_, ++row;
    }
  }

 private:
  const uint8_t* head_;
  int64_t page_bytes_;
  int32_t pieces_, row_, piece_, row_step_, piece_step_;
};

// Grid: blocks of rows, the last ones, which see most, first; KV heads.
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads, kDim <= 64 ? 3 : 2)
    TensorKernel(const __grid_constant__ PromptAttendArgs args) {
  using Warp = WarpAttention<T, kDim>;
  constexpr int kKeys = Warp::kKeys, kTileBytes = kKeys * Warp::kRowBytes;
  extern __shared__ __align__(128) uint8_t shared[];  // two stages of keys and values
  LetNextStart();
  AwaitPrevious();
  const KvLayer& kv = args.kv;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int group = args.heads / kv.kv_heads, kv_head = static_cast<int>(blockIdx.y);
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  LaneRows rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = block * kRows + thread / 32 * 16 + lane / 4 + 8 * i, query = row / group;
    const bool have = query < args.rows;
    const int32_t position = args.first_position + query;
    rows.query[i] = have ? query : -1;
    rows.head[i] = kv_head * group + row % group;
    rows.begin[i] = have ? FirstVisible(position, args.window) : 0;
    rows.end[i] = have ? position + 1 : 0;
  }
  const int last_query = min(args.rows, (block * kRows + kRows - 1) / group + 1) - 1;
  const int32_t begin = FirstVisible(args.first_position + block * kRows / group, args.window);
  const int32_t end = args.first_position + last_query + 1;

  const int64_t head_rows = int64_t{kv_head} * kKvPageTokens;
  const TileCopy keys(kv.keys + head_rows * kv.key_dim * 2, kv.page_bytes, kv.key_dim);
  const TileCopy values(kv.values + head_rows * kv.value_dim * 2, kv.page_bytes, kv.value_dim);
  const int32_t first = begin / kKeys, last = (end - 1) / kKeys;
  auto stage = [&](int32_t tile) { return shared + (tile - first) % 2 * 2 * kTileBytes; };
  auto start = [&](int32_t tile) {
    if (tile <= last) {
      const int32_t position = tile * kKeys;
      const int64_t page = args.block_table[position / kKvPageTokens];
      uint8_t* const to = stage(tile);
      keys.Start<kKeys, Warp::kRowBytes>(page, position % kKvPageTokens, begin - position, end - position, to);
      values.Start<kKeys, Warp::kRowBytes>(page, position % kKvPageTokens, begin - position, end - position,
                                           to + kTileBytes);
    }
    CommitCopies();
  };
  start(first);
  if (kv.key_dim % 16 != 0) {
    // Columns behind the head's size meet zeros of the query, but must not be NaN.
    for (int i = thread; i < 2 * kKeys; i += kThreads) {
      uint8_t* const row = shared + i / kKeys * 2 * kTileBytes + i % kKeys * Warp::kRowBytes;
      *reinterpret_cast<uint4*>(row + kv.key_dim * 2) = make_uint4(0, 0, 0, 0);
    }
  }
  Warp warp;
  warp.Begin(args, rows, lane);
  const float scale = args.scale * kLog2E;
  for (int32_t tile = first; tile <= last; ++tile) {
    start(tile + 1);
    AwaitCopies<1>();
    __syncthreads();
    warp.Scores(stage(tile), kv.key_dim, lane);
    warp.Weigh(rows, scale, tile * kKeys, lane);
    warp.Values(stage(tile) + kTileBytes, kv.value_dim, lane);
    __syncthreads();  // the stage is free
  }
  AwaitCopies<0>();
  warp.Store(args, rows, lane);
}

// f32: a warp a query and head; lane l scores position l of 32, then owns dims l, l + 32, ... Grid: heads, rows.
__global__ void __launch_bounds__(kThreads) PlainKernel(const __grid_constant__ PromptAttendArgs args) {
  constexpr int kKeys = 32, kOwn = kAttentionMaxDim / 32;
  __shared__ __align__(16) float queries[kWarps][kAttentionMaxDim];
  LetNextStart();
  AwaitPrevious();
  const KvLayer& kv = args.kv;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.x) * kWarps + warp, query = static_cast<int>(blockIdx.y);
  if (head >= args.heads) return;
  float* const q = queries[warp];
  for (int e = lane; e < kv.key_dim; e += 32) q[e] = args.q[query * args.q_stride + head * kv.key_dim + e];
  __syncwarp();
  const int kv_head = head / (args.heads / kv.kv_heads);
  const int32_t position = args.first_position + query, begin = FirstVisible(position, args.window);
  const float scale = args.scale * kLog2E;
  float max = -INFINITY, sum = 0, out[kOwn] = {};
  for (int32_t tile = begin / kKeys; tile <= position / kKeys; ++tile) {
    const int32_t first = tile * kKeys;
    const int64_t page = args.block_table[first / kKvPageTokens];
    const int64_t row = int64_t{kv_head} * kKvPageTokens + first % kKvPageTokens;
    const auto* const keys = reinterpret_cast<const float*>(kv.keys + page * kv.page_bytes) + row * kv.key_dim;
    const auto* const values = reinterpret_cast<const float*>(kv.values + page * kv.page_bytes) + row * kv.value_dim;
    const bool visible = first + lane >= begin && first + lane <= position;
    float score = 0;
    if (visible) {
      for (int e = 0; e < kv.key_dim; e += 4) {
        const float4 a = *reinterpret_cast<const float4*>(q + e);
        const float4 b = *reinterpret_cast<const float4*>(keys + lane * kv.key_dim + e);
        score = __fmaf_rn(a.x, b.x, score);
        score = __fmaf_rn(a.y, b.y, score);
        score = __fmaf_rn(a.z, b.z, score);
        score = __fmaf_rn(a.w, b.w, score);
      }
    }
    score = visible ? score * scale : -INFINITY;
    float top = score;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
    top = fmaxf(max, top);
    const float reference = Reference(top), factor = exp2f(max - reference);
    max = top;
    const float weight = exp2f(score - reference);
    sum = __fmaf_rn(sum, factor, weight);
#pragma unroll
    for (float& o : out) o *= factor;
    const int lo = begin > first ? begin - first : 0, hi = min(kKeys - 1, position - first);
    for (int j = lo; j <= hi; ++j) {
      const float w = __shfl_sync(~0u, weight, j);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int d = lane + 32 * i;
        if (d < kv.value_dim) out[i] = __fmaf_rn(w, values[j * kv.value_dim + d], out[i]);
      }
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
  float factor = 1;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head] * kLog2E, reference = Reference(fmaxf(max, sink));
    factor = exp2f(max - reference);
    sum = __fmaf_rn(sum, factor, exp2f(sink - reference));
  }
  factor = factor / sum;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int d = lane + 32 * i;
    if (d >= kv.value_dim) break;
    args.out.data[int64_t{query} * args.out.stride + PromptPosition(head * kv.value_dim + d)] =
        __bfloat16_as_ushort(__float2bfloat16_rn(out[i] * factor));
  }
}

// Sums of sixteen columns, and zeros behind the last head. A thread has groups of 32 columns of a row.
__global__ void __launch_bounds__(kThreads) FinishKernel(TermRows out, int32_t columns) {
  LetNextStart();
  AwaitPrevious();
  const int64_t row = blockIdx.x;
  for (int first = static_cast<int>(threadIdx.x) * kTermGroup; first < out.stride; first += kThreads * kTermGroup) {
    uint16_t* const group = out.data + row * out.stride + first;
    float sums[2] = {0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int quad = 0; quad < 4; ++quad) {
        auto* const at = reinterpret_cast<uint32_t*>(group + PromptPosition(16 * half + 4 * quad));
        auto* const next = reinterpret_cast<uint32_t*>(group + PromptPosition(16 * half + 4 * quad + 2));
        // Heads end at multiples of eight columns.
        if (first + 16 * half + 4 * quad >= columns) *at = *next = 0;
        const __nv_bfloat162 a = Pair(*at), b = Pair(*next);
        sums[half] += __bfloat162float(a.x) + __bfloat162float(a.y) + __bfloat162float(b.x) + __bfloat162float(b.y);
      }
    }
    *reinterpret_cast<float2*>(out.sums + (row * out.stride + first) / 16) = make_float2(sums[0], sums[1]);
  }
}

bool IsPossible(const PromptAttendArgs& args) {
  const KvLayer& kv = args.kv;
  auto dim_fits = [](int32_t dim) { return dim > 0 && dim <= kAttentionMaxDim && dim % 8 == 0; };
  return args.rows > 0 && args.rows <= kMaxPromptRows && args.first_position >= 0 && kv.kv_heads > 0 &&
         args.heads > 0 && args.heads % kv.kv_heads == 0 && dim_fits(kv.key_dim) && dim_fits(kv.value_dim) &&
         args.out.terms == 1 && args.out.stride % kTermPadding == 0 && args.out.stride >= args.heads * kv.value_dim;
}

// What rows move and compute, about: the positions that all rows see.
cuda::LaunchCost CostOf(const PromptAttendArgs& args) {
  const auto rows = static_cast<uint64_t>(args.rows), heads = static_cast<uint64_t>(args.heads);
  uint64_t seen = static_cast<uint64_t>(args.first_position) + rows / 2 + 1;
  if (args.window > 0 && seen > static_cast<uint64_t>(args.window)) seen = static_cast<uint64_t>(args.window);
  const auto dims = static_cast<uint64_t>(args.kv.key_dim + args.kv.value_dim);
  const uint64_t width = args.kv.type == KvType::kF32 ? 4 : 2, last = seen + rows / 2;
  return {.name = "prompt attention",
          .bytes = last * static_cast<uint64_t>(args.kv.kv_heads) * dims * width + rows * heads * dims * 3,
          .flops = 2 * rows * seen * heads * dims};
}

template <typename T, int kDim>
cudaError_t LaunchTensor(const PromptAttendArgs& args, const cuda::LaunchQueue& queue) {
  using Warp = WarpAttention<T, kDim>;
  constexpr int kShared = 4 * Warp::kKeys * Warp::kRowBytes;
  const cudaError_t error =
      cudaFuncSetAttribute(TensorKernel<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (error != cudaSuccess) return error;
  const int64_t rows = int64_t{args.rows} * (args.heads / args.kv.kv_heads);
  return cuda::Launch(
      queue, CostOf(args),
      {.grid = dim3(static_cast<unsigned>((rows + kRows - 1) / kRows), static_cast<unsigned>(args.kv.kv_heads)),
       .block = dim3(kThreads),
       .shared_bytes = kShared,
       .overlap = true},
      TensorKernel<T, kDim>, args);
}

template <typename T>
cudaError_t LaunchOfType(const PromptAttendArgs& args, const cuda::LaunchQueue& queue) {
  const int32_t dim = args.kv.key_dim > args.kv.value_dim ? args.kv.key_dim : args.kv.value_dim;
  if (dim <= 64) return LaunchTensor<T, 64>(args, queue);
  if (dim <= 128) return LaunchTensor<T, 128>(args, queue);
  return LaunchTensor<T, 256>(args, queue);
}

cudaError_t LaunchPlain(const PromptAttendArgs& args, const cuda::LaunchQueue& queue) {
  return cuda::Launch(
      queue, CostOf(args),
      {.grid = dim3(static_cast<unsigned>((args.heads + kWarps - 1) / kWarps), static_cast<unsigned>(args.rows)),
       .block = dim3(kThreads),
       .overlap = true},
      PlainKernel, args);
}

}  // namespace
}  // namespace prompt_attention

cudaError_t LaunchPromptAttention(const PromptAttendArgs& args, const cuda::LaunchQueue& queue) {
  using namespace prompt_attention;
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  const cudaError_t error = AttendsWithWgmma(args)          ? LaunchWgmmaAttention(args, CostOf(args), queue)
                            : args.kv.type == KvType::kF16  ? LaunchOfType<__half>(args, queue)
                            : args.kv.type == KvType::kBF16 ? LaunchOfType<__nv_bfloat16>(args, queue)
                                                            : LaunchPlain(args, queue);
  if (error != cudaSuccess) return error;
  const uint64_t bytes = static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(args.out.stride) * 2;
  return cuda::Launch(queue, {.name = "attention sums", .bytes = bytes},
                      {.grid = dim3(static_cast<unsigned>(args.rows)), .block = dim3(kThreads), .overlap = true},
                      FinishKernel, args.out, args.heads * args.kv.value_dim);
}

}  // namespace bellhop::kernels
