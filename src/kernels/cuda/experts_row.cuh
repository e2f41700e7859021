// Experts of a step of one row (the kernels, for the sources that instantiate them): routes are distinct experts, so
// blocks ask for a route's slot and need no groups.
#pragma once

#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/tile_row.cuh"

namespace bellhop::kernels {
namespace experts_row {

using experts::AddExperts, experts::FactorOf, experts::RouteShare;

// fc1: a block is one route's tile of 16 rows of gate and up.
constexpr int kFc1Threads = kRowClasses * 32;

// One warp: lanes 0 .. 15 have the rows of gate, the others those of up.
template <int kTerms>
__device__ __forceinline__ void FinishFc1(const ExpertArgs& args, int route, int expert, int tile, int lane, float norm,
                                          const float (&sums)[2][kRowClasses][kTileRows]) {
  const int half = lane / kTileRows, r = lane % kTileRows, column = tile * kTileRows + r;
  const ExpertBank& bank = args.bank;
  const bool inside = column < bank.gate.rows;
  const float scale = half == 0 ? bank.gate.scale : bank.up.scale;
  const float* const factors = half == 0 ? bank.gate_scale : bank.up_scale;
  const float* const biases = half == 0 ? bank.gate_bias : bank.up_bias;
  float value = AddClasses(sums[half], r) * norm * scale * FactorOf(factors, expert);
  if (biases != nullptr && inside) value += biases[int64_t{expert} * bank.gate.rows + column];
  const float up = __shfl_down_sync(0xFFFFFFFFu, value, kTileRows);
  WriteTerms(args.hidden, route, column, inside ? Activate(args, value, up) : 0.0f, half == 0);
}

template <typename Format, int kTerms>
__global__ void __launch_bounds__(kFc1Threads, kSmallChunks<Format> ? 3 : 2) Fc1RowKernel(ExpertArgs args) {
  __shared__ float sums[2][kRowClasses][kTileRows];
  __shared__ float norm;
  __shared__ typename Format::Tables tables;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = static_cast<int>(blockIdx.x), route = static_cast<int>(blockIdx.y);
  if constexpr (kHasTables<Format>) {
    tables.Fill(args.books.iq3xxs_grid);
    __syncthreads();
  }
  const RowColumn x = PointRow<kTerms>(args.x.terms, 0, lane);
  AwaitPrevious();
  const int rows = *args.rows, slot = args.all_rows ? 0 : args.routes.slots[route];
  const int expert = args.all_rows ? 0 : args.routes.ids[route];
  if (rows == 0 || slot < 0) return;
  const DeviceMatrix &gate = args.bank.gate, &up = args.bank.up;
  const StagingBank& staging = args.bank.staging;
  const InnerRange& inner = args.bank.staged_inner;
  if (slot >= staging.first_slot && (tile * kTileRows < inner.begin || tile * kTileRows >= inner.end)) return;
  constexpr int64_t kBytes = Tiles(Format::kFormat).chunk_bytes;
  const uint8_t* const gate_tile = experts::SlotData(gate, staging.gate, args.bank, slot) + tile * gate.chunks * kBytes;
  const uint8_t* const up_tile = experts::SlotData(up, staging.up, args.bank, slot) + tile * up.chunks * kBytes;
  float acc[4] = {}, up_acc[4] = {};
  const auto own_norm = [&] {
    if (warp != kRowClasses - 1) return;
    const float scale = RowScale(NormOf(args.x), 0, lane);
    if (lane == 0) norm = scale;
  };
  if constexpr (kSmallChunks<Format>) {
    RowPair<Format, kTerms> pair(gate_tile, up_tile, gate.chunks, warp, lane);
    own_norm();
    pair.Multiply(x, tables, acc, up_acc);
  } else {
    using Part = RowPart<Format, kTerms, kRowClasses, kRowChunks<Format>, true>;
    Part gate_part(gate_tile, gate.chunks, warp, lane);
    own_norm();
    gate_part.Multiply(x, tables, acc);
    Part(up_tile, up.chunks, warp, lane).Multiply(x, tables, up_acc);
  }
  StoreRow<kTerms>(acc, lane, sums[0][warp]);
  StoreRow<kTerms>(up_acc, lane, sums[1][warp]);
  __syncthreads();
  if (warp == 0) FinishFc1<kTerms>(args, route, expert, tile, lane, norm, sums);
}

// fc2: a block is a tile for all experts of the row, two warps an expert, and nobody meets anywhere.
inline constexpr int kMaxRowRoutes = 10;

// Half of the classes of a tile, by one warp.
template <typename Format, int kTerms>
__device__ __forceinline__ void MultiplyHalf(const experts::DownPart& down, int half, int route,
                                             const typename Format::Tables& tables, int lane,
                                             float (&sums)[kRowClasses][kTileRows]) {
  const RowColumn x = PointRow<kTerms>(down.h, route, lane);
  const int chunks = down.w.chunks;
  if constexpr (kSmallChunks<Format>) {
    if (chunks <= kRowClasses) {
      RowPart<Format, kTerms, 2, kRowClasses / 2, false>(down.w.data, chunks, half, lane)
          .MultiplyEach(x, tables,
                        [&](int i, const float(&acc)[4]) { StoreRow<kTerms>(acc, lane, sums[half + 2 * i]); });
      return;
    }
  }
#pragma unroll 1
  for (int c = half; c < kRowClasses; c += 2) {
    float acc[4] = {};
    RowPart<Format, kTerms, kRowClasses, kRowChunks<Format>, true>(down.w.data, chunks, c, lane)
        .Multiply(x, tables, acc);
    StoreRow<kTerms>(acc, lane, sums[c]);
  }
}

template <typename Format, int kTerms>
__global__ void __launch_bounds__(64 * kMaxRowRoutes) Fc2RowKernel(ExpertArgs args) {
  __shared__ float sums[kMaxRowRoutes][kRowClasses][kTileRows];
  __shared__ float outs[kMaxRowRoutes][kTileRows];
  __shared__ RouteShare shares[kMaxRowRoutes];
  __shared__ typename Format::Tables tables;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = static_cast<int>(blockIdx.x), route = warp / 2, half = warp % 2;
  const int column = tile * kTileRows + lane % kTileRows, hidden = args.x.hidden;
  if constexpr (kHasTables<Format>) {
    tables.Fill(args.books.iq3xxs_grid);
    __syncthreads();
  }
  const bool combines = warp == 0 && column < hidden;
  const float next_norm = combines && args.completes ? args.next.norm[column] : 0.0f;
  AwaitPrevious();
  const int rows = *args.rows, slot = args.routes.slots[route];
  const float before = combines ? args.x.values[column] : 0.0f;
  // The router has said so, and nobody changes it before all blocks are here.
  const bool pending = args.waits && args.doorbell->pending != 0;
  if (rows == 0) return;
  if (slot >= 0) {
    MultiplyHalf<Format, kTerms>(experts::CutDown(args, tile, slot), half, route, tables, lane, sums[route]);
  }
  if (half == 0 && lane == 0) shares[route] = {slot, args.routes.weights[route]};
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(args.used * kTileRows)) {
    const int u = static_cast<int>(threadIdx.x) / kTileRows, r = static_cast<int>(threadIdx.x) % kTileRows;
    const int row = tile * kTileRows + r, own = shares[u].slot;
    float out = 0;
    if (own >= 0 && row < args.bank.down.rows) {
      const int expert = args.bank.down_scale != nullptr || args.bank.down_bias != nullptr ? args.routes.ids[u] : 0;
      out = experts::FinishDown(args, own, expert, row, AddClasses(sums[u], r));
    }
    outs[u][r] = out;
  }
  __syncthreads();
  if (warp == 0) {
    const float value = column < hidden ? AddExperts(
                                              args, before, [&](int u) { return shares[u]; },
                                              [&](int u) { return outs[u][lane % kTileRows]; })
                                        : 0.0f;
    if (args.completes) {
      WriteResidual(args.next, 0, column, value, next_norm, lane < kTileRows);
    } else if (combines && lane < kTileRows) {
      args.x.values[column] = value;
    }
  }
  if (!pending) return;
  if (ArriveLast(args.layer_arrivals, gridDim.x)) experts::AddMisses(args);
}

template <typename Format, int kTerms>
cudaError_t LaunchFc1As(const ExpertArgs& args, const cuda::LaunchQueue& queue) {
  const DeviceMatrix &gate = args.bank.gate, &up = args.bank.up;
  const auto used = static_cast<unsigned>(args.used);
  return cuda::Launch(
      queue, {.name = "experts fc1", .bytes = used * (experts::Bytes(gate) + experts::Bytes(up))},
      {.grid = dim3(static_cast<unsigned>(gate.tiles()), used), .block = dim3(kFc1Threads), .overlap = true},
      Fc1RowKernel<Format, kTerms>, args);
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
