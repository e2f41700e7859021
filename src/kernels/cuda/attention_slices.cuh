// What a block of attention reads: its queries, and slices of K and V on their way to shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/finish_head.cuh"

namespace bellhop::kernels {

// What a row sees and how its splits share it: split s has every used-th page from first_page + s on, so that blocks
// that run beside each other read what lies beside each other. Depends on the row's position alone.
struct Extent {
  int32_t begin, end;  // visible positions
  int32_t first_page, end_page, used;

  __device__ Extent(int32_t position, int32_t window, int32_t splits) {
    end = position + 1;
    begin = window > 0 && end > window ? end - window : 0;
    first_page = begin / kKvPageTokens;
    end_page = end <= begin ? first_page : (end - 1) / kKvPageTokens + 1;
    const int32_t pages = end_page - first_page;
    const int32_t of_split = max((pages + splits - 1) / splits, min((pages + kFewSplits - 1) / kFewSplits, kFewPages));
    used = pages == 0 ? 0 : (pages + of_split - 1) / of_split;
  }
};

// Block table entries of every step-th page, 32 at a time in a warp's lanes. They are asked for in ascending order, by
// their number among the warp's.
class PageIds {
 public:
  __device__ PageIds(const int32_t* first, int32_t step, int32_t pages) : first_(first), step_(step), pages_(pages) {
    Load(0);
  }
  __device__ __forceinline__ int64_t At(int32_t page) {
    if (page - base_ >= 32) Load(page);
    return __shfl_sync(~0u, ids_, page - base_);
  }

 private:
  __device__ __forceinline__ void Load(int32_t base) {
    base_ = base;
    const int32_t page = base + static_cast<int32_t>(threadIdx.x % 32);
    ids_ = page < pages_ ? __ldcg(first_ + page * step_) : 0;  // as positions, in AttendKernel
  }
  const int32_t* first_;
  int32_t step_, pages_, base_, ids_;
};

// The oldest group of a warp that always has 2 * stages under way.
__device__ __forceinline__ void AwaitOldest(int32_t stages) {
  if (stages == 4) AwaitCopies<7>();
  if (stages == 2) AwaitCopies<3>();
  if (stages == 1) AwaitCopies<1>();
  __syncwarp();
}

// Copies slices of K or V of one KV head to shared memory, by one warp. kRowBytes: of a position, 0: any number.
template <int kRowBytes>
class SliceCopy {
 public:
  // `row_bytes` in global memory, `shared_row` in shared memory.
  __device__ SliceCopy(const uint8_t* head, int64_t page_bytes, int32_t row_bytes, int32_t shared_row)
      : head_(head), page_bytes_(page_bytes), pieces_(row_bytes / 16), shared_row_(shared_row) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    row_ = lane / pieces_;
    piece_ = lane % pieces_;
  }
  // Zeros for rows outside of [lo, hi). `in_page`: of the first row.
  __device__ __forceinline__ void Start(int64_t page, int32_t in_page, int32_t lo, int32_t hi, uint8_t* to) const {
    const uint8_t* const from = head_ + page * page_bytes_ + int64_t{in_page} * pieces_ * 16;
    int32_t row = row_, piece = piece_;
#pragma unroll 4
    while (row < kSlice) {
      CopyAsync16(to + row * shared_row_ + piece * 16, from + (row * pieces_ + piece) * 16, row >= lo && row < hi);
      row += 32 / pieces_;
      piece += 32 % pieces_;
      if (piece >= pieces_) piece -= pieces_, ++row;
    }
  }

 private:
  const uint8_t* head_;
  int64_t page_bytes_;
  int32_t pieces_, shared_row_, row_, piece_;
};

template <int kRowBytes>
requires(kRowBytes > 0) class SliceCopy<kRowBytes> {
 public:
  __device__ SliceCopy(const uint8_t* head, int64_t page_bytes, int32_t, int32_t)
      : from_(head + threadIdx.x % 32 * 16), page_bytes_(page_bytes), row_(threadIdx.x % 32 / kPieces) {}
  __device__ __forceinline__ void Start(int64_t page, int32_t in_page, int32_t lo, int32_t hi, uint8_t* to) const {
    const uint8_t* const from = from_ + page * page_bytes_ + in_page * kRowBytes;
    uint8_t* const own = to + row_ * kShared + threadIdx.x % kPieces * 16;
    if (lo <= 0 && hi >= kSlice) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) CopyAsync16(own + i * kRows * kShared, from + i * 512, true);
    } else {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int32_t row = row_ + i * kRows;
        CopyAsync16(own + i * kRows * kShared, from + i * 512, row >= lo && row < hi);
      }
    }
  }

 private:
  static constexpr int kPieces = kRowBytes / 16, kRows = 32 / kPieces, kCopies = kSlice / kRows;
  static constexpr int kShared = SharedRow(kRowBytes);
  static_assert(32 % kPieces == 0);
  const uint8_t* from_;
  int64_t page_bytes_;
  int32_t row_;
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

template <typename T, int kSteps>
__device__ __forceinline__ void PutQuery(const finish::HeadPart<kSteps>& head, int32_t dim, int32_t row, T* to) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i <= kSteps; ++i) {
    const int32_t e = lane + 32 * i;
    if (e < row) to[e] = ToKv<T>(i < kSteps && e < dim ? head.x[i % kSteps] : 0.0f);
  }
}

// A new key or value, to the cache and to shared memory.
template <typename T, int kSteps>
__device__ __forceinline__ void PutNewest(const finish::HeadPart<kSteps>& head, int32_t dim, T* cache, T* fresh) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int32_t e = lane + 32 * i;
    if (e < dim) cache[e] = fresh[e] = ToKv<T>(head.x[i]);
  }
}

// Like LoadQuery, from q as the projection left it; the new key and value are left in shared memory and, by the block
// that has their position, in the cache. A warp has every kAttendWarps-th head. Waits for the previous kernel if the
// launch reads ahead.
template <typename Math>
__device__ void FinishRow(const FinishQkvArgs& args, const AttendPart& part, int32_t position, bool appends,
                          int32_t key_row, FinishScratch<typename Math::Element>* scratch, uint8_t* to) {
  using T = typename Math::Element;
  using finish::CacheRow, finish::NormAndRotate, finish::Part;
  constexpr int kSteps = Math::kRowBytes > 0 ? Math::kMaxValueDim / 32 : finish::kHeadSteps;
  constexpr int kOwn = Math::kHeads / kAttendWarps;  // query heads of a warp
  const auto warp = static_cast<int32_t>(threadIdx.x / 32), lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto warps = static_cast<int32_t>(blockDim.x / 32);
  const int32_t dim = args.kv.key_dim, row = key_row / static_cast<int32_t>(sizeof(T));
  const float* const all = args.qkv + int64_t{part.row} * args.stride;
  const bool has_key = appends && warp == warps - 1, has_value = appends && warp == warps - 2;
  T* const cache = has_key || has_value
                       ? CacheRow<T>(args, part.row, position, has_key ? Part::kKey : Part::kValue, part.kv_head)
                       : nullptr;
  finish::HeadConstants<kSteps> of_query, of_key;
  of_query.Load(args, true, 0, position, lane);
  if (has_key) of_key.Load(args, false, 0, position, lane);
  if (args.reads_ahead) AwaitPrevious();
  // What a warp reads is under way before it works on any of it.
  const float* const new_key = all + args.k_offset + part.kv_head * dim;
  const float* const new_value = all + args.v_offset + part.kv_head * args.kv.value_dim;
  finish::HeadPart<kSteps> queries[kOwn], fresh[1];
  // With fewer warps than kAttendWarps some do the work of two.
  for (int32_t as = warp; as < kAttendWarps; as += warps) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int32_t head = as + i * kAttendWarps;
      queries[i].Load(all + args.q_offset + (part.kv_head * part.group + head) * dim, head < part.group ? dim : 0,
                      lane);
    }
    if (as == warp) {
      fresh[0].Load(has_key ? new_key : new_value, has_key ? dim : has_value ? args.kv.value_dim : 0, lane);
    }
    NormAndRotate(args, of_query, position, true, 0, lane, scratch->heads[warp], queries);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int32_t head = as + i * kAttendWarps;
      PutQuery(queries[i], head < part.group ? dim : 0, row, reinterpret_cast<T*>(to) + head * row);
    }
    if (Math::kRowBytes > 0) break;  // always has all warps
  }
  if (has_key) {
    NormAndRotate(args, of_key, position, false, 0, lane, scratch->heads[warp], fresh);
    PutNewest(fresh[0], dim, cache, scratch->key);
  }
  if (has_value) PutNewest(fresh[0], args.kv.value_dim, cache, scratch->value);
}

// The new position's row of a slice, by a warp.
template <typename T>
__device__ __forceinline__ void PutRow(const T* from, int32_t dim, uint8_t* to) {
  for (auto e = static_cast<int32_t>(threadIdx.x % 32); e < dim; e += 32) reinterpret_cast<T*>(to)[e] = from[e];
  __syncwarp();
}

// All slices of a warp: loads run ahead, each buffer is filled again as soon as it has been read. kFinishes: `finish`
// has not been launched.
template <typename Math, bool kFinishes>
__device__ void AttendSlices(const AttendArgs& args, const FinishQkvArgs& finish, const AttendPlan& plan,
                             const AttendPart& part, const Extent& extent, uint8_t* query, uint8_t* stages,
                             Math* math) {
  constexpr int32_t kElement = sizeof(typename Math::Element), kSlicesOfPage = kKvPageTokens / kSlice;
  constexpr int32_t kRow = Math::kRowBytes > 0 ? SharedRow(Math::kRowBytes) : 0;
  const KvLayer& kv = args.kv;
  const int32_t key_row = kRow > 0 ? kRow : plan.key_row, value_row = kRow > 0 ? kRow : plan.value_row;
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t first_page = extent.first_page + part.split;
  const int32_t pages_of_split = (extent.end_page - first_page + extent.used - 1) / extent.used;
  // Slices of the split, visible from `first` to `end`; those of the warp are `plan.warps` apart.
  const bool has_last = first_page + (pages_of_split - 1) * extent.used + 1 == extent.end_page;
  const int32_t first = (part.split == 0 ? extent.begin % kKvPageTokens / kSlice : 0) + warp;
  const int32_t end =
      pages_of_split * kSlicesOfPage - (has_last ? (extent.end_page * kKvPageTokens - extent.end) / kSlice : 0);
  PageIds pages(args.step.block_tables + int64_t{part.row} * args.step.max_pages + first_page, extent.used,
                pages_of_split);
  const auto position_of = [&](int32_t slice) {
    return (first_page + slice / kSlicesOfPage * extent.used) * kKvPageTokens + slice % kSlicesOfPage * kSlice;
  };
  const int32_t key_bytes = kv.key_dim * kElement, value_bytes = kv.value_dim * kElement;
  const int64_t head_rows = int64_t{part.kv_head} * kKvPageTokens;
  const SliceCopy<Math::kRowBytes> keys(kv.keys + head_rows * key_bytes, kv.page_bytes, key_bytes, key_row);
  const SliceCopy<Math::kRowBytes> values(kv.values + head_rows * value_bytes, kv.page_bytes, value_bytes, value_row);

  const int32_t newest = extent.end - 1, cached = kFinishes ? newest : extent.end;  // end of what the cache has

  const int32_t stage_bytes = kSlice * (key_row + value_row);
  uint8_t* const own = stages + warp * plan.stages * stage_bytes;
  auto stage_of = [&](int32_t i) { return own + (i & (plan.stages - 1)) * stage_bytes; };
  auto start = [&](const SliceCopy<Math::kRowBytes>& copy, int32_t i, uint8_t* to) {
    const int32_t slice = first + i * plan.warps, position = position_of(slice);
    if (slice < end) {
      copy.Start(pages.At(slice / kSlicesOfPage), position % kKvPageTokens, extent.begin - position, cached - position,
                 to);
    }
    CommitCopies();
  };
  for (int32_t i = 0; i < plan.stages; ++i) {
    start(keys, i, stage_of(i));
    start(values, i, stage_of(i) + kSlice * key_row);
    // Columns behind the head's size that are read meet zeros of the query, but must not be NaN.
    if (kv.key_dim % kScoreColumns == 0) continue;
    for (int32_t b = static_cast<int32_t>(threadIdx.x % 32) * 16; b < kSlice * key_row; b += 32 * 16) {
      if (b % key_row >= key_bytes) *reinterpret_cast<uint4*>(stage_of(i) + b) = make_uint4(0, 0, 0, 0);
    }
  }
  __shared__ FinishScratch<std::conditional_t<kFinishes, typename Math::Element, char>> fresh;
  if constexpr (kFinishes) {
    FinishRow<Math>(finish, part, newest, has_last, key_row, &fresh, query);
  } else {
    LoadQuery<Math>(args, part, key_row, query);
  }
  __syncthreads();
  const float scale = args.scale * kLog2E;
  for (int32_t i = 0, slice = first; slice < end; ++i, slice += plan.warps) {
    uint8_t* const stage = stage_of(i);
    const int32_t position = position_of(slice);
    AwaitOldest(plan.stages);
    const bool has_newest = kFinishes && position == newest / kSlice * kSlice;
    if constexpr (kFinishes) {
      if (has_newest) PutRow(fresh.key, kv.key_dim, stage + newest % kSlice * key_row);
    }
    math->Scores(stage, query, key_row, kv.key_dim);
    __syncwarp();
    start(keys, i + plan.stages, stage);
    math->Weigh(scale, extent.begin - position, extent.end - position);
    AwaitOldest(plan.stages);
    if constexpr (kFinishes) {
      if (has_newest) {
        PutRow(fresh.value, kv.value_dim, stage + kSlice * key_row + newest % kSlice * value_row);
      }
    }
    math->Values(stage + kSlice * key_row, value_row, kv.value_dim);
    __syncwarp();
    start(values, i + plan.stages, stage + kSlice * key_row);
  }
  AwaitCopies<0>();
}

}  // namespace bellhop::kernels
