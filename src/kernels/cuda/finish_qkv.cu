#include "cuda/launch.h"
#include "kernels/cuda/finish_head.cuh"
#include "kernels/cuda/overlap.cuh"

namespace bellhop::kernels {
namespace {

using finish::CacheRow, finish::InverseRms, finish::NormAndRotate, finish::Part;

constexpr int kWarps = 4;           // a head each
constexpr int kFullWidthWarps = 8;  // of the one block that has all heads

// Over all heads of a part, for a whole block.
__device__ float FullWidthInverse(const float* x, int32_t n, float epsilon) {
  __shared__ float sums[kFullWidthWarps];
  float squares = 0;
  for (int32_t e = static_cast<int32_t>(threadIdx.x); e < n; e += static_cast<int32_t>(blockDim.x)) {
    squares = __fmaf_rn(x[e], x[e], squares);
  }
  squares = WarpSum(squares);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
  __syncthreads();
  squares = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) squares += sums[w];
  return InverseRms(squares, n, epsilon);
}

// One head of q or k, by one warp. `full_inverse`: of the norm over all heads.
template <typename T>
__device__ void FinishHead(const FinishQkvArgs& args, int32_t m, int32_t position, Part part, int32_t head,
                           float full_inverse, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int32_t dim = args.kv.key_dim;
  const bool is_query = part == Part::kQuery;
  float* const x = args.qkv + int64_t{m} * args.stride + (is_query ? args.q_offset : args.k_offset) + head * dim;
  finish::HeadPart<finish::kHeadSteps> own[1];
  finish::HeadConstants<finish::kHeadSteps> constants;
  own[0].Load(x, dim, lane);
  constants.Load(args, is_query, head, position, lane);
  NormAndRotate(args, constants, position, is_query, full_inverse, lane, scratch, own);
  T* const to = !is_query && position >= 0 ? CacheRow<T>(args, m, position, part, head) : nullptr;
#pragma unroll
  for (int i = 0; i < finish::kHeadSteps; ++i) {
    const int32_t e = lane + 32 * i;
    if (e >= dim) break;
    const T element = ToKv<T>(own[0].x[i]);
    if (is_query) x[e] = FromKv(element);
    if (to != nullptr) to[e] = element;
  }
}

template <typename T>
__device__ void AppendValue(const FinishQkvArgs& args, int32_t m, int32_t position, int32_t head) {
  if (position < 0) return;
  const int32_t dim = args.kv.value_dim;
  const float* const x = args.qkv + int64_t{m} * args.stride + args.v_offset + head * dim;
  T* const to = CacheRow<T>(args, m, position, Part::kValue, head);
  for (int32_t e = static_cast<int32_t>(threadIdx.x % 32); e < dim; e += 32) to[e] = ToKv<T>(x[e]);
}

// A block has `heads_per_block` heads of one part of one row.
template <typename T>
__global__ void __launch_bounds__(kFullWidthWarps * 32) FinishQkvKernel(FinishQkvArgs args, int32_t heads_per_block) {
  __shared__ float scratch[kFullWidthWarps][kAttentionMaxDim];
  LetNextStart();
  AwaitPrevious();
  const auto m = static_cast<int32_t>(blockIdx.y);
  const bool prompt = args.step.positions == nullptr;
  if (!prompt && m >= *args.step.active_rows) return;
  const int32_t query_blocks = (args.heads + heads_per_block - 1) / heads_per_block;
  const int32_t kv_blocks = (args.kv.kv_heads + heads_per_block - 1) / heads_per_block;
  auto block = static_cast<int32_t>(blockIdx.x);
  Part part = Part::kQuery;
  if (block >= query_blocks) {
    block -= query_blocks;
    part = block < kv_blocks ? Part::kKey : Part::kValue;
    block %= kv_blocks;
  }
  const int32_t position = prompt ? args.step.first_position + m : args.step.positions[m];
  const int32_t heads = part == Part::kQuery ? args.heads : args.kv.kv_heads;
  float full_inverse = 0;
  if (args.norm == HeadNorm::kFullWidth && part != Part::kValue) {
    const bool is_query = part == Part::kQuery;
    const float* const x = args.qkv + int64_t{m} * args.stride + (is_query ? args.q_offset : args.k_offset);
    full_inverse = FullWidthInverse(x, heads * args.kv.key_dim, is_query ? args.q_epsilon : args.k_epsilon);
    __syncthreads();  // q is overwritten from here on
  }
  const auto warp = static_cast<int32_t>(threadIdx.x / 32), warps = static_cast<int32_t>(blockDim.x / 32);
  const int32_t end = min(heads, (block + 1) * heads_per_block);
  for (int32_t head = block * heads_per_block + warp; head < end; head += warps) {
    if (part == Part::kValue) {
      AppendValue<T>(args, m, position, head);
    } else {
      FinishHead<T>(args, m, position, part, head, full_inverse, scratch[warp]);
    }
  }
}

template <typename T>
cudaError_t Finish(const FinishQkvArgs& args, const cuda::LaunchQueue& queue) {
  const KvLayer& kv = args.kv;
  const bool full = args.norm == HeadNorm::kFullWidth;
  const int32_t heads_per_block = full ? args.heads : kWarps;
  auto blocks = [&](int32_t heads) { return (heads + heads_per_block - 1) / heads_per_block; };
  const auto grid_x = static_cast<unsigned>(blocks(args.heads) + 2 * blocks(kv.kv_heads));
  const int64_t keys = int64_t{kv.kv_heads} * kv.key_dim, values = int64_t{kv.kv_heads} * kv.value_dim;
  const int64_t row_bytes =
      int64_t{args.heads} * kv.key_dim * 8 + (keys + values) * (4 + static_cast<int64_t>(sizeof(T)));
  return cuda::Launch(queue, {.name = "finish qkv", .bytes = static_cast<uint64_t>(args.step.rows * row_bytes)},
                      {.grid = dim3(grid_x, static_cast<unsigned>(args.step.rows)),
                       .block = dim3(static_cast<unsigned>(full ? kFullWidthWarps : kWarps) * 32),
                       .overlap = true},
                      FinishQkvKernel<T>, args, heads_per_block);
}

bool IsPossible(const FinishQkvArgs& args) {
  const KvLayer& kv = args.kv;
  auto dim_fits = [](int32_t dim) { return dim > 0 && dim <= kAttentionMaxDim && dim % 8 == 0; };
  const int32_t most = args.step.positions == nullptr ? kMaxPromptRows : kMaxStepRows;
  return args.step.rows > 0 && args.step.rows <= most && kv.kv_heads > 0 && args.heads >= kv.kv_heads &&
         dim_fits(kv.key_dim) && dim_fits(kv.value_dim) && args.rope_dims % 2 == 0 && args.rope_dims <= kv.key_dim;
}

}  // namespace

cudaError_t LaunchFinishQkv(const FinishQkvArgs& args, const cuda::LaunchQueue& queue) {
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  switch (args.kv.type) {
    case KvType::kF32: return Finish<float>(args, queue);
    case KvType::kF16: return Finish<__half>(args, queue);
    case KvType::kBF16: return Finish<__nv_bfloat16>(args, queue);
  }
  return cudaErrorInvalidValue;
}

}  // namespace bellhop::kernels
