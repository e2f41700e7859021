// What the warps of a block of prompt_wgmma.cuh share: the list of their work, shared memory, and the barriers between
// those who fetch and those who multiply.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/prompt_product.cuh"
#include "kernels/cuda/prompt_wgmma.h"
#include "kernels/cuda/tile_formats.cuh"
#include "kernels/cuda/warp_roles.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace bellhop::kernels {
namespace prompt_wgmma {

constexpr int kRowWarps = 3;     // fetch rows of x; one more fetches weights
constexpr int kMultipliers = 2;  // warpgroups
constexpr int kMultiplierWarps = 4 * kMultipliers;
constexpr int kThreads = 128 * (1 + kMultipliers);
constexpr int kTilesAtOnce = kMultiplierWarps;  // of weights: of one matrix, or half of gate and half of up
constexpr int kRowColumns = 64;                 // of a stage of rows: one row of the tensor cores' pattern
constexpr int kRowStageBytes = kWgmmaMaxRows * kWgmmaRowBytes;
constexpr int kSumPlaneBytes = kWgmmaMaxRows * 16;  // of 256 columns: eight sums a row

__host__ __device__ inline int BlockTiles(const PromptProduct& p) {
  return p.activates ? kTilesAtOnce / 2 : kTilesAtOnce;
}
__host__ __device__ inline int Blocks(const PromptProduct& p) {
  return (p.w.tiles() + BlockTiles(p) - 1) / BlockTiles(p);
}

// A tile of rows times the weight tiles of one block of output rows.
struct Item {
  ExpertGroup group;
  int32_t block;  // negative: no more items
};

// The items of this thread block, in an order that all its warps know: neighbours share rows, then weights.
class Items {
 public:
  __device__ __forceinline__ explicit Items(const PromptProduct& p)
      : p_(p), blocks_(Blocks(p)), at_(static_cast<int>(blockIdx.x)) {
    const int tiles = p.tiles != nullptr ? *p.tile_count : (p.rows + p.tile_rows - 1) / p.tile_rows;
    end_ = tiles * blocks_;
    if (at_ < end_) ahead_ = Group(at_ / blocks_);
  }
  __device__ __forceinline__ bool Next(Item* item) {
    while (at_ < end_) {
      *item = {ahead_, at_ % blocks_};
      at_ += static_cast<int>(gridDim.x);
      // Under way while this item is fetched.
      if (at_ < end_) ahead_ = Group(at_ / blocks_);
      if (p_.tiles == nullptr || (item->group.slot >= p_.first_slot && item->group.slot < p_.end_slot)) return true;
    }
    return false;
  }

 private:
  __device__ __forceinline__ ExpertGroup Group(int tile) const {
    if (p_.tiles != nullptr) return p_.tiles[tile];
    const int first = tile * p_.tile_rows, left = p_.rows - first;
    return {0, 0, first, left < p_.tile_rows ? left : p_.tile_rows};
  }

  const PromptProduct& p_;
  const int blocks_;
  int at_, end_;
  ExpertGroup ahead_ = {};
};

// Weights come in stages of some whole chunks of each tile, an even number of groups of 32 columns.
template <typename Format>
struct Stages {
  static constexpr int kChunkBytes = Tiles(Format::kFormat).chunk_bytes;
  static constexpr int kChunks = Format::kGroups >= 4 ? 1
                                 : kChunkBytes > 1088 ? 2 / Format::kGroups
                                                      : 4 / Format::kGroups;
  static constexpr int kGroups = kChunks * Format::kGroups;
  static constexpr int kPieceBytes = kChunks * kChunkBytes;  // of a tile
  static constexpr int kBytes = kTilesAtOnce * kPieceBytes;
  static constexpr int kRoom = 40960;
  static constexpr int kCount = kRoom / kBytes < 2 ? 2 : kRoom / kBytes > 8 ? 8 : kRoom / kBytes;
  static constexpr int kRows = kCount * kBytes > 49152 ? 5 : 6;             // stages of rows
  static constexpr int kRowsPerStage = kGroups * kTermGroup / kRowColumns;  // stages of rows for one of weights
  static_assert(kGroups % 2 == 0 && (!Format::kMins || (kChunks == 1 && kGroups == 8)));
  static __device__ __forceinline__ int Of(const DeviceMatrix& w) { return (w.chunks + kChunks - 1) / kChunks; }
};

// Of a warpgroup: 64 columns of one matrix, or 32 of gate and of up.
constexpr int kShareRows = 32;  // whose sums are taken at once
constexpr int kShareColumns = kTilesAtOnce / kMultipliers * kTileRows;
constexpr int kShareStride = kShareColumns / 2 * 2 + 16;  // activations of one row, so that few meet in the banks
constexpr int kShareBytes = kWgmmaMaxRows * kShareStride;

// The barriers of some warps (SyncSome).
constexpr int kGroupBarrier = 1;  // and one more, for each warpgroup that multiplies

template <typename Format>
struct Shared {
  uint8_t rows[Stages<Format>::kRows][kRowStageBytes];  // at a multiple of 1024
  uint8_t weights[Stages<Format>::kCount][Stages<Format>::kBytes];
  uint8_t sums[2][2][Format::kMins ? kSumPlaneBytes : 16];  // of these 256 columns and the last ones: two terms
  alignas(16) uint8_t share[kMultipliers][kShareBytes];
  int32_t routes[kMultipliers][2][kWgmmaMaxRows];  // of this item and the last one
  Item items[Stages<Format>::kCount];              // that begin with the stage
  uint64_t rows_full[Stages<Format>::kRows], rows_empty[Stages<Format>::kRows];
  uint64_t weights_full[Stages<Format>::kCount], weights_empty[Stages<Format>::kCount];
  typename Format::Tables tables;
};
template <typename Format>
constexpr int kSharedBytes = sizeof(Shared<Format>) + kWgmmaPatternBytes;  // and what aligns it

// Where a warp is in a ring of stages.
template <int kCount>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kCount) stage = 0, parity ^= 1;
  }
};

// Three warps: rows of x, eight pieces of 16 bytes of each, of 24 rows one half each, then the other half. Where a
// thread's rows are is known before the first stage: a copy waits for nothing that another one has to bring.
template <typename Format>
__device__ __forceinline__ void FetchRows(const PromptProduct& p, Shared<Format>* shared) {
  constexpr int kRowThreads = kRowWarps * 32, kAtOnce = kRowThreads / 4, kOwn = kWgmmaMaxRows / kAtOnce;
  constexpr int kOwnSums = kWgmmaMaxRows / kRowThreads;
  static_assert(kOwn * kAtOnce == kWgmmaMaxRows && kAtOnce % 8 == 0 && kOwnSums * kRowThreads == kWgmmaMaxRows);
  const int thread = static_cast<int>(threadIdx.x), first = thread / 4;
  // Neighbours have other halves, so that eight lanes write to all banks.
  const int piece = thread % 8;
  const int to_other = piece < 4 ? 4 : -4;
  const int stages = Stages<Format>::Of(p.w) * Stages<Format>::kRowsPerStage;
  const uint32_t row_pieces = static_cast<uint32_t>(p.x.stride) / 8;
  const auto at = static_cast<uint32_t>(first * kWgmmaRowBytes + SwizzledPiece(piece, first) * 16);
  Ring<Stages<Format>::kRows> ring;
  int sums_at = 0;
  Items items(p);
  for (Item item; items.Next(&item);) {
    auto source = [&](int n) {
      const int place = item.group.first + n;
      return static_cast<uint32_t>(p.gathers ? p.order[place] / p.used : place);
    };
    uint32_t from[kOwn], sums_from[Format::kMins ? kOwnSums : 1];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int n = first + kAtOnce * i;
      from[i] = n < item.group.count ? source(n) * row_pieces : 0;
    }
    if constexpr (Format::kMins) {
#pragma unroll
      for (int i = 0; i < kOwnSums; ++i) {
        const int n = thread + kRowThreads * i;
        sums_from[i] = n < item.group.count ? source(n) * (row_pieces / 16) : 0;
      }
    }
    const int own = (item.group.count - first + kAtOnce - 1) / kAtOnce;
    const auto* x = reinterpret_cast<const uint4*>(p.x.data) + piece;
    const auto* sums = reinterpret_cast<const uint4*>(p.x.group_sums);
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      AwaitPhase(&shared->rows_empty[ring.stage], ring.parity ^ 1);
      const uint32_t to = SharedAddress(shared->rows[ring.stage]) + at, other = to ^ 64;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (i >= own) break;
        CopyAsync16(to + i * kAtOnce * kWgmmaRowBytes, x, from[i]);
        CopyAsync16(other + i * kAtOnce * kWgmmaRowBytes, x + to_other, from[i]);
      }
      if constexpr (Format::kMins) {
        // With the last rows of 256 columns. So few stages are under way that the sums before the last ones have been
        // multiplied.
        static_assert(Stages<Format>::kRows <= Stages<Format>::kRowsPerStage + 3);
        if (s % Stages<Format>::kRowsPerStage == Stages<Format>::kRowsPerStage - 1) {
#pragma unroll
          for (int i = 0; i < kOwnSums; ++i) {
            const int n = thread + kRowThreads * i;
            if (n >= item.group.count) break;
            CopyAsync16(SharedAddress(shared->sums[sums_at][0]) + n * 16, sums, sums_from[i]);
            CopyAsync16(SharedAddress(shared->sums[sums_at][1]) + n * 16, sums + 1, sums_from[i]);
          }
          sums += 2;
          sums_at ^= 1;
        }
      }
      ArriveWithCopies(&shared->rows_full[ring.stage]);
      ring.Advance();
      x += kRowColumns / 8;
    }
  }
  // All copies are through before their threads end.
#pragma unroll 1
  for (int s = 0; s < Stages<Format>::kRows; ++s) {
    AwaitPhase(&shared->rows_empty[ring.stage], ring.parity ^ 1);
    ring.Advance();
  }
}

// One warp: weights, a lane a tile, and what the items are.
template <typename Format>
__device__ __forceinline__ void FetchWeights(const PromptProduct& p, Shared<Format>* shared) {
  using S = Stages<Format>;
  const int lane = static_cast<int>(threadIdx.x) % 32, stages = S::Of(p.w), last = p.w.tiles() - 1;
  const int tile_bytes = p.w.chunks * S::kChunkBytes;
  Ring<S::kCount> ring;
  Items items(p);
  for (Item item; items.Next(&item);) {
    // Tiles that do not exist are read as the last one.
    const bool up = p.activates && lane >= kTilesAtOnce / 2;
    const int tile = item.block * BlockTiles(p) + (up ? lane - kTilesAtOnce / 2 : lane);
    const uint8_t* from = prompt_gemm::SlotOf(p, up ? p.up : p.w, up ? p.up_staged : p.w_staged, item.group.slot) +
                          int64_t{tile < last ? tile : last} * tile_bytes;
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      AwaitPhase(&shared->weights_empty[ring.stage], ring.parity ^ 1);
      const int left = tile_bytes - s * S::kPieceBytes, bytes = left < S::kPieceBytes ? left : S::kPieceBytes;
      if (lane == 0) {
        if (s == 0) shared->items[ring.stage] = item;
        ArriveExpecting(&shared->weights_full[ring.stage], static_cast<uint32_t>(kTilesAtOnce * bytes));
      }
      __syncwarp();
      if (lane < kTilesAtOnce) {
        CopyBulk(shared->weights[ring.stage] + lane * S::kPieceBytes, from, static_cast<uint32_t>(bytes),
                 &shared->weights_full[ring.stage]);
        from += S::kPieceBytes;
      }
      ring.Advance();
    }
  }
  AwaitPhase(&shared->weights_empty[ring.stage], ring.parity ^ 1);
  if (lane == 0) {
    shared->items[ring.stage].block = -1;
    ArriveAt(&shared->weights_full[ring.stage]);
  }
}

}  // namespace prompt_wgmma
}  // namespace bellhop::kernels
