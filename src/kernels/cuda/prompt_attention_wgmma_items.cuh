// What the warps of a block of prompt_attention_wgmma.cuh share: the list of their work, shared memory, and the copies
// of keys and values.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/prompt_attention.cuh"
#include "kernels/cuda/warp_roles.cuh"
#include "kernels/cuda/wgmma_kv.cuh"

namespace bellhop::kernels {
namespace prompt_attention_wgmma {

using prompt_attention::FirstVisible;

constexpr int kConsumers = 2;                 // warpgroups that multiply; one more fetches
constexpr int kOwnRows = 64;                  // of a warpgroup: queries times the heads of one KV head
constexpr int kRows = kConsumers * kOwnRows;  // of a block
constexpr int kConsumerWarps = 4 * kConsumers;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kStages = 2;    // of keys, and of values
constexpr int kSegment = 64;  // dims: one row of the tensor cores' pattern
constexpr int kSegmentRowBytes = kWgmmaRowBytes;
static_assert(kSegment * 2 == kSegmentRowBytes);

// Of heads of one size. In shared memory each 64 dims of a tile are a matrix [positions][64] in the tensor cores'
// pattern, one behind the other.
template <typename T, int kHeadDim>
struct Shape {
  using Element = T;
  static constexpr int kDim = kHeadDim;
  static constexpr int kSegments = kDim / kSegment;
  static constexpr int kKeys = kDim <= 128 ? 128 : 64;  // positions of a tile, which begins at a multiple
  static constexpr int kPages = kKeys / kKvPageTokens;
  static constexpr int kSegmentBytes = kKeys * kSegmentRowBytes;
  static constexpr int kTileBytes = kSegments * kSegmentBytes;
  static constexpr int kQuerySegmentBytes = kOwnRows * kSegmentRowBytes;
  static constexpr int kQueryBytes = kSegments * kQuerySegmentBytes;
};

template <typename S>
struct Shared {
  uint8_t queries[kConsumers][S::kQueryBytes];  // at a multiple of 1024, as all tiles
  uint8_t keys[kStages][S::kTileBytes];
  uint8_t values[kStages][S::kTileBytes];
  uint64_t keys_full[kStages], keys_empty[kStages];
  uint64_t values_full[kStages], values_empty[kStages];
};
template <typename S>
constexpr int kSharedBytes = sizeof(Shared<S>) + kWgmmaPatternBytes;  // and what aligns it

// An arrival of this warp at a barrier of SyncSome, which waits for nobody.
template <int kArrivals>
__device__ __forceinline__ void ArriveSome(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kArrivals) : "memory");
}

// Where a warp is in a ring of stages.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Rows of one KV head.
struct Item {
  int32_t kv_head;
  int32_t first_row;           // row r is head r % group of the KV head and query r / group
  int32_t begin, end;          // positions that any row sees
  int32_t all_begin, all_end;  // positions that every row sees
};

// The items of this thread block, in an order that all its warps know. Those that see most come first; every other
// round runs backwards, so that blocks have about as much to do.
class Items {
 public:
  __device__ __forceinline__ explicit Items(const PromptAttendArgs& args)
      : args_(args), group_(args.heads / args.kv.kv_heads) {
    blocks_ = (args.rows * group_ + kRows - 1) / kRows;
  }
  __device__ __forceinline__ bool Next(Item* item) {
    const auto block = static_cast<int32_t>(blockIdx.x), blocks = static_cast<int32_t>(gridDim.x);
    const int32_t i = round_ * blocks + (round_ % 2 == 0 ? block : blocks - 1 - block);
    ++round_;
    if (i >= blocks_ * args_.kv.kv_heads) return false;
    item->kv_head = i % args_.kv.kv_heads;
    item->first_row = (blocks_ - 1 - i / args_.kv.kv_heads) * kRows;
    const int32_t first = item->first_row / group_;
    const int32_t behind = (item->first_row + kRows - 1) / group_ + 1, last = min(args_.rows, behind) - 1;
    item->begin = FirstVisible(args_.first_position + first, args_.window);
    item->end = args_.first_position + last + 1;
    item->all_begin = FirstVisible(args_.first_position + last, args_.window);
    item->all_end = args_.first_position + first + 1;
    return true;
  }
  __device__ __forceinline__ int32_t group() const { return group_; }

 private:
  const PromptAttendArgs& args_;
  const int32_t group_;
  int32_t blocks_, round_ = 0;
};

// A warpgroup: keys and values of the items' tiles, zeros where no row sees.
template <typename S>
class Fetcher {
 public:
  __device__ __forceinline__ Fetcher(const PromptAttendArgs& args, Shared<S>* shared) : args_(args), shared_(shared) {
    const int thread = static_cast<int>(threadIdx.x);
    row_ = thread / 8;
    to_ = row_ * kSegmentRowBytes + SwizzledPiece(thread % 8, row_) * 16;
    from_ = row_ * kRowBytes + thread % 8 * 16;
  }

  __device__ __forceinline__ void Run() {
    Ring ring;
    Items items(args_);
    for (Item item; items.Next(&item);) {
      const int64_t head = int64_t{item.kv_head} * kKvPageTokens * kRowBytes + from_;
      const uint8_t *const keys = args_.kv.keys + head, *const values = args_.kv.values + head;
      const int32_t last = (item.end - 1) / S::kKeys;
      int32_t ahead[S::kPages];
      Pages(item, item.begin / S::kKeys, ahead);
#pragma unroll 1
      for (int32_t tile = item.begin / S::kKeys; tile <= last; ++tile) {
        int32_t pages[S::kPages];
#pragma unroll
        for (int p = 0; p < S::kPages; ++p) pages[p] = ahead[p];
        Pages(item, tile + 1, ahead);  // under way while this one is copied
        AwaitPhase(&shared_->keys_empty[ring.stage], ring.parity ^ 1);
        CopyTile(item, tile, pages, keys, shared_->keys[ring.stage]);
        ArriveWithCopies(&shared_->keys_full[ring.stage]);
        AwaitPhase(&shared_->values_empty[ring.stage], ring.parity ^ 1);
        CopyTile(item, tile, pages, values, shared_->values[ring.stage]);
        ArriveWithCopies(&shared_->values_full[ring.stage]);
        ring.Advance();
      }
    }
    // All copies are through before their threads end.
#pragma unroll 1
    for (int s = 0; s < kStages; ++s) {
      AwaitPhase(&shared_->keys_empty[ring.stage], ring.parity ^ 1);
      AwaitPhase(&shared_->values_empty[ring.stage], ring.parity ^ 1);
      ring.Advance();
    }
  }

 private:
  static constexpr int kRowBytes = S::kDim * 2;
  static constexpr int kRowsAtOnce = 16;

  // Entries of the block table behind the last position, or before the first one, may be anything.
  __device__ __forceinline__ void Pages(const Item& item, int32_t tile, int32_t (&pages)[S::kPages]) const {
#pragma unroll
    for (int p = 0; p < S::kPages; ++p) {
      const int32_t position = tile * S::kKeys + p * kKvPageTokens;
      const bool seen = position < item.end && position + kKvPageTokens > item.begin;
      pages[p] = seen ? args_.block_table[position / kKvPageTokens] : -1;
    }
  }
  __device__ __forceinline__ void CopyTile(const Item& item, int32_t tile, const int32_t (&pages)[S::kPages],
                                           const uint8_t* from, uint8_t* to) const {
#pragma unroll
    for (int p = 0; p < S::kPages; ++p) {
      const int32_t position = tile * S::kKeys + p * kKvPageTokens;
      const uint8_t* const page = from + (pages[p] < 0 ? 0 : pages[p]) * args_.kv.page_bytes;
      uint8_t* const at = to + p * kKvPageTokens * kSegmentRowBytes + to_;
      if (position >= item.begin && position + kKvPageTokens <= item.end) {
        CopyRows(page, at, [](int32_t) { return true; });
      } else {
        CopyRows(page, at, [&](int32_t row) { return position + row >= item.begin && position + row < item.end; });
      }
    }
  }
  template <typename F>
  __device__ __forceinline__ void CopyRows(const uint8_t* from, uint8_t* to, const F& have) const {
#pragma unroll
    for (int i = 0; i < kKvPageTokens / kRowsAtOnce; ++i) {
      const bool copies = have(row_ + i * kRowsAtOnce);
#pragma unroll
      for (int s = 0; s < S::kSegments; ++s) {
        CopyAsync16(to + s * S::kSegmentBytes + i * kRowsAtOnce * kSegmentRowBytes,
                    from + s * kSegmentRowBytes + i * kRowsAtOnce * kRowBytes, copies);
      }
    }
  }

  const PromptAttendArgs& args_;
  Shared<S>* const shared_;
  int row_, to_, from_;  // the first row that this thread copies, and where its piece of 16 bytes lies
};

}  // namespace prompt_attention_wgmma
}  // namespace bellhop::kernels
