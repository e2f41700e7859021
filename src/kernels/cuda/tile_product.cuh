// The core of the decode family: 16 output rows times up to 32 rows of activations. The columns of a tile are cut over
// the warps of a block; their sums are added in warp order, so a result depends on its own weights and activations
// alone.
#pragma once

#include "kernels/block_decode.h"
#include "kernels/cuda/device_matrix.h"
#include "kernels/cuda/tile_formats.cuh"

namespace bellhop::kernels {

// Whether a warp loads its next chunk while it multiplies one. Chunks of 256 columns fill the registers alone, and a
// warp has few of them.
template <typename Format>
inline constexpr bool kLoadsAhead = Format::kGroups < 8;

// Blocks of 256 threads that an SM should hold: at few rows latency is hidden by blocks, at many by registers.
template <typename Format>
constexpr int MinBlocks(int n8_tiles) {
  return n8_tiles > 2 ? 1 : n8_tiles == 1 && kLoadsAhead<Format> ? 3 : 2;
}

// Columns of the n8 operand that a row of activations takes.
constexpr int TermColumns(int terms) { return terms == 2 ? 2 : 4; }
constexpr int RowsPerN8(int terms) { return 8 / TermColumns(terms); }

// What a lane reads of the activations: of n8 tile j its column g, and the sums for its accumulator columns.
template <int kN>
struct ColumnPointers {
  const uint4* terms[kN];  // null: nothing there
  const float* sums[kN];
};

// row_of(i): row of the terms for batch row i, negative: none.
template <int kN, int kTerms, typename RowOf>
__device__ __forceinline__ ColumnPointers<kN> PointColumns(const TermRows& x, int lane, const RowOf& row_of) {
  constexpr int kColumns = TermColumns(kTerms), kRows = RowsPerN8(kTerms);
  const int g = lane / 4, t = lane % 4;
  ColumnPointers<kN> p;
#pragma unroll
  for (int j = 0; j < kN; ++j) {
    const int row = row_of(j * kRows + g / kColumns), term = g % kColumns;
    p.terms[j] = row >= 0 && term < kTerms
                     ? reinterpret_cast<const uint4*>(x.data + (int64_t{row} * kTerms + term) * x.stride) + t
                     : nullptr;
    // Accumulator columns 2t and 2t + 1; the first column of a row takes the sums.
    const int first = 2 * t;
    const int sum_row = first % kColumns == 0 ? row_of(j * kRows + first / kColumns) : -1;
    p.sums[j] = sum_row >= 0 ? x.sums + int64_t{sum_row} * (x.stride / 16) : nullptr;
  }
  return p;
}

// One group of 32 columns times one n8 tile; b: what the lane has of its column.
template <typename Format>
__device__ __forceinline__ void MultiplyColumns(const GroupFragment<Format::kTerms>& f, const uint4& b,
                                                float (&acc)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float d[4] = {0, 0, 0, 0};
    const uint32_t b0 = half == 0 ? b.x : b.z, b1 = half == 0 ? b.y : b.w;
#pragma unroll
    for (int term = 0; term < Format::kTerms; ++term) MmaBf16(d, f.a[term][half], b0, b1);
    if (Format::kOneScale && half == 0) {
#pragma unroll
      for (int term = 0; term < Format::kTerms; ++term) MmaBf16(d, f.a[term][1], b.z, b.w);
    }
    const int scale = Format::kOneScale ? 0 : half;
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i] = __fmaf_rn(f.scale[scale][i / 2], d[i], acc[i]);
    if (Format::kOneScale) break;
  }
}
// sum: of the group's activations, for the lanes whose accumulators take the minima.
template <int kTerms>
__device__ __forceinline__ void SubtractMins(const GroupFragment<kTerms>& f, float sum, float (&acc)[4]) {
  acc[0] = __fmaf_rn(-f.min[0], sum, acc[0]);
  acc[2] = __fmaf_rn(-f.min[1], sum, acc[2]);
}

template <typename Format, int kN>
__device__ __forceinline__ void MultiplyGroup(const GroupFragment<Format::kTerms>& f, int group,
                                              const ColumnPointers<kN>& x, float (&acc)[kN][4]) {
#pragma unroll
  for (int j = 0; j < kN; ++j) {
    const uint4 b = x.terms[j] != nullptr ? x.terms[j][group * 4] : make_uint4(0, 0, 0, 0);
    MultiplyColumns<Format>(f, b, acc[j]);
    if (Format::kMins && x.sums[j] != nullptr) {
      SubtractMins(f, x.sums[j][2 * group] + x.sums[j][2 * group + 1], acc[j]);
    }
  }
}

// A warp's chunks of one tile: first, first + step, ... ; the first one's bytes may have been loaded before.
template <typename Format, int kN>
__device__ __forceinline__ void MultiplyTile(const uint8_t* tile, int chunks, int first, int step,
                                             const typename Format::Chunk& loaded,
                                             const typename Format::Tables& tables, const ColumnPointers<kN>& x,
                                             int lane, float (&acc)[kN][4]) {
  constexpr int kBytes = Tiles(Format::kFormat).chunk_bytes;
  typename Format::Chunk chunk = loaded;
  for (int c = first; c < chunks; c += step) {
    if constexpr (!kLoadsAhead<Format>) {
      if (c != first) chunk = Format::Load(tile + int64_t{c} * kBytes, lane);
    }
    const typename Format::Chunk current = chunk;
    if constexpr (kLoadsAhead<Format>) {
      if (c + step < chunks) chunk = Format::Load(tile + int64_t{c + step} * kBytes, lane);
    }
#pragma unroll
    for (int i = 0; i < Format::kGroups; ++i) {
      GroupFragment<Format::kTerms> f;
      Format::Expand(current, i, lane % 4, tables, &f);
      MultiplyGroup<Format, kN>(f, c * Format::kGroups + i, x, acc);
    }
  }
}

// Any format, from file rows: lanes of a quad decode 16 columns each to f32 and exchange them; the exact values enter
// as three bf16 terms. Chunks are 64 columns.
struct ExactTerms {
  static constexpr int kTerms = 3;
  static constexpr bool kOneScale = true, kMins = false;
};

template <quant::WeightFormat F, int kN>
__device__ __forceinline__ void MultiplyFile(const DeviceMatrix& w, int first_row, int first, int step,
                                             const Codebooks& books, const ColumnPointers<kN>& x, int lane,
                                             float (&acc)[kN][4]) {
  using Decoder = BlockDecoder<F>;
  constexpr int kParts = Decoder::kElems / 16;
  const int g = lane / 4, t = lane % 4;
  const int parts = w.cols / 16, chunks = (w.cols + 63) / 64;
  for (int c = first; c < chunks; c += step) {
    float value[2][4][4];  // [row][part][element 4t ..]
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float own[16];
      const int row = first_row + g + 8 * r, part = 4 * c + t;
      if (row < w.rows && part < parts) {
        Decoder::Decode16(w.data + row * w.row_bytes + int64_t{part / kParts} * Decoder::kBytes, part % kParts, books,
                          own);
      } else {
#pragma unroll
        for (float& v : own) v = 0;
      }
#pragma unroll
      for (int turn = 0; turn < 4; ++turn) {
        const int other = t ^ turn;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const float give = other == 0 ? own[q] : other == 1 ? own[4 + q] : other == 2 ? own[8 + q] : own[12 + q];
          const float take = __shfl_xor_sync(0xFFFFFFFFu, give, turn);
#pragma unroll
          for (int p = 0; p < 4; ++p) {
            if (p == other) value[r][p][q] = take;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (64 * c + 32 * i >= w.cols) break;
      GroupFragment<3> f;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        f.scale[0][r] = 1;
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          float a = value[r][2 * i + p / 2][p % 2 * 2], b = value[r][2 * i + p / 2][p % 2 * 2 + 1];
#pragma unroll
          for (int term = 0; term < 3; ++term) f.a[term][p / 2][p % 2 * 2 + r] = TakePair(a, b);
        }
      }
      MultiplyGroup<ExactTerms, kN>(f, 2 * c + i, x, acc);
    }
  }
}

// Sums of a block's warps for one tile: [warps][kN * rows per n8][16].
template <int kN, int kTerms>
struct TileSums {
  static constexpr int kRows = kN * RowsPerN8(kTerms);
  static __host__ __device__ constexpr int Floats(int warps) { return warps * kRows * kTileRows; }

  // Each lane's accumulators; the terms of a row are added here.
  static __device__ __forceinline__ void Store(float (&acc)[kN][4], int warp, int lane, float* sums) {
    const int g = lane / 4, t = lane % 4;
    float* const own = sums + warp * kRows * kTileRows;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      float top = acc[j][0] + acc[j][1], bottom = acc[j][2] + acc[j][3];
      if constexpr (TermColumns(kTerms) == 4) {
        top += __shfl_xor_sync(0xFFFFFFFFu, top, 1);
        bottom += __shfl_xor_sync(0xFFFFFFFFu, bottom, 1);
        if (t % 2 != 0) continue;
      }
      const int row = j * RowsPerN8(kTerms) + 2 * t / TermColumns(kTerms);
      own[row * kTileRows + g] = top;
      own[row * kTileRows + g + 8] = bottom;
    }
  }
  // The sum for output row r of batch row m, of `count` warps from the first.
  static __device__ __forceinline__ float Read(const float* sums, int first, int count, int m, int r) {
    float sum = 0;
    for (int w = first; w < first + count; ++w) sum += sums[(w * kRows + m) * kTileRows + r];
    return sum;
  }
};

}  // namespace bellhop::kernels
