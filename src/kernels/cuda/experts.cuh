// Experts of a decode step that lie in device memory, hits and staged misses (the kernels, for the sources that
// instantiate them): a block is one expert's tile of 16 output rows for all rows that chose it, so that its weights are
// read and decoded once. fc2's blocks of the same tiles meet at a counter; the last one completes them.
#pragma once

#include "cuda/launch.h"
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/experts_combine.cuh"
#include "kernels/cuda/tile_dispatch.cuh"

namespace bellhop::kernels {
namespace experts {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;

__device__ __forceinline__ ExpertGroup GroupOf(const ExpertArgs& args, int index, int rows) {
  return args.all_rows ? ExpertGroup{0, 0, 0, rows} : args.routes.groups[index];
}
__device__ __forceinline__ int RouteOf(const ExpertArgs& args, const ExpertGroup& group, int i) {
  return args.all_rows ? i : args.routes.order[group.first + i];
}
// staged: the matrix's offset in a staging slot.
__device__ __forceinline__ const uint8_t* SlotData(const DeviceMatrix& w, int64_t staged, const ExpertBank& bank,
                                                   int slot) {
  const StagingBank& staging = bank.staging;
  if (slot < staging.first_slot) return w.data + slot * bank.slot_bytes;
  return staging.base + staged + (slot - staging.first_slot) * staging.slot_bytes;
}

// One tile of `down`, cut to the columns that a group computes, with the activations to match.
struct DownPart {
  DeviceMatrix w;  // its only tile is the one
  TermRows h;
};
__device__ __forceinline__ InnerRange ComputedColumns(const ExpertArgs& args, int slot) {
  const int32_t cols = args.bank.down.cols;
  if (slot < args.bank.staging.first_slot) return {0, cols};
  const InnerRange& inner = args.bank.staged_inner;
  return {inner.begin, inner.end < cols ? inner.end : cols};
}
// Of a matrix in tiles that has `tiles`.
__device__ __forceinline__ DownPart CutDownTiles(const ExpertArgs& args, const TileGeometry& tiles, int tile,
                                                 int slot) {
  const DeviceMatrix& down = args.bank.down;
  const InnerRange columns = ComputedColumns(args, slot);
  const int first = columns.begin / tiles.chunk_cols;
  DownPart part{down, args.hidden};
  part.h.data += columns.begin;
  part.h.sums += columns.begin / 16;
  part.w.cols = columns.end - columns.begin;
  part.w.rows -= tile * kTileRows;
  part.w.chunks = (columns.end + tiles.chunk_cols - 1) / tiles.chunk_cols - first;
  part.w.data = SlotData(down, args.bank.staging.down, args.bank, slot) +
                (int64_t{tile} * down.chunks + first) * tiles.chunk_bytes;
  return part;
}
__device__ __forceinline__ DownPart CutDown(const ExpertArgs& args, int tile, int slot) {
  const DeviceMatrix& down = args.bank.down;
  if (down.layout == MatrixLayout::kTiles) return CutDownTiles(args, Tiles(down.format), tile, slot);
  const InnerRange columns = ComputedColumns(args, slot);
  DownPart part{down, args.hidden};
  part.h.data += columns.begin;
  part.h.sums += columns.begin / 16;
  part.w.cols = columns.end - columns.begin;
  part.w.rows -= tile * kTileRows;
  part.w.data = SlotData(down, args.bank.staging.down, args.bank, slot) + int64_t{tile} * kTileRows * down.row_bytes +
                down.row_bytes * columns.begin / down.cols;
  return part;
}
__device__ __forceinline__ float FactorOf(const float* factors, int expert) {
  return factors == nullptr ? 1.0f : factors[expert];
}

template <typename Format, int kN, int kTerms>
__global__ void __launch_bounds__(kThreads, MinBlocks<Format>(kN)) Fc1Kernel(ExpertArgs args) {
  using Sums = TileSums<kN, kTerms>;
  __shared__ float gate_sums[Sums::Floats(kWarps)], up_sums[Sums::Floats(kWarps)];
  __shared__ float norms[kMaxStepRows];
  __shared__ typename Format::Tables tables;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = static_cast<int>(blockIdx.x), index = static_cast<int>(blockIdx.y);
  tables.Fill(args.books.iq3xxs_grid);
  LetNextStart();
  AwaitPrevious();
  // All three at once: the table has room for every group that there can be.
  const int rows = *args.rows, groups = args.all_rows ? 1 : *args.routes.group_count;
  const ExpertGroup group = GroupOf(args, index, rows);
  if (index >= groups) return;
  const DeviceMatrix &gate = args.bank.gate, &up = args.bank.up;
  const StagingBank& staging = args.bank.staging;
  const InnerRange& inner = args.bank.staged_inner;
  if (group.slot >= staging.first_slot && (tile * kTileRows < inner.begin || tile * kTileRows >= inner.end)) return;
  const uint8_t* const gate_data = SlotData(gate, staging.gate, args.bank, group.slot);
  const uint8_t* const up_data = SlotData(up, staging.up, args.bank, group.slot);
  TileWork<Format, kN> gate_work, up_work;
  for (int first = 0; first < group.count; first += Sums::kRows) {
    gate_work.Prefetch(gate, gate_data, tile, warp, lane);
    if constexpr (kLoadsAhead<Format>) up_work.Prefetch(up, up_data, tile, warp, lane);
    if (first == 0) {
      for (int m = warp; m < rows; m += kWarps) {
        const float scale = RowScale(NormOf(args.x), m, lane);
        if (lane == 0) norms[m] = scale;
      }
      __syncthreads();
    }
    const auto x = PointColumns<kN, kTerms>(args.x.terms, lane, [&](int i) {
      return i < Sums::kRows && first + i < group.count ? RouteOf(args, group, first + i) / args.used : -1;
    });
    float acc[kN][4] = {}, up_acc[kN][4] = {};
    gate_work.Run(gate, gate_data, tile, warp, kWarps, tables, args.books, x, lane, acc);
    if constexpr (!kLoadsAhead<Format>) up_work.Prefetch(up, up_data, tile, warp, lane);
    up_work.Run(up, up_data, tile, warp, kWarps, tables, args.books, x, lane, up_acc);
    Sums::Store(acc, warp, lane, gate_sums);
    Sums::Store(up_acc, warp, lane, up_sums);
    __syncthreads();
    const int r = static_cast<int>(threadIdx.x) % kTileRows, column = tile * kTileRows + r;
    for (int local = static_cast<int>(threadIdx.x) / kTileRows; local < (Sums::kRows + 1) / 2 * 2;
         local += kThreads / kTileRows) {
      const bool have = local < Sums::kRows && first + local < group.count;
      const int route = have ? RouteOf(args, group, first + local) : 0;
      float h = 0;
      if (have && column < gate.rows) {
        const float norm = norms[route / args.used];
        float g = Sums::Read(gate_sums, 0, kWarps, local, r) * norm * gate.scale *
                  FactorOf(args.bank.gate_scale, group.expert);
        float u =
            Sums::Read(up_sums, 0, kWarps, local, r) * norm * up.scale * FactorOf(args.bank.up_scale, group.expert);
        if (args.bank.gate_bias != nullptr) g += args.bank.gate_bias[int64_t{group.expert} * gate.rows + column];
        if (args.bank.up_bias != nullptr) u += args.bank.up_bias[int64_t{group.expert} * gate.rows + column];
        h = Activate(args, g, u);
      }
      WriteTerms(args.hidden, route, column, h, have);
    }
    __syncthreads();
  }
}

// The scale and the bias of one result of `down`.
__device__ __forceinline__ float FinishDown(const ExpertArgs& args, int slot, int expert, int column, float sum) {
  const DeviceMatrix& down = args.bank.down;
  float out = sum * down.scale * FactorOf(args.bank.down_scale, expert);
  const bool bias = slot < args.bank.staging.first_slot || args.bank.staged_inner.begin == 0;
  if (args.bank.down_bias != nullptr && bias) out += args.bank.down_bias[int64_t{expert} * down.rows + column];
  return out;
}

// Four tiles a block, two warps a tile. The columns of a tile fall into kWarps classes by chunk, whose sums are added
// in order.
inline constexpr int kFc2Tiles = kWarps / 2;
inline constexpr int kFc2Classes = kWarps;

// The accumulators of a pass's rows, [rows][16].
template <int kTerms>
__device__ __forceinline__ void StoreRows(float (&acc)[1][4], int lane, float* sums) {
  const int g = lane / 4, t = lane % 4;
  float top = acc[0][0] + acc[0][1], bottom = acc[0][2] + acc[0][3];
  if constexpr (TermColumns(kTerms) == 4) {
    top += __shfl_xor_sync(0xFFFFFFFFu, top, 1);
    bottom += __shfl_xor_sync(0xFFFFFFFFu, bottom, 1);
    if (t % 2 != 0) return;
  }
  const int row = 2 * t / TermColumns(kTerms);
  sums[row * kTileRows + g] = top;
  sums[row * kTileRows + g + 8] = bottom;
}

// A warp's classes of one tile of `down`. sums: [kFc2Classes][stride].
template <typename Format, int kTerms>
__device__ __forceinline__ void MultiplyClasses(const DownPart& part, int half, const typename Format::Tables& tables,
                                                const Codebooks& books, const ColumnPointers<1>& h, int lane,
                                                float* sums, int stride) {
  constexpr int kOwn = kFc2Classes / 2;
  TileWork<Format, 1> work[kOwn];
  if constexpr (kLoadsAhead<Format>) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) work[i].Prefetch(part.w, part.w.data, 0, half + 2 * i, lane);
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    float acc[1][4] = {};
    if constexpr (!kLoadsAhead<Format>) work[i].Prefetch(part.w, part.w.data, 0, half + 2 * i, lane);
    work[i].Run(part.w, part.w.data, 0, half + 2 * i, kFc2Classes, tables, books, h, lane, acc);
    StoreRows<kTerms>(acc, lane, sums + (half + 2 * i) * stride);
  }
}

template <typename Format, int kTerms>
__global__ void __launch_bounds__(kThreads, kLoadsAhead<Format> ? 2 : 1) Fc2Kernel(ExpertArgs args) {
  constexpr int kRows = RowsPerN8(kTerms);
  __shared__ float sums[kFc2Tiles][kFc2Classes][kRows * kTileRows];
  __shared__ typename Format::Tables tables;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_tile = static_cast<int>(blockIdx.x) * kFc2Tiles, index = static_cast<int>(blockIdx.y);
  tables.Fill(args.books.iq3xxs_grid);
  LetNextStart();
  AwaitPrevious();
  const int rows = *args.rows;
  const int groups = args.all_rows ? 1 : *args.routes.group_count;
  ExpertGroup group = GroupOf(args, index, rows);
  // Without hits the first block still completes the tiles.
  if (index >= groups && index > 0) return;
  if (groups == 0) group = ExpertGroup{};
  __syncthreads();
  const DeviceMatrix& down = args.bank.down;
  const int tile = first_tile + warp / 2;
  for (int first = 0; first < group.count; first += kRows) {
    if (tile < down.tiles()) {
      const DownPart part = CutDown(args, tile, group.slot);
      const auto h = PointColumns<1, kTerms>(part.h, lane, [&](int i) {
        return i < kRows && first + i < group.count ? RouteOf(args, group, first + i) : -1;
      });
      MultiplyClasses<Format, kTerms>(part, warp % 2, tables, args.books, h, lane, sums[warp / 2][0],
                                      kRows * kTileRows);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kFc2Tiles * kRows * kTileRows; i += kThreads) {
      const int own = i / (kRows * kTileRows), in_tile = i % (kRows * kTileRows), local = in_tile / kTileRows;
      const int column = (first_tile + own) * kTileRows + in_tile % kTileRows;
      if (first + local >= group.count || column >= down.rows) continue;
      float out = 0;
      for (int c = 0; c < kFc2Classes; ++c) out += sums[own][c][in_tile];
      args.partial[int64_t{RouteOf(args, group, first + local)} * args.x.hidden + column] =
          FinishDown(args, group.slot, group.expert, column, out);
    }
    __syncthreads();
  }
  if (!ArriveLast(&args.tile_arrivals[blockIdx.x], static_cast<uint32_t>(groups > 0 ? groups : 1))) return;
  CombineColumns<kThreads, kFc2Tiles * kTileRows>(args, first_tile * kTileRows, 0, rows);
}

inline uint64_t Bytes(const DeviceMatrix& w) { return DeviceMatrixBytes(w.format, w.rows, w.cols, w.row_bytes); }

template <typename Format, int kN, int kTerms>
cudaError_t LaunchFc1As(const ExpertArgs& args, const cuda::LaunchQueue& queue) {
  const auto groups = static_cast<unsigned>(args.max_groups);
  return cuda::Launch(
      queue, {.name = "experts fc1", .bytes = groups * (Bytes(args.bank.gate) + Bytes(args.bank.up))},
      {.grid = dim3(static_cast<unsigned>(args.bank.gate.tiles()), groups), .block = dim3(kThreads), .overlap = true},
      Fc1Kernel<Format, kN, kTerms>, args);
}

template <typename Format, int kTerms>
cudaError_t LaunchFc2As(const ExpertArgs& args, const cuda::LaunchQueue& queue) {
  const auto groups = static_cast<unsigned>(args.max_groups);
  const auto blocks = static_cast<unsigned>((args.bank.down.tiles() + kFc2Tiles - 1) / kFc2Tiles);
  return cuda::Launch(queue, {.name = "experts fc2", .bytes = groups * Bytes(args.bank.down)},
                      {.grid = dim3(blocks, groups), .block = dim3(kThreads), .overlap = true},
                      Fc2Kernel<Format, kTerms>, args);
}

}  // namespace experts
}  // namespace bellhop::kernels
