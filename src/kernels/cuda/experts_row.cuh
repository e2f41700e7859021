// fc2 of the experts of a step of one row (the kernel, for the source that instantiates it), where latency is all: what
// a warp needs is under way before it multiplies. Routes are distinct experts, so blocks ask for a route's slot and
// need no groups.
#pragma once

#include <type_traits>

#include "kernels/cuda/expert_product.cuh"
#include "kernels/cuda/experts.cuh"

namespace bellhop::kernels {
namespace experts_row {

using experts::AddExperts, experts::RouteShare;

// A block is a tile for all experts of the row, two warps an expert, and nobody meets anywhere.
inline constexpr int kMaxRowRoutes = 10;

// A lane's part of a chunk.
template <typename Shape>
struct LoadedChunk {
  using Codes = typename Shape::Codes;
  typename Codes::Codes codes;
  typename Codes::Scale scales[Codes::kTurns][Shape::kChains][2];

  __device__ __forceinline__ void Load(const uint8_t* chunk, int lane, int own_unit) {
    Codes::Load(chunk, lane, &codes);
#pragma unroll
    for (int turn = 0; turn < Codes::kTurns; ++turn) {
#pragma unroll
      for (int n = 0; n < Shape::kChains; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          scales[turn][n][r] = Codes::LoadScale(chunk, r, lane, turn, n * Shape::kUnits + own_unit);
        }
      }
    }
  }
};

// One class of a tile, by one warp: chunks [begin, end), of which some are under way at once.
template <typename Format, int kTerms>
__device__ __forceinline__ void MultiplyClass(const experts::DownPart& down, int begin, int end, int route,
                                              const typename TileCodes<Format>::Tables& tables, int lane,
                                              float (&sums)[kTileRows]) {
  using Shape = FewRows<Format, kTerms>;
  using Codes = TileCodes<Format>;
  constexpr int kAhead = Shape::kChunkBytes > 2560 ? 1 : Shape::kChunkBytes > 1280 ? 2 : 3;
  const LanePointers x = PointLane<Shape>(down.h, lane, [&](int i) { return i == 0 ? route : -1; });
  LoadedChunk<Shape> chunks[kAhead];
  LaneTerms<Shape> terms[kAhead];
  const auto load = [&](int i, int c) {
    if (c >= end) return;
    chunks[i].Load(down.w.data + c * Shape::kChunkBytes, lane, x.own_unit);
    terms[i].Load(x, c * Shape::kChunkColumns);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i, begin + i);
  UnitSums<Shape> acc = {};
#pragma unroll 1
  for (int base = begin; base < end; base += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (base + i >= end) break;
#pragma unroll
      for (int turn = 0; turn < Codes::kTurns; ++turn) {
        if (turn > 0) terms[i].Load(x, (base + i) * Shape::kChunkColumns + turn * Shape::kTurnColumns);
        TurnInput<Shape> input;
        input.Take(terms[i], x.unit);
        MultiplyTurn<Shape>(
            chunks[i].codes, turn, input, tables, lane, x.own_unit,
            [&](int n, int r) { return chunks[i].scales[turn][n][r]; }, acc);
      }
      load(i, base + i + kAhead);
    }
  }
  float out[2];
  AddUnits<Shape>(acc, out);
  if (lane % 4 != 0) return;
  sums[lane / 4] = out[0];
  sums[lane / 4 + 8] = out[1];
}

template <typename Format, int kTerms>
__global__ void __launch_bounds__(64 * kMaxRowRoutes) Fc2RowKernel(ExpertArgs args) {
  using Codes = TileCodes<Format>;
  __shared__ float sums[kMaxRowRoutes][2][kTileRows];
  __shared__ float outs[kMaxRowRoutes][kTileRows];
  __shared__ RouteShare shares[kMaxRowRoutes];
  __shared__ typename Codes::Tables tables;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = static_cast<int>(blockIdx.x), route = warp / 2, half = warp % 2;
  const int column = tile * kTileRows + lane % kTileRows, hidden = args.x.hidden;
  if constexpr (!std::is_same_v<typename Codes::Tables, NoTables>) {
    tables.Fill(args.books.iq3xxs_grid);
    __syncthreads();
  }
  const bool combines = warp == 0 && column < hidden;
  const float next_norm = combines && args.completes ? args.next.norm[column] : 0.0f;
  AwaitPrevious();
  const int rows = *args.rows, slot = args.routes.slots[route];
  const float before = combines ? args.x.values[column] : 0.0f;
  if (rows == 0) return;
  // The CPU may have been faster: its sum is on its way while the block computes.
  bool adds = false;
  uint32_t word = cuda::kNoSum;
  if (combines && lane < kTileRows && args.waits) {
    const cuda::SumWait wait(args.layer, args.channel, args.doorbell);
    adds = wait.has(0);
    if (adds) word = wait.Look(0, column);
  }
  if (slot >= 0) {
    const experts::DownPart down = experts::CutDownTiles(args, Tiles(Format::kFormat), tile, slot);
    MultiplyClass<Format, kTerms>(down, ClassBegin(half, 2, down.w.chunks), ClassBegin(half + 1, 2, down.w.chunks),
                                  route, tables, lane, sums[route][half]);
  }
  if (half == 0 && lane == 0) shares[route] = {slot, args.routes.weights[route]};
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(args.used * kTileRows)) {
    const int u = static_cast<int>(threadIdx.x) / kTileRows, r = static_cast<int>(threadIdx.x) % kTileRows;
    const int row = tile * kTileRows + r, own = shares[u].slot;
    float out = 0;
    if (own >= 0 && row < args.bank.down.rows) {
      const int expert = args.bank.down_scale != nullptr || args.bank.down_bias != nullptr ? args.routes.ids[u] : 0;
      out = experts::FinishDown(args, own, expert, row, (sums[u][0][r] + sums[u][1][r]) * Codes::kResult);
    }
    outs[u][r] = out;
  }
  __syncthreads();
  if (warp == 0) {
    float value = 0;
    if (column < hidden) {
      value = AddExperts(
          args, before, [&](int u) { return shares[u]; }, [&](int u) { return outs[u][lane % kTileRows]; });
    }
    if (adds) {
      cuda::SumWait wait(args.layer, args.channel, args.doorbell);
      wait.Lead(tile == 0);
      value = experts::AddMisses(args, value, word, 0, column, &wait);
      if (tile == 0 && lane == 0) wait.Finish();
    }
    if (args.completes) {
      WriteResidual(args.next, 0, column, value, next_norm, lane < kTileRows);
    } else if (combines && lane < kTileRows) {
      args.x.values[column] = value;
    }
  }
}

template <typename Format, int kTerms>
cudaError_t LaunchFc2As(const ExpertArgs& args, const cuda::LaunchQueue& queue) {
  const auto used = static_cast<unsigned>(args.used);
  return cuda::Launch(
      queue, {.name = "experts fc2", .bytes = used * experts::Bytes(args.bank.down)},
      {.grid = dim3(static_cast<unsigned>(args.bank.down.tiles())), .block = dim3(64 * used), .overlap = true},
      Fc2RowKernel<Format, kTerms>, args);
}

}  // namespace experts_row
}  // namespace bellhop::kernels
