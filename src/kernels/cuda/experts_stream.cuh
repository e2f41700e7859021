// Experts of a decode step that lie in device memory, in a format with kernels of its own: fc1 for any rows, fc2 for
// two and more (the kernels, for the sources that instantiate them). Few rows choose the same expert, so nearly all
// weights are read and decoded for a row or two, and what counts is that their stream never stops.
#pragma once

#include "kernels/cuda/expert_stream.cuh"

namespace bellhop::kernels {
namespace expert_stream {

// fc1: a block's warps share a unit, one tile of gate and of up, by the classes of its chunks: two a warp.
inline constexpr int kFc1Classes = 2 * kWarps;

template <typename Format>
struct Fc1Work {
  static constexpr int kBytes = Tiles(Format::kFormat).chunk_bytes;
  int first_chunk, chunk_count;  // of the warp
  const uint8_t* tiles[2] = {};  // of gate and up, the warp's chunks of tile 0
  bool staged = false;

  __device__ __forceinline__ void TakeGroup(const ExpertArgs& args, const ExpertGroup& group) {
    const ExpertBank& bank = args.bank;
    staged = group.slot >= bank.staging.first_slot;
    tiles[0] = experts::SlotData(bank.gate, bank.staging.gate, bank, group.slot) + first_chunk * kBytes;
    tiles[1] = experts::SlotData(bank.up, bank.staging.up, bank, group.slot) + first_chunk * kBytes;
  }
  __device__ __forceinline__ bool TakeUnit(const ExpertArgs& args, int tile) const {
    const InnerRange& inner = args.bank.staged_inner;
    return !staged || (tile * kTileRows >= inner.begin && tile * kTileRows < inner.end);
  }
  __device__ __forceinline__ const uint8_t* Tile(const ExpertArgs& args, int m, int tile) const {
    return tiles[m] + int64_t{tile} * args.bank.gate.chunks * kBytes;
  }
};

template <int kRows>
struct Fc1Shared {
  float sums[2][2][kWarps][kRows][kTileRows];  // two passes take turns; [gate, up][warp]
  float norms[2][kMaxStepRows];                // two groups take turns; of the group's rows
};

// The results of a pass: sixteen lanes a row. Whole warps go through.
template <int kRows>
__device__ __forceinline__ void FinishFc1(const ExpertArgs& args, const Groups& groups, const ExpertGroup& group,
                                          int tile, int first, float result, const float* norms,
                                          const float (&sums)[2][kWarps][kRows][kTileRows], int thread) {
  const int local = thread / kTileRows, r = thread % kTileRows, column = tile * kTileRows + r;
  const ExpertBank& bank = args.bank;
  const bool have = local < kRows && first + local < group.count;
  const int route = have ? RouteAt(args, groups, group, first + local) : 0;
  float h = 0;
  if (have && column < bank.gate.rows) {
    float out[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const float* const factors = m == 0 ? bank.gate_scale : bank.up_scale;
      const float* const biases = m == 0 ? bank.gate_bias : bank.up_bias;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[m][w][local][r];
      out[m] = sum * result * norms[first + local] * (m == 0 ? bank.gate.scale : bank.up.scale) *
               experts::FactorOf(factors, group.expert);
      if (biases != nullptr) out[m] += biases[int64_t{group.expert} * bank.gate.rows + column];
    }
    h = Activate(args, out[0], out[1]);
  }
  WriteTerms(args.hidden, route, column, h, have);
}

template <typename Format, int kTerms, bool kOneRow>
__global__ void __launch_bounds__(kThreads, kBlocks<Format>) Fc1Kernel(const __grid_constant__ ExpertArgs args) {
  using Few = FewRows<Format, kTerms>;
  using Many = ManyRows<Format, kTerms>;
  using Codes = TileCodes<Format>;
  using Stream = WeightStream<Format, kTerms, Fc1Work<Format>>;
  constexpr int kRows = kOneRow ? Few::kRows : Many::kRows;
  __shared__ alignas(128) uint8_t rings[kWarps][Stream::kRingBytes];
  __shared__ Fc1Shared<kRows> shared;
  __shared__ typename Codes::Tables tables;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  tables.Fill(args.books.iq3xxs_grid);
  __syncthreads();
  LetNextStart();
  AwaitPrevious();
  const Groups groups = FindGroups(args, kOneRow);
  const int tiles = args.bank.gate.tiles(), chunks = args.bank.gate.chunks;
  const int units = groups.count * tiles, block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int first_unit = ClassBegin(block, blocks, units);
  const UnitSpan span = {tiles, first_unit, ClassBegin(block + 1, blocks, units) - first_unit, 1};
  const int begin = ClassBegin(2 * warp, kFc1Classes, chunks), middle = ClassBegin(2 * warp + 1, kFc1Classes, chunks),
            end = ClassBegin(2 * warp + 2, kFc1Classes, chunks);
  const Fc1Work<Format> work = {begin, end - begin};
  Stream stream(args, groups, span, work, rings[warp], lane);
  int turn = 0, known = -1, group_turn = 0;  // of passes; the group that `norms` are of; of groups
  for (UnitCursor<Fc1Work<Format>> at(args, groups, span, work); at.more(); at.Next()) {
    const ExpertGroup& group = at.group;
    if (at.index() != known) {
      known = at.index();
      group_turn ^= 1;
      for (int i = warp; i < group.count; i += kWarps) {
        const int m = RouteAt(args, groups, group, i) / args.used;
        const float scale = RowScale(NormOf(args.x), m, lane);
        if (lane == 0) shared.norms[group_turn][i] = scale;
      }
    }
    const auto pass = [&]<typename Shape>(int first) {
      const LanePointers x = PointLane<Shape>(args.x.terms, lane, [&](int i) {
        return first + i < group.count ? RouteAt(args, groups, group, first + i) / args.used : -1;
      });
      float sums[2][2];
      MultiplyPair<Shape>(&stream, x, tables, begin, middle, end, lane, sums);
      const int row = RowOfLane<Shape>(lane);
      if (row >= 0) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            shared.sums[turn][m][warp][row][lane / 4 + 8 * r] = sums[m][r];
          }
        }
      }
      __syncthreads();
      // The others go on. The sums are used again two passes later, when all have been at the barrier between.
      const int thread = (warp + turn * (kWarps / 2)) % kWarps * 32 + lane;
      if (thread / 32 * 2 < Shape::kRows) {
        FinishFc1<kRows>(args, groups, group, at.unit(), first, Codes::kResult, shared.norms[group_turn],
                         shared.sums[turn], thread);
      }
      turn ^= 1;
    };
    if (kOneRow || group.count <= Few::kRows) {
      pass.template operator()<Few>(0);
    } else if constexpr (!kOneRow) {
      for (int first = 0; first < group.count; first += Many::kRows) pass.template operator()<Many>(first);
    }
  }
}

// fc2: a warp has a unit, two neighbours of down, for itself. The chunks are two classes.
template <typename Format>
struct Fc2Work {
  static constexpr int kBytes = Tiles(Format::kFormat).chunk_bytes;
  int chunk_count = 0;
  const uint8_t* tiles = nullptr;  // tile 0, cut to the columns that the group computes
  TermRows h;

  __device__ __forceinline__ void TakeGroup(const ExpertArgs& args, const ExpertGroup& group) {
    const experts::DownPart part = experts::CutDownTiles(args, Tiles(Format::kFormat), 0, group.slot);
    tiles = part.w.data;
    chunk_count = part.w.chunks;
    h = part.h;
  }
  __device__ __forceinline__ bool TakeUnit(const ExpertArgs&, int) const { return true; }
  // The neighbour of the last tile of an odd number is that tile; nobody takes its results.
  __device__ __forceinline__ const uint8_t* Tile(const ExpertArgs& args, int m, int pair) const {
    const DeviceMatrix& down = args.bank.down;
    const int tile = 2 * pair + m < down.tiles() ? 2 * pair + m : 2 * pair;
    return tiles + int64_t{tile} * down.chunks * kBytes;
  }
};

template <typename Format, int kTerms>
__global__ void __launch_bounds__(kThreads, kBlocks<Format>) Fc2Kernel(const __grid_constant__ ExpertArgs args) {
  using Few = FewRows<Format, kTerms>;
  using Many = ManyRows<Format, kTerms>;
  using Codes = TileCodes<Format>;
  using Stream = WeightStream<Format, kTerms, Fc2Work<Format>>;
  __shared__ alignas(128) uint8_t rings[kWarps][Stream::kRingBytes];
  __shared__ typename Codes::Tables tables;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  tables.Fill(args.books.iq3xxs_grid);
  __syncthreads();
  LetNextStart();
  AwaitPrevious();
  const Groups groups = FindGroups(args, false);
  const DeviceMatrix& down = args.bank.down;
  const int pairs = (down.tiles() + 1) / 2, units = groups.count * pairs;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int first_unit = ClassBegin(block, blocks, units) + warp;
  const UnitSpan span = {pairs, first_unit, (ClassBegin(block + 1, blocks, units) - first_unit + kWarps - 1) / kWarps,
                         kWarps};
  Stream stream(args, groups, span, Fc2Work<Format>(), rings[warp], lane);
  for (UnitCursor<Fc2Work<Format>> at(args, groups, span, Fc2Work<Format>()); at.more(); at.Next()) {
    const ExpertGroup& group = at.group;
    const auto pass = [&]<typename Shape>(int first) {
      const LanePointers x = PointLane<Shape>(at.work.h, lane, [&](int i) {
        return first + i < group.count ? RouteAt(args, groups, group, first + i) : -1;
      });
      const int chunks = at.work.chunk_count;
      float sums[2][2];
      MultiplyPair<Shape>(&stream, x, tables, 0, ClassBegin(1, 2, chunks), chunks, lane, sums);
      const int row = RowOfLane<Shape>(lane);
      if (row < 0 || first + row >= group.count) return;
      float* const to = args.partial + int64_t{RouteAt(args, groups, group, first + row)} * args.x.hidden;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 2 * at.unit() * kTileRows + 8 * i + lane / 4;
        const float sum = sums[i / 2][i % 2] * Codes::kResult;
        if (column < down.rows) to[column] = experts::FinishDown(args, group.slot, group.expert, column, sum);
      }
    };
    if (group.count <= Few::kRows) {
      pass.template operator()<Few>(0);
    } else {
      for (int first = 0; first < group.count; first += Many::kRows) pass.template operator()<Many>(first);
    }
  }
}

// What fc2 has left in memory, added up: a block has 64 columns of four rows. Blocks may wait for the CPU, for whose
// answer no kernel behind this one and no other block is needed: it is of no account how many of them fit on a device.
inline constexpr int kCombineColumns = 64, kCombineRows = 4, kCombineThreads = kCombineColumns * kCombineRows;

inline __global__ void __launch_bounds__(kCombineThreads) CombineKernel(const __grid_constant__ ExpertArgs args) {
  LetNextStart();
  AwaitPrevious();
  const int rows = *args.rows, first = static_cast<int>(blockIdx.y) * kCombineRows;
  experts::CombineColumns<kCombineThreads, kCombineColumns>(args, static_cast<int>(blockIdx.x) * kCombineColumns, first,
                                                            rows < first + kCombineRows ? rows : first + kCombineRows);
}

inline cudaError_t Multiprocessors(int* count) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  return error != cudaSuccess ? error : cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}
template <typename Format>
dim3 Grid(int multiprocessors, int64_t units) {
  const int64_t blocks = int64_t{multiprocessors} * kBlocks<Format>;
  return dim3(static_cast<unsigned>(units < blocks ? units : blocks));
}

template <typename Format, int kTerms, bool kOneRow>
cudaError_t LaunchFc1As(const ExpertArgs& args, const cuda::LaunchQueue& queue) {
  const DeviceMatrix &gate = args.bank.gate, &up = args.bank.up;
  const int groups = args.all_rows ? 1 : kOneRow ? args.used : args.max_groups;
  int multiprocessors = 0;
  const cudaError_t error = Multiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  return cuda::Launch(
      queue,
      {.name = "experts fc1", .bytes = static_cast<uint64_t>(groups) * (experts::Bytes(gate) + experts::Bytes(up))},
      {.grid = Grid<Format>(multiprocessors, int64_t{groups} * gate.tiles()), .block = dim3(kThreads), .overlap = true},
      Fc1Kernel<Format, kTerms, kOneRow>, args);
}

template <typename Format, int kTerms>
cudaError_t LaunchFc2As(const ExpertArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  const DeviceMatrix& down = args.bank.down;
  const int groups = args.all_rows ? 1 : args.max_groups, hidden = args.x.hidden;
  int multiprocessors = 0;
  cudaError_t error = Multiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  const int64_t pairs = (down.tiles() + 1) / 2;
  error =
      cuda::Launch(queue, {.name = "experts fc2", .bytes = static_cast<uint64_t>(groups) * experts::Bytes(down)},
                   {.grid = Grid<Format>(multiprocessors, groups * pairs), .block = dim3(kThreads), .overlap = true},
                   Fc2Kernel<Format, kTerms>, args);
  if (error != cudaSuccess) return error;
  return cuda::Launch(queue,
                      {.name = "experts combine",
                       .bytes = sizeof(float) * static_cast<uint64_t>(bucket) * static_cast<uint64_t>(hidden) *
                                static_cast<uint64_t>(args.used + 2)},
                      {.grid = dim3(static_cast<unsigned>((hidden + kCombineColumns - 1) / kCombineColumns),
                                    static_cast<unsigned>((bucket + kCombineRows - 1) / kCombineRows)),
                       .block = dim3(kCombineThreads),
                       .overlap = true},
                      CombineKernel, args);
}

}  // namespace expert_stream
}  // namespace bellhop::kernels
