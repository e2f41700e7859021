// What a warp multiplies of the experts of a step: one tile of 16 output rows with the activations of a few rows, a
// turn of up to four units (tile_codes.cuh) at a time.
//
// The n8 operand has 8 / TermColumns slots. A slot is a row; or, with few rows, a row's columns of one unit: the other
// columns of the operand are zero while that unit is multiplied, so that one chain of products leaves the sums of
// several units side by side, and a lane scales those of its own unit alone. What a zero adds changes no bits, so a
// row's results are the same either way. They are added in one order: the terms of a unit, scaled, over the chunks of a
// class, by the unit's place in its turn; then over the places (AddUnits); then over classes.
#pragma once

#include "kernels/cuda/tile_codes.cuh"
#include "kernels/cuda/tile_product.cuh"

namespace bellhop::kernels {

// kUnits of a chain.
template <typename Format, int kTermCount, int kUnitCount>
struct ProductShape {
  using Codes = TileCodes<Format>;
  static constexpr int kTerms = kTermCount, kUnits = kUnitCount;
  static constexpr int kColumns = TermColumns(kTerms), kSlots = RowsPerN8(kTerms);
  static constexpr int kRows = kSlots / kUnits, kChains = Codes::kUnits / kUnits;
  static constexpr int kChunkColumns = Tiles(Format::kFormat).chunk_cols,
                       kChunkBytes = Tiles(Format::kFormat).chunk_bytes;
  static constexpr int kTurnColumns = 16 * Codes::kUnits * Codes::kSteps;
  static_assert(kTurnColumns * Codes::kTurns == kChunkColumns);
};
// For as few rows as possible, and for as many.
template <typename Format, int kTerms>
using FewRows = ProductShape < Format,
      kTerms, TileCodes<Format>::kUnits<RowsPerN8(kTerms) ? TileCodes<Format>::kUnits : RowsPerN8(kTerms)>;
template <typename Format, int kTerms>
using ManyRows = ProductShape<Format, kTerms, 1>;

// Where a lane's activations are.
struct LanePointers {
  const uint8_t* terms;  // of its column of the n8 operand; null: zeros
  const float* sums;     // for its accumulators; null: not its part
  int unit;              // of a chain, that its column of the operand has
  int own_unit;          // that its accumulators have
};

// Bytes of a row of terms before a unit of a turn, for a lane; floats of sums.
template <typename Codes>
constexpr int UnitBytes(int unit) {
  return Codes::kSteps == 2 ? 64 * unit : 64 * (unit / 2) + 8 * (unit % 2);
}

// row_of(i): row of the terms for row i, negative: none.
template <typename Shape, typename RowOf>
__device__ __forceinline__ LanePointers PointLane(const TermRows& x, int lane, const RowOf& row_of) {
  using Codes = typename Shape::Codes;
  const int g = lane / 4, t = lane % 4;
  const int slot = g / Shape::kColumns, term = g % Shape::kColumns, own_slot = 2 * t / Shape::kColumns;
  LanePointers p;
  p.unit = slot % Shape::kUnits;
  p.own_unit = own_slot % Shape::kUnits;
  const int row = row_of(slot / Shape::kUnits);
  p.terms = row >= 0 && term < Shape::kTerms
                ? reinterpret_cast<const uint8_t*>(x.data + (int64_t{row} * Shape::kTerms + term) * x.stride) + 16 * t +
                      UnitBytes<Codes>(p.unit)
                : nullptr;
  // The first column of a row takes what its sums give.
  const int sum_row = 2 * t % Shape::kColumns == 0 ? row_of(own_slot / Shape::kUnits) : -1;
  p.sums = sum_row >= 0 ? x.sums + int64_t{sum_row} * (x.stride / 16) + p.own_unit * Codes::kSteps : nullptr;
  return p;
}

// The activations of a turn as a lane finds them.
template <typename Shape>
class LaneTerms {
  using Codes = typename Shape::Codes;

 public:
  static constexpr int kWords = 2 * Codes::kSteps;
  uint32_t terms[Shape::kChains][kWords];
  float sums[Shape::kChains];  // of the unit that its accumulators have

  // column: where the turn begins.
  __device__ __forceinline__ void Load(const LanePointers& p, int column) {
#pragma unroll
    for (int n = 0; n < Shape::kChains; ++n) {
      const uint8_t* const from = p.terms + 2 * column + UnitBytes<Codes>(n * Shape::kUnits);
      if constexpr (Codes::kSteps == 2) {
        const uint4 four = p.terms != nullptr ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
        terms[n][0] = four.x, terms[n][1] = four.y, terms[n][2] = four.z, terms[n][3] = four.w;
      } else {
        const uint2 two = p.terms != nullptr ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
        terms[n][0] = two.x, terms[n][1] = two.y;
      }
      if constexpr (Codes::kMins || Codes::kZero != 0) sums[n] = p.sums != nullptr ? LoadSum(p, column, n) : 0.0f;
    }
  }

 private:
  static __device__ __forceinline__ float LoadSum(const LanePointers& p, int column, int n) {
    const float* const from = p.sums + column / 16 + n * Shape::kUnits * Codes::kSteps;
    if constexpr (Codes::kSteps == 1) return *from;
    const float2 two = *reinterpret_cast<const float2*>(from);
    return two.x + two.y;
  }
};

// The same as operands.
template <typename Shape>
class TurnInput {
  using Codes = typename Shape::Codes;

 public:
  __device__ __forceinline__ void Take(const LaneTerms<Shape>& own, int own_unit) {
    constexpr float kTimes = (Codes::kMins ? 1.0f : -static_cast<float>(Codes::kZero)) * PowerOfTwo(-kProductExponent);
#pragma unroll
    for (int n = 0; n < Shape::kChains; ++n) {
      if constexpr (Codes::kMins || Codes::kZero != 0) sums_[n] = own.sums[n] * kTimes;
#pragma unroll
      for (int i = 0; i < Shape::kUnits; ++i) {
#pragma unroll
        for (int j = 0; j < LaneTerms<Shape>::kWords; ++j) {
          const int exponent = Codes::Exponent(n * Shape::kUnits + i, j / 2);
          if (Shape::kUnits == 1 && exponent == 0) {
            terms_[n][i][j] = own.terms[n][j];
            continue;
          }
          const uint32_t power = Shape::kUnits == 1 || own_unit == i ? PowerPair(exponent) : 0u;
          terms_[n][i][j] = Bits(__hmul2(Pair(own.terms[n][j]), Pair(power)));
        }
      }
    }
  }
  __device__ __forceinline__ uint32_t Term(int chain, int unit, int pair) const { return terms_[chain][unit][pair]; }
  // Of the unit that the lane's accumulators have: as a minimum multiplies it, or what the zero points have added.
  __device__ __forceinline__ float Sum(int chain) const { return sums_[chain]; }

 private:
  uint32_t terms_[Shape::kChains][Shape::kUnits][LaneTerms<Shape>::kWords];
  float sums_[Shape::kChains];
};

// [chain][row g, g + 8]: of the unit that the lane has.
template <typename Shape>
using UnitSums = float[Shape::kChains][2];

// scale_of(chain, r): what LoadScale gave for the lane's unit of the chain.
template <typename Shape, typename ScaleOf>
__device__ __forceinline__ void MultiplyTurn(const typename Shape::Codes::Codes& codes, int turn,
                                             const TurnInput<Shape>& x, const typename Shape::Codes::Tables& tables,
                                             int lane, int own_unit, const ScaleOf& scale_of, UnitSums<Shape>& acc) {
  using Codes = typename Shape::Codes;
#pragma unroll
  for (int n = 0; n < Shape::kChains; ++n) {
    const float zero = Codes::kZero != 0 ? x.Sum(n) : 0.0f;
    float d[4] = {zero, 0, zero, 0};
#pragma unroll
    for (int i = 0; i < Shape::kUnits; ++i) {
#pragma unroll
      for (int step = 0; step < Codes::kSteps; ++step) {
        uint32_t a[Codes::kTerms][4];
        Codes::Expand(codes, turn, n * Shape::kUnits + i, step, lane % 4, tables, a);
#pragma unroll
        for (int term = 0; term < Codes::kTerms; ++term) {
          const float before[4] = {d[0], d[1], d[2], d[3]};
          MmaBf16(d, a[term], x.Term(n, i, 2 * step), x.Term(n, i, 2 * step + 1), before);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = d[2 * r] + d[2 * r + 1];
      if constexpr (!Codes::kScales) {
        acc[n][r] += sum;
      } else {
        const typename Codes::Scale scale = scale_of(n, r);
        const int unit = n * Shape::kUnits + own_unit;
        acc[n][r] = __fmaf_rn(Codes::Factor(scale, turn, unit), sum, acc[n][r]);
        if constexpr (Codes::kMins) acc[n][r] = __fmaf_rn(-Codes::Min(scale, turn, unit), x.Sum(n), acc[n][r]);
      }
    }
  }
}

// Over the places of a turn: (0 + 1) + (2 + 3). Lanes of one row have the same result.
template <typename Shape>
__device__ __forceinline__ void AddUnits(const UnitSums<Shape>& acc, float (&out)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum[Shape::kChains];
#pragma unroll
    for (int n = 0; n < Shape::kChains; ++n) {
      sum[n] = acc[n][r];
      if constexpr (Shape::kColumns == 4) sum[n] += __shfl_xor_sync(0xFFFFFFFFu, sum[n], 1);
#pragma unroll
      for (int u = 1; u < Shape::kUnits; u *= 2) {
        sum[n] += __shfl_xor_sync(0xFFFFFFFFu, sum[n], u * (Shape::kColumns / 2));
      }
    }
    if constexpr (Shape::kChains == 4) {
      out[r] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    } else if constexpr (Shape::kChains == 2) {
      out[r] = sum[0] + sum[1];
    } else {
      out[r] = sum[0];
    }
  }
}
// The row whose results a lane has, if it is the one that writes them, else negative.
template <typename Shape>
__device__ __forceinline__ int RowOfLane(int lane) {
  const int column = lane % 4 * 2, per_row = Shape::kColumns * Shape::kUnits;
  return column % per_row == 0 ? column / per_row : -1;
}

// Classes of a tile's chunks: class k of `classes` begins here.
constexpr int ClassBegin(int k, int classes, int chunks) { return k * chunks / classes; }

}  // namespace bellhop::kernels
