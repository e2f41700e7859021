// The decode family for a step of one row, where latency is all: what a warp needs is under way before it multiplies.
// Columns of a tile fall into classes by chunk as in the kernels for more rows, and the products of a class are added
// in the same order: the same bits.
#pragma once

#include <type_traits>

#include "kernels/cuda/tile_product.cuh"

namespace bellhop::kernels {

inline constexpr int kRowClasses = 8;

// Chunks of a class that a warp asks for at once.
template <typename Format>
inline constexpr int kRowChunks = Format::kGroups == 8   ? 1
                                  : Format::kGroups == 1 ? 4
                                                         : 2;

template <typename Format>
inline constexpr bool kHasTables = !std::is_same_v<typename Format::Tables, NoTables>;

// A lane's part of the one row. With two terms all columns of the n8 operand repeat the row's; with three, columns 3
// and 7 are zero.
struct RowColumn {
  const uint4* terms;
  const float* sums;
  bool has_term, takes_mins;
};
template <int kTerms>
__device__ __forceinline__ RowColumn PointRow(const TermRows& x, int row, int lane) {
  constexpr int kColumns = TermColumns(kTerms);
  const int g = lane / 4, t = lane % 4, term = g % kColumns;
  const bool has = term < kTerms;
  const uint16_t* const own = x.data + (int64_t{row} * kTerms + (has ? term : 0)) * x.stride;
  return {reinterpret_cast<const uint4*>(own) + t, x.sums + int64_t{row} * (x.stride / 16), has, 2 * t % kColumns == 0};
}

// One class of a tile, chunks first, first + kRowClasses ... of `count`. The first kDepth * kRowChunks are loaded
// before anything else. Weights and activations that have been multiplied make room for later ones.
template <typename Format, int kTerms, int kDepth>
class RowClass {
 public:
  __device__ __forceinline__ RowClass(const uint8_t* tile, int count, int first, int lane)
      : tile_(tile), count_(count), first_(first), lane_(lane) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) Load(i, first + i * kRowClasses);
  }

  __device__ __forceinline__ void Multiply(const RowColumn& x, const typename Format::Tables& tables, float (&acc)[4]) {
    Activations ahead{x};
    ahead.column.terms += first_ * (kGroups * 4);
    ahead.column.sums += first_ * (kGroups * 2);
#pragma unroll
    for (int n = 0; n < kAhead; ++n) LoadGroup(first_, n, &ahead);
#pragma unroll 1
    for (int base = first_; base < count_; base += kChunks * kRowClasses) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int chunk = base + c * kRowClasses;
        if (chunk >= count_) break;
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          const int n = c * kGroups + i;
          GroupFragment<Format::kTerms> f;
          Format::Expand(chunks_[c], i, lane_ % 4, tables, &f);
          MultiplyColumns<Format>(f, ahead.b[n % kAhead], acc);
          if constexpr (Format::kMins) {
            if (x.takes_mins) SubtractMins(f, ahead.sums[n % kAhead], acc);
          }
          LoadGroup(base, n + kAhead, &ahead);
        }
        Load(c, chunk + kChunks * kRowClasses);
      }
      ahead.column.terms += kChunks * kRowClasses * (kGroups * 4);
      ahead.column.sums += kChunks * kRowClasses * (kGroups * 2);
    }
  }

 private:
  static constexpr int kGroups = Format::kGroups, kChunks = kDepth * kRowChunks<Format>;
  static constexpr int kAhead = 4;  // groups whose activations are under way
  static_assert(kChunks * kGroups % kAhead == 0);

  struct Activations {
    RowColumn column;  // from the chunk on that the loop is at
    uint4 b[kAhead];
    float sums[Format::kMins ? kAhead : 1];
  };

  __device__ __forceinline__ void Load(int i, int chunk) {
    if (chunk < count_) chunks_[i] = Format::Load(tile_ + chunk * Tiles(Format::kFormat).chunk_bytes, lane_);
  }
  // Group n of the class from chunk `base` on.
  __device__ __forceinline__ void LoadGroup(int base, int n, Activations* to) const {
    if (base + n / kGroups * kRowClasses >= count_) return;
    const RowColumn& x = to->column;
    const int group = n / kGroups * kRowClasses * kGroups + n % kGroups;
    to->b[n % kAhead] = kTerms == 2 || x.has_term ? x.terms[group * 4] : make_uint4(0, 0, 0, 0);
    if constexpr (Format::kMins) {
      const float2 two = reinterpret_cast<const float2*>(x.sums)[group];
      to->sums[n % kAhead] = two.x + two.y;
    }
  }

  typename Format::Chunk chunks_[kChunks];
  const uint8_t* tile_;
  int count_, first_, lane_;
};

// The row's sums of a class, [16].
template <int kTerms>
__device__ __forceinline__ void StoreRow(const float (&acc)[4], int lane, float* sums) {
  const int g = lane / 4, t = lane % 4;
  float top = acc[0] + acc[1], bottom = acc[2] + acc[3];
  if constexpr (TermColumns(kTerms) == 4) {
    top += __shfl_xor_sync(0xFFFFFFFFu, top, 1);
    bottom += __shfl_xor_sync(0xFFFFFFFFu, bottom, 1);
  }
  if (t != 0) return;
  sums[g] = top;
  sums[g + 8] = bottom;
}
// Of all classes, for output row r.
__device__ __forceinline__ float AddClasses(const float (&sums)[kRowClasses][kTileRows], int r) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kRowClasses; ++c) sum += sums[c][r];
  return sum;
}

}  // namespace bellhop::kernels
