#include "kernels/cuda/attention.h"

#include <algorithm>
#include <type_traits>

#include "cuda/launch.h"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_slices.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/overlap.cuh"

namespace bellhop::kernels {
namespace {

// Blocks for one row, as many as the largest common GPU has multiprocessors. More would be more results to merge, which
// nothing else overlaps; with two slices of a warp in flight one block a multiprocessor has enough bytes under way.
constexpr int32_t kBlocksOfRow = 132;
// Shared memory that leaves room for three blocks a multiprocessor on sm_90.
constexpr int32_t kThirdOfShared = 74 * 1024;
// Blocks of a launch that wait for others are at most this part of the multiprocessors.
constexpr int32_t kWaitingShare = 8;

template <typename Math, bool kFinishes>
__device__ void AttendSplit(const AttendArgs& args, const FinishQkvArgs& finish, const AttendPlan& plan,
                            const AttendPart& part, const Extent& extent, float4* messages, uint8_t* shared) {
  constexpr int kResults = Math::kHeads * (Math::kMaxValueDim + 4);  // floats of a warp
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  Math math;
  const int32_t key_row = Math::kRowBytes > 0 ? SharedRow(Math::kRowBytes) : plan.key_row;
  AttendSlices<Math, kFinishes>(args, finish, plan, part, extent, shared, shared + Math::kHeads * key_row, &math);
  __syncthreads();  // the stages are free
  auto* const results = reinterpret_cast<float*>(shared);
  auto* const states = reinterpret_cast<float2*>(results + plan.warps * kResults);
  math.Export(results + warp * kResults, states + warp * Math::kHeads);
  __syncthreads();
  MergeWarps<Math>(results, plan, part, args.kv.value_dim, messages);
}

// The pieces [first, end) that the block merges, none: first == end. The last splits of a KV head are those that wait.
__device__ __forceinline__ int2 OwnPieces(const AttendArgs& args, const AttendPlan& plan, const AttendPart& part,
                                          int32_t used) {
  const int32_t pieces = part.group * args.kv.value_dim / kPieceColumns;
  if (plan.consumers == 0) {
    uint32_t* const counter = args.counters + part.row * args.kv.kv_heads + part.kv_head;
    return make_int2(0, IsLastSplit(counter, used) ? pieces : 0);
  }
  const int32_t consumers = min(plan.consumers, used), own = part.split - (used - consumers);
  return own < 0 ? make_int2(0, 0) : make_int2(pieces * own / consumers, pieces * (own + 1) / consumers);
}

// Grid: splits, KV heads, rows. kFinishes: `finish` has not been launched.
template <typename Math, bool kFinishes>
__global__ void __launch_bounds__(kAttendWarps * 32, 2)
    AttendKernel(AttendArgs args, FinishQkvArgs finish, AttendPlan plan) {
  extern __shared__ __align__(128) uint8_t shared[];
  LetNextStart();
  const bool reads_ahead = kFinishes && finish.reads_ahead;
  if (!reads_ahead) AwaitPrevious();
  const AttendPart part = {.row = static_cast<int32_t>(blockIdx.z),
                           .kv_head = static_cast<int32_t>(blockIdx.y),
                           .split = static_cast<int32_t>(blockIdx.x),
                           .group = args.heads / args.kv.kv_heads};
  // Not through the first-level cache: nobody has told it of the kernel that wrote them.
  const int32_t active = __ldcg(args.step.active_rows), position = __ldcg(args.step.positions + part.row);
  const Extent extent(position, args.window, plan.splits);
  const int32_t columns = part.group * args.kv.value_dim, first_column = part.kv_head * columns;
  const bool is_last_head = part.kv_head + 1 == args.kv.kv_heads;
  if (part.row >= active || part.split >= extent.used) {
    if (reads_ahead) AwaitPrevious();
    if (part.row < active && extent.used == 0 && part.split == 0) {
      EmitZeros(args.out, part.row, first_column, is_last_head ? args.out.stride : first_column + columns);
    }
    return;
  }
  float4* const messages = MessagesOf(args, plan, part);
  AttendSplit<Math, kFinishes>(args, finish, plan, part, extent, messages, shared);
  const int2 own = OwnPieces(args, plan, part, extent.used);
  if (own.x == own.y) return;
  MergeSplits(args, plan, part, extent.used, own.x, own.y, messages, shared);
  if (is_last_head && own.y * kPieceColumns == columns) {
    EmitZeros(args.out, part.row, first_column + columns, args.out.stride);
  }
}

// How many of the last splits of a KV head may wait for the others. Deadlocks cannot be: blocks start in the order of
// their numbers, and what a block waits for is sent by blocks that started before it or are among the last ones, which
// send before they wait. So a waiting block keeps from starting, by the place that it takes, none but other waiting
// blocks, and those of kWaitingShare launches at once have places beside each other.
int32_t Consumers(const AttendArgs& args, int32_t processors) {
  if (args.step.rows != 1 || args.words == nullptr) return 0;
  return std::min(processors / kWaitingShare / args.kv.kv_heads, kAttentionMaxConsumers);
}

// Stages and shared memory. static_bytes: of the kernel.
template <typename Math>
cudaError_t MakePlan(const AttendArgs& args, int32_t static_bytes, AttendPlan* plan) {
  constexpr int32_t kElement = sizeof(typename Math::Element);
  const KvLayer& kv = args.kv;
  int device = 0, limit = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  plan->splits = AttentionSplits(kv.kv_heads, args.step.max_pages, args.window);
  plan->key_row = SharedRow(kv.key_dim * kElement);
  plan->value_row = SharedRow(kv.value_dim * kElement);
  plan->consumers = Consumers(args, processors);
  const int32_t usable = limit - 1024 - static_bytes;
  const int32_t query_bytes = Math::kHeads * plan->key_row, slice_bytes = kSlice * (plan->key_row + plan->value_row);
  const auto bytes_with = [&](int32_t stages) {
    plan->merge_at = plan->warps * Math::kHeads * (Math::kMaxValueDim + 4 + 2) * 4;
    const int32_t merge = static_cast<int32_t>(sizeof(MergeScratch)) + kAttentionMaxSplits * kMessageBytes;
    return std::max(query_bytes + plan->warps * stages * slice_bytes, plan->merge_at + merge);
  };
  if (bytes_with(4) <= std::min(usable, kThirdOfShared)) {
    plan->stages = 4;
  } else if (bytes_with(2) <= usable) {
    plan->stages = 2;
  } else if (Math::kRowBytes == 0 && bytes_with(1) > usable) {
    plan->warps = kAttendWarps / 2;
  }
  plan->bytes = bytes_with(plan->stages);
  return plan->bytes <= usable ? cudaSuccess : cudaErrorInvalidValue;
}

// finish: null if it has been launched.
template <typename Math>
cudaError_t Attend(const AttendArgs& args, const FinishQkvArgs* finish, const cuda::LaunchQueue& queue) {
  constexpr int32_t kElement = sizeof(typename Math::Element);
  const KvLayer& kv = args.kv;
  AttendPlan plan;
  const auto fresh = static_cast<int32_t>(sizeof(FinishScratch<typename Math::Element>));
  cudaError_t error = MakePlan<Math>(args, finish != nullptr ? fresh : 0, &plan);
  if (error != cudaSuccess) return error;
  const auto kernel = finish != nullptr ? AttendKernel<Math, true> : AttendKernel<Math, false>;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes);
  if (error != cudaSuccess) return error;
  const auto dims = static_cast<uint64_t>(kv.key_dim + kv.value_dim), heads = static_cast<uint64_t>(args.heads);
  const auto visible = static_cast<uint64_t>(args.expected_visible), rows = static_cast<uint64_t>(args.step.rows);
  const uint64_t out_bytes = static_cast<uint64_t>(args.out.stride) * static_cast<uint64_t>(args.out.terms) * 2;
  return cuda::Launch(queue,
                      {.name = "attention",
                       .bytes = visible * static_cast<uint64_t>(kv.kv_heads) * dims * kElement +
                                rows * (heads * static_cast<uint64_t>(kv.key_dim) * 4 + out_bytes),
                       .flops = 2 * visible * heads * dims},
                      {.grid = dim3(static_cast<unsigned>(plan.splits), static_cast<unsigned>(kv.kv_heads),
                                    static_cast<unsigned>(rows)),
                       .block = dim3(static_cast<unsigned>(plan.warps) * 32),
                       .shared_bytes = static_cast<uint32_t>(plan.bytes),
                       .overlap = true,
                       // Several blocks an SM are worth more than an early start.
                       .shared_carveout = rows > 1 ? -1 : cuda::LaunchShape::kOverlapCarveout},
                      kernel, args, finish != nullptr ? *finish : FinishQkvArgs{}, plan);
}

template <typename T>
cudaError_t AttendTensor(const AttendArgs& args, const FinishQkvArgs* finish, const cuda::LaunchQueue& queue) {
  const bool wide = args.heads / args.kv.kv_heads > 8;
  const int32_t dim = args.kv.key_dim == args.kv.value_dim ? args.kv.value_dim : 0;
  if (dim == 64 && !wide) return Attend<TensorMath<T, 1, 64, true>>(args, finish, queue);
  if (dim == 64) return Attend<TensorMath<T, 2, 64, true>>(args, finish, queue);
  if (dim == 128 && !wide) return Attend<TensorMath<T, 1, 128, true>>(args, finish, queue);
  if (dim == 128) return Attend<TensorMath<T, 2, 128, true>>(args, finish, queue);
  if (dim == 256 && !wide) return Attend<TensorMath<T, 1, 256, true>>(args, finish, queue);
  if (!wide) return Attend<TensorMath<T, 1, 256, false>>(args, finish, queue);
  return Attend<TensorMath<T, 2, 256, false>>(args, finish, queue);
}

cudaError_t AttendPlain(const AttendArgs& args, const FinishQkvArgs* finish, const cuda::LaunchQueue& queue) {
  const bool wide = args.heads / args.kv.kv_heads > 8;
  if (args.kv.value_dim <= 128) {
    return wide ? Attend<PlainMath<2, 128>>(args, finish, queue) : Attend<PlainMath<1, 128>>(args, finish, queue);
  }
  return wide ? Attend<PlainMath<2, 256>>(args, finish, queue) : Attend<PlainMath<1, 256>>(args, finish, queue);
}

bool IsPossible(const AttendArgs& args) {
  const KvLayer& kv = args.kv;
  auto dim_fits = [](int32_t dim) { return dim > 0 && dim <= kAttentionMaxDim && dim % 8 == 0; };
  if (args.step.rows <= 0 || args.step.rows > kMaxStepRows || args.step.max_pages <= 0) return false;
  if (kv.kv_heads <= 0 || args.heads <= 0 || args.heads % kv.kv_heads != 0) return false;
  const int32_t group = args.heads / kv.kv_heads;
  return group <= kAttentionMaxGroup && dim_fits(kv.key_dim) && dim_fits(kv.value_dim) &&
         group * kv.value_dim % 16 == 0 && args.out.stride >= args.heads * kv.value_dim &&
         args.out.stride % kTermPadding == 0 && (args.out.terms == 2 || args.out.terms == 3);
}

}  // namespace

int32_t AttentionSplits(int32_t kv_heads, int32_t max_pages, int32_t window) {
  const int32_t visible_pages =
      window > 0 ? std::min(max_pages, (window + kKvPageTokens - 2) / kKvPageTokens + 1) : max_pages;
  return std::clamp(kBlocksOfRow / kv_heads, 1, std::min(visible_pages, kAttentionMaxSplits));
}

uint64_t AttentionPartialBytes(int32_t rows, int32_t heads, int32_t value_dim, int32_t splits) {
  return static_cast<uint64_t>(rows) * static_cast<uint64_t>(heads) * static_cast<uint64_t>(value_dim) / kPieceColumns *
         static_cast<uint64_t>(splits) * kMessageBytes;
}

namespace {

cudaError_t AttendType(const AttendArgs& args, const FinishQkvArgs* finish, const cuda::LaunchQueue& queue) {
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  switch (args.kv.type) {
    case KvType::kF32: return AttendPlain(args, finish, queue);
    case KvType::kF16: return AttendTensor<__half>(args, finish, queue);
    case KvType::kBF16: return AttendTensor<__nv_bfloat16>(args, finish, queue);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t LaunchAttention(const AttendArgs& args, const cuda::LaunchQueue& queue) {
  return AttendType(args, nullptr, queue);
}

bool CanFinishInAttention(const FinishQkvArgs& finish) {
  return finish.step.rows == 1 && finish.step.positions != nullptr && finish.norm != HeadNorm::kFullWidth;
}

cudaError_t LaunchFinishAndAttend(const FinishQkvArgs& finish, const AttendArgs& args, const cuda::LaunchQueue& queue) {
  const bool rope_fits = finish.rope_dims % 2 == 0 && finish.rope_dims <= finish.kv.key_dim;
  if (!CanFinishInAttention(finish) || !rope_fits || args.step.rows != 1) return cudaErrorInvalidValue;
  return AttendType(args, &finish, queue);
}

}  // namespace bellhop::kernels
