#include "kernels/cuda/attention.h"

#include <algorithm>
#include <type_traits>

#include "cuda/launch.h"
#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/finish_head.cuh"
#include "kernels/cuda/overlap.cuh"

namespace bellhop::kernels {
namespace {

// Blocks for one row, as many as the largest common GPU has multiprocessors. More would be more results for the last
// block of a KV head to merge, which nothing else overlaps; with two slices of a warp in flight one block a
// multiprocessor has enough bytes under way.
constexpr int32_t kBlocksOfRow = 132;
// Shared memory that leaves room for three blocks a multiprocessor on sm_90.
constexpr int32_t kThirdOfShared = 74 * 1024;

// What a row sees and how its splits share it. Depends on the row's position alone.
struct Extent {
  int32_t begin, end;  // visible positions
  int32_t first_page, pages_of_split, used;

  __device__ Extent(int32_t position, int32_t window, int32_t splits) {
    end = position + 1;
    begin = window > 0 && end > window ? end - window : 0;
    first_page = begin / kKvPageTokens;
    const int32_t pages = end <= begin ? 0 : (end - 1) / kKvPageTokens - first_page + 1;
    pages_of_split = (pages + splits - 1) / splits;
    used = pages == 0 ? 0 : (pages + pages_of_split - 1) / pages_of_split;
  }
};

// Block table entries, 32 at a time in a warp's lanes. Pages are asked for in ascending order.
class PageIds {
 public:
  __device__ PageIds(const int32_t* table, int32_t first, int32_t end) : table_(table), end_(end) { Load(first); }
  __device__ __forceinline__ int64_t At(int32_t page) {
    if (page - base_ >= 32) Load(page);
    return __shfl_sync(~0u, ids_, page - base_);
  }

 private:
  __device__ __forceinline__ void Load(int32_t base) {
    base_ = base;
    const int32_t page = base + static_cast<int32_t>(threadIdx.x % 32);
    ids_ = page < end_ ? table_[page] : 0;
  }
  const int32_t* table_;
  int32_t end_, base_, ids_;
};

// The oldest group of a warp that always has 2 * stages under way.
__device__ __forceinline__ void AwaitOldest(int32_t stages) {
  if (stages == 4) AwaitCopies<7>();
  if (stages == 2) AwaitCopies<3>();
  if (stages == 1) AwaitCopies<1>();
  __syncwarp();
}

// Copies slices of K or V of one KV head to shared memory, by one warp.
class SliceCopy {
 public:
  // `row_bytes` in global memory, `shared_row` in shared memory.
  __device__ SliceCopy(const uint8_t* head, int64_t page_bytes, int32_t row_bytes, int32_t shared_row)
      : head_(head), page_bytes_(page_bytes), pieces_(row_bytes / 16), shared_row_(shared_row) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    row_ = lane / pieces_;
    piece_ = lane % pieces_;
    row_step_ = 32 / pieces_;
    piece_step_ = 32 % pieces_;
  }
  // Zeros for rows outside of [lo, hi). `in_page`: of the first row.
  __device__ __forceinline__ void Start(int64_t page, int32_t in_page, int32_t lo, int32_t hi, uint8_t* to) const {
    const uint8_t* const from = head_ + page * page_bytes_ + int64_t{in_page} * pieces_ * 16;
    const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    int32_t row = row_, piece = piece_;
#pragma unroll 4
    while (row < kSlice) {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                       shared + static_cast<uint32_t>(row * shared_row_ + piece * 16)),
                   "l"(from + (row * pieces_ + piece) * 16), "r"(row >= lo && row < hi ? 16 : 0)
                   : "memory");
      row += row_step_;
      piece += piece_step_;
      if (piece >= pieces_) piece -= pieces_, ++row;
    }
  }

 private:
  const uint8_t* head_;
  int64_t page_bytes_;
  int32_t pieces_, shared_row_, row_, piece_, row_step_, piece_step_;
};

// The queries of a KV head as elements of the KV type, zeros around them.
template <typename Math>
__device__ void LoadQuery(const AttendArgs& args, const AttendPart& part, int32_t key_row, uint8_t* to) {
  using T = typename Math::Element;
  constexpr int kAtOnce = 8;
  const int32_t dim = args.kv.key_dim, row = key_row / static_cast<int32_t>(sizeof(T));
  const auto threads = static_cast<int32_t>(blockDim.x);
  const float* const q = args.q + int64_t{part.row} * args.q_stride + part.kv_head * part.group * dim;
  for (int32_t first = static_cast<int32_t>(threadIdx.x); first < Math::kHeads * row; first += kAtOnce * threads) {
    float x[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int32_t i = first + u * threads, head = i / row, e = i - head * row;
      x[u] = head < part.group && e < dim ? q[head * dim + e] : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int32_t i = first + u * threads;
      if (i < Math::kHeads * row) reinterpret_cast<T*>(to)[i] = ToKv<T>(x[u]);
    }
  }
}

// Of a kernel that finishes q, k and v itself.
template <typename T>
struct FinishScratch {
  float heads[kAttendWarps][kAttentionMaxDim];  // of a warp each
  alignas(16) T key[kAttentionMaxDim], value[kAttentionMaxDim];
};

// Like LoadQuery, from q as the projection left it; the new key and value are left in shared memory and, by the block
// that has their position, in the cache. A head a warp.
template <typename Math>
__device__ void FinishRow(const FinishQkvArgs& args, const AttendPart& part, int32_t position, bool appends,
                          int32_t key_row, FinishScratch<typename Math::Element>* scratch, uint8_t* to) {
  using T = typename Math::Element;
  using finish::CacheRow, finish::NormAndRotate, finish::Part;
  const auto warp = static_cast<int32_t>(threadIdx.x / 32), lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto warps = static_cast<int32_t>(blockDim.x / 32);
  const int32_t dim = args.kv.key_dim, row = key_row / static_cast<int32_t>(sizeof(T));
  const float* const all = args.qkv + int64_t{part.row} * args.stride;
  float* const own = scratch->heads[warp];
  // What a warp reads is under way before it works on any of it.
  constexpr int kOwn = Math::kHeads / kAttendWarps;  // query heads, with all warps
  const float* const new_key = all + args.k_offset + part.kv_head * dim;
  const float* const new_value = all + args.v_offset + part.kv_head * args.kv.value_dim;
  finish::HeadPart queries[kOwn], fresh;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int32_t head = warp + i * kAttendWarps;
    queries[i].Load(all + args.q_offset + (part.kv_head * part.group + head) * dim, head < part.group ? dim : 0, lane);
  }
  const bool has_key = appends && warp == warps - 1, has_value = appends && warp == warps - 2;
  fresh.Load(has_key ? new_key : new_value, has_key ? dim : has_value ? args.kv.value_dim : 0, lane);
  const auto put_query = [&](int32_t head, const finish::HeadPart& x) {
    T* const query = reinterpret_cast<T*>(to) + head * row;
    if (head < part.group) NormAndRotate(args, x, position, true, part.kv_head * part.group + head, 0, lane, own);
    for (int32_t e = lane; e < row; e += 32) query[e] = ToKv<T>(head < part.group && e < dim ? own[e] : 0.0f);
    __syncwarp();
  };
#pragma unroll
  for (int i = 0; i < kOwn; ++i) put_query(warp + i * kAttendWarps, queries[i]);
  // Fewer warps have more heads.
  for (int32_t head = warp + warps; warps < kAttendWarps && head < Math::kHeads; head += warps) {
    if (head % kAttendWarps < warps) continue;
    finish::HeadPart x;
    x.Load(all + args.q_offset + (part.kv_head * part.group + head) * dim, head < part.group ? dim : 0, lane);
    put_query(head, x);
  }
  if (has_key) {
    NormAndRotate(args, fresh, position, false, part.kv_head, 0, lane, own);
    T* const cache = CacheRow<T>(args, part.row, position, Part::kKey, part.kv_head);
    for (int32_t e = lane; e < dim; e += 32) cache[e] = scratch->key[e] = ToKv<T>(own[e]);
  }
  if (has_value) {
    T* const cache = CacheRow<T>(args, part.row, position, Part::kValue, part.kv_head);
#pragma unroll
    for (int i = 0; i < finish::kHeadSteps; ++i) {
      const int32_t e = lane + 32 * i;
      if (e < args.kv.value_dim) cache[e] = scratch->value[e] = ToKv<T>(fresh.x[i]);
    }
  }
}

// The new position's row of a slice, by a warp.
template <typename T>
__device__ __forceinline__ void PutRow(const T* from, int32_t dim, uint8_t* to) {
  for (auto e = static_cast<int32_t>(threadIdx.x % 32); e < dim; e += 32) reinterpret_cast<T*>(to)[e] = from[e];
  __syncwarp();
}

// All slices of a warp: loads run ahead, each buffer is filled again as soon as it has been read.
template <typename Math, bool kFinishes>
__device__ void AttendSlices(const AttendArgs& args, const FinishQkvArgs& finish, const AttendPlan& plan,
                             const AttendPart& part, const Extent& extent, uint8_t* query, uint8_t* stages,
                             Math* math) {
  constexpr int32_t kElement = sizeof(typename Math::Element), kSlicesOfPage = kKvPageTokens / kSlice;
  const KvLayer& kv = args.kv;
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t first_page = extent.first_page + part.split * extent.pages_of_split;
  const int32_t end_page = min(first_page + extent.pages_of_split, (extent.end - 1) / kKvPageTokens + 1);
  const int32_t first = max(first_page * kSlicesOfPage, extent.begin / kSlice) + warp;
  const int32_t end = min(end_page * kSlicesOfPage, (extent.end - 1) / kSlice + 1);
  PageIds pages(args.step.block_tables + int64_t{part.row} * args.step.max_pages, first_page, end_page);
  const int32_t key_bytes = kv.key_dim * kElement, value_bytes = kv.value_dim * kElement;
  const int64_t head_rows = int64_t{part.kv_head} * kKvPageTokens;
  const SliceCopy keys(kv.keys + head_rows * key_bytes, kv.page_bytes, key_bytes, plan.key_row);
  const SliceCopy values(kv.values + head_rows * value_bytes, kv.page_bytes, value_bytes, plan.value_row);

  const int32_t newest = extent.end - 1, cached = kFinishes ? newest : extent.end;  // end of what the cache has

  const int32_t stage_bytes = kSlice * (plan.key_row + plan.value_row);
  uint8_t* const own = stages + warp * plan.stages * stage_bytes;
  auto stage_of = [&](int32_t i) { return own + (i & (plan.stages - 1)) * stage_bytes; };
  auto start = [&](const SliceCopy& copy, int32_t i, uint8_t* to) {
    const int32_t slice = first + i * plan.warps, position = slice * kSlice;
    if (slice < end) {
      copy.Start(pages.At(slice / kSlicesOfPage), position % kKvPageTokens, extent.begin - position, cached - position,
                 to);
    }
    CommitCopies();
  };
  for (int32_t i = 0; i < plan.stages; ++i) {
    start(keys, i, stage_of(i));
    start(values, i, stage_of(i) + kSlice * plan.key_row);
    // Columns behind the head's size that are read meet zeros of the query, but must not be NaN.
    if (kv.key_dim % kScoreColumns == 0) continue;
    for (int32_t b = static_cast<int32_t>(threadIdx.x % 32) * 16; b < kSlice * plan.key_row; b += 32 * 16) {
      if (b % plan.key_row >= key_bytes) *reinterpret_cast<uint4*>(stage_of(i) + b) = make_uint4(0, 0, 0, 0);
    }
  }
  __shared__ FinishScratch<std::conditional_t<kFinishes, typename Math::Element, char>> fresh;
  if constexpr (kFinishes) {
    FinishRow<Math>(finish, part, newest, part.split + 1 == extent.used, plan.key_row, &fresh, query);
  } else {
    LoadQuery<Math>(args, part, plan.key_row, query);
  }
  __syncthreads();
  const float scale = args.scale * kLog2E;
  for (int32_t i = 0, slice = first; slice < end; ++i, slice += plan.warps) {
    uint8_t* const stage = stage_of(i);
    AwaitOldest(plan.stages);
    const bool has_newest = kFinishes && slice == newest / kSlice;
    if constexpr (kFinishes) {
      if (has_newest) PutRow(fresh.key, kv.key_dim, stage + newest % kSlice * plan.key_row);
    }
    math->Scores(stage, query, plan.key_row, kv.key_dim);
    __syncwarp();
    start(keys, i + plan.stages, stage);
    math->Weigh(scale, extent.begin - slice * kSlice, extent.end - slice * kSlice);
    AwaitOldest(plan.stages);
    if constexpr (kFinishes) {
      if (has_newest) {
        PutRow(fresh.value, kv.value_dim, stage + kSlice * plan.key_row + newest % kSlice * plan.value_row);
      }
    }
    math->Values(stage + kSlice * plan.key_row, plan.value_row, kv.value_dim);
    __syncwarp();
    start(values, i + plan.stages, stage + kSlice * plan.key_row);
  }
  AwaitCopies<0>();
}

template <typename Math, bool kFinishes>
__device__ void AttendSplit(const AttendArgs& args, const FinishQkvArgs& finish, const AttendPlan& plan,
                            const AttendPart& part, const Extent& extent, uint8_t* shared) {
  constexpr int kResults = Math::kHeads * (Math::kMaxValueDim + 4);  // floats of a warp
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  Math math;
  AttendSlices<Math, kFinishes>(args, finish, plan, part, extent, shared, shared + Math::kHeads * plan.key_row, &math);
  __syncthreads();  // the stages are free
  auto* const results = reinterpret_cast<float*>(shared);
  auto* const states = reinterpret_cast<float2*>(results + plan.warps * kResults);
  math.Export(results + warp * kResults, states + warp * Math::kHeads);
  __syncthreads();
  MergeWarps<Math>(results, part, args.kv.value_dim, PartialOf(args, plan, part, part.split));
}

// Grid: splits, KV heads, rows. kFinishes: `finish` has not been launched.
template <typename Math, bool kFinishes>
__global__ void __launch_bounds__(kAttendWarps * 32, 2)
    AttendKernel(AttendArgs args, FinishQkvArgs finish, AttendPlan plan) {
  extern __shared__ __align__(128) uint8_t shared[];
  LetNextStart();
  AwaitPrevious();
  const AttendPart part = {.row = static_cast<int32_t>(blockIdx.z),
                           .kv_head = static_cast<int32_t>(blockIdx.y),
                           .split = static_cast<int32_t>(blockIdx.x),
                           .group = args.heads / args.kv.kv_heads};
  const int32_t active = *args.step.active_rows, position = args.step.positions[part.row];
  const Extent extent(position, args.window, plan.splits);
  if (part.row >= active || part.split >= max(extent.used, 1)) return;
  auto* const scratch = reinterpret_cast<MergeScratch*>(shared);
  auto* const results = reinterpret_cast<float*>(scratch + 1);
  if (extent.used == 0) {
    for (auto i = threadIdx.x; i < static_cast<unsigned>(part.group * args.kv.value_dim); i += blockDim.x) {
      results[i] = 0;
    }
  } else {
    AttendSplit<Math, kFinishes>(args, finish, plan, part, extent, shared);
    if (!IsLastSplit(args.counters + part.row * args.kv.kv_heads + part.kv_head, extent.used)) return;
    const Partial first = PartialOf(args, plan, part, 0);
    WeighSplits(args, part, extent.used, first, scratch);
    __syncthreads();
    MergeSplits(part, args.kv.value_dim, extent.used, first.results, *scratch, results);
  }
  __syncthreads();
  EmitResults(args, part, results);
}

constexpr int32_t RoundUp(int32_t x, int32_t to) { return (x + to - 1) / to * to; }

// 64-byte multiples and 16 bytes more: no two of eight rows begin in the same banks, and key rows have their zeros.
constexpr int32_t SharedRow(int32_t dim, int32_t element_bytes) { return RoundUp(dim * element_bytes, 64) + 16; }

struct SharedLimits {
  int32_t query_bytes, slice_bytes, least_bytes;  // least: what the merges need
  int32_t Bytes(int32_t warps, int32_t stages) const {
    const int32_t bytes = query_bytes + warps * stages * slice_bytes, exchange = warps * exchange_bytes;
    return std::max({bytes, exchange, least_bytes});
  }
  int32_t exchange_bytes;  // of a warp
};

// finish: null if it has been launched.
template <typename Math>
cudaError_t Attend(const AttendArgs& args, const FinishQkvArgs* finish, const cuda::LaunchQueue& queue) {
  constexpr int32_t kElement = sizeof(typename Math::Element);
  const KvLayer& kv = args.kv;
  AttendPlan plan{.splits = AttentionSplits(kv.kv_heads, args.step.max_pages, args.window),
                  .key_row = SharedRow(kv.key_dim, kElement),
                  .value_row = SharedRow(kv.value_dim, kElement)};
  const SharedLimits shared = {
      .query_bytes = Math::kHeads * plan.key_row,
      .slice_bytes = kSlice * (plan.key_row + plan.value_row),
      .least_bytes = static_cast<int32_t>(sizeof(MergeScratch)) + args.heads / kv.kv_heads * kv.value_dim * 4,
      .exchange_bytes = Math::kHeads * (Math::kMaxValueDim + 4 + 2) * 4};
  int device = 0, limit = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  const auto fresh = static_cast<int32_t>(sizeof(FinishScratch<typename Math::Element>));
  const int32_t usable = limit - 1024 - (finish != nullptr ? fresh : 0);  // static shared memory
  if (shared.Bytes(plan.warps, 4) <= std::min(usable, kThirdOfShared)) {
    plan.stages = 4;
  } else if (shared.Bytes(plan.warps, 2) <= usable) {
    plan.stages = 2;
  } else if (shared.Bytes(plan.warps, 1) > usable) {
    plan.warps = kAttendWarps / 2;
  }
  const int32_t bytes = shared.Bytes(plan.warps, plan.stages);
  if (bytes > usable) return cudaErrorInvalidValue;
  const auto kernel = finish != nullptr ? AttendKernel<Math, true> : AttendKernel<Math, false>;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
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
                       .shared_bytes = static_cast<uint32_t>(bytes),
                       .overlap = true,
                       // Several blocks an SM are worth more than an early start.
                       .shared_carveout = rows > 1 ? -1 : cuda::LaunchShape::kOverlapCarveout},
                      kernel, args, finish != nullptr ? *finish : FinishQkvArgs{}, plan);
}

template <template <int, int> typename Math>
cudaError_t AttendShape(const AttendArgs& args, const FinishQkvArgs* finish, const cuda::LaunchQueue& queue) {
  const bool wide = args.heads / args.kv.kv_heads > 8;
  if (args.kv.value_dim <= 64) {
    return wide ? Attend<Math<2, 64>>(args, finish, queue) : Attend<Math<1, 64>>(args, finish, queue);
  }
  if (args.kv.value_dim <= 128) {
    return wide ? Attend<Math<2, 128>>(args, finish, queue) : Attend<Math<1, 128>>(args, finish, queue);
  }
  return wide ? Attend<Math<2, 256>>(args, finish, queue) : Attend<Math<1, 256>>(args, finish, queue);
}

template <int kTiles, int kValueDim>
using HalfMath = TensorMath<__half, kTiles, kValueDim>;
template <int kTiles, int kValueDim>
using Bf16Math = TensorMath<__nv_bfloat16, kTiles, kValueDim>;

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
  return static_cast<uint64_t>(rows) * static_cast<uint64_t>(heads) * static_cast<uint64_t>(splits) *
         static_cast<uint64_t>(value_dim + 2) * sizeof(float);
}

namespace {

cudaError_t AttendType(const AttendArgs& args, const FinishQkvArgs* finish, const cuda::LaunchQueue& queue) {
  if (!IsPossible(args)) return cudaErrorInvalidValue;
  switch (args.kv.type) {
    case KvType::kF32: return AttendShape<PlainMath>(args, finish, queue);
    case KvType::kF16: return AttendShape<HalfMath>(args, finish, queue);
    case KvType::kBF16: return AttendShape<Bf16Math>(args, finish, queue);
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
