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

// Formats with chunks of 64 or 128 columns.
template <typename Format>
inline constexpr bool kSmallChunks = Format::kGroups == 2 || Format::kGroups == 4;
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

// Activations of the chunks first, first + kStep ... of `count`, groups in that order: kAhead groups are under way.
// kChunks: at most so many chunks; 0: any number.
template <typename Format, int kTerms, int kStep, int kAhead, int kChunks>
class RowActivations {
 public:
  __device__ __forceinline__ RowActivations(const RowColumn& x, int count, int first)
      : terms_(x.terms + first * (kGroups * 4)),
        sums_(x.sums + first * (kGroups * 2)),
        has_term_(x.has_term),
        takes_mins_(x.takes_mins),
        left_(count - first) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) Load(n);
  }
  // Group n from where Advance has come to, multiplied with a fragment.
  __device__ __forceinline__ void Multiply(const GroupFragment<Format::kTerms>& f, int n, float (&acc)[4]) const {
    MultiplyColumns<Format>(f, b_[n % kAhead], acc);
    if constexpr (Format::kMins) {
      if (takes_mins_) SubtractMins(f, group_sums_[n % kAhead], acc);
    }
  }
  // Nobody needs group n any more.
  __device__ __forceinline__ void Free(int n) { Load(n + kAhead); }
  // By a multiple of kAhead groups.
  __device__ __forceinline__ void Advance(int chunks) {
    terms_ += chunks * kStep * (kGroups * 4);
    sums_ += chunks * kStep * (kGroups * 2);
    left_ -= chunks * kStep;
  }

 private:
  static constexpr int kGroups = Format::kGroups;

  __device__ __forceinline__ void Load(int n) {
    if (kChunks > 0 && n / kGroups >= kChunks) return;
    if (n / kGroups * kStep >= left_) return;
    const int group = n / kGroups * kStep * kGroups + n % kGroups;
    b_[n % kAhead] = kTerms == 2 || has_term_ ? terms_[group * 4] : make_uint4(0, 0, 0, 0);
    if constexpr (Format::kMins) {
      const float2 two = reinterpret_cast<const float2*>(sums_)[group];
      group_sums_[n % kAhead] = two.x + two.y;
    }
  }

  const uint4* terms_;
  const float* sums_;
  bool has_term_, takes_mins_;
  int left_;
  uint4 b_[kAhead];
  float group_sums_[Format::kMins ? kAhead : 1];
};

// What a warp multiplies of a tile: chunks first, first + kStep ... of `count`. The first kChunks are loaded before
// anything else. kMore: there may be more, a chunk that has been multiplied makes room for a later one.
template <typename Format, int kTerms, int kStep, int kChunks, bool kMore>
class RowPart {
 public:
  __device__ __forceinline__ RowPart(const uint8_t* tile, int count, int first, int lane)
      : tile_(tile), count_(count), first_(first), lane_(lane) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) Load(i, first + i * kStep);
  }

  __device__ __forceinline__ void Multiply(const RowColumn& x, const typename Format::Tables& tables, float (&acc)[4]) {
    Activations ahead(x, count_, first_);
#pragma unroll 1
    for (int base = first_; base < count_; base += kChunks * kStep) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (base + c * kStep >= count_) break;
        MultiplyChunk(c, tables, &ahead, acc);
        if (kMore) Load(c, base + (c + kChunks) * kStep);
      }
      if (!kMore) break;
      ahead.Advance(kChunks);
    }
  }

 private:
  static constexpr int kGroups = Format::kGroups, kAhead = kChunks * kGroups < 4 ? kChunks * kGroups : 4;
  static_assert(kChunks * kGroups % kAhead == 0);
  using Activations = RowActivations<Format, kTerms, kStep, kAhead, kMore ? 0 : kChunks>;

  __device__ __forceinline__ void MultiplyChunk(int c, const typename Format::Tables& tables, Activations* ahead,
                                                float (&acc)[4]) const {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      GroupFragment<Format::kTerms> f;
      Format::Expand(chunks_[c], i, lane_ % 4, tables, &f);
      ahead->Multiply(f, c * kGroups + i, acc);
      ahead->Free(c * kGroups + i);
    }
  }
  __device__ __forceinline__ void Load(int i, int chunk) {
    if (chunk < count_) chunks_[i] = Format::Load(tile_ + chunk * Tiles(Format::kFormat).chunk_bytes, lane_);
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
