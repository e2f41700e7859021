// Weights in tiles times many rows of bf16: a warp owns two tiles of 16 output rows (two of one matrix, or gate and up)
// and all 64 rows of its block; it reads its weights from global memory into registers and decodes them once. Rows come
// to shared memory through a ring of stages. Columns are added in one order, so a result depends on its row alone. The
// kernel, for the sources that instantiate it.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/prompt_product.cuh"
#include "kernels/cuda/tile_formats.cuh"

namespace bellhop::kernels {
namespace prompt_gemm {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = kPromptTileRows;
constexpr int kN = kRows / 8;    // n8 operands
constexpr int kStageGroups = 4;  // of 32 columns
constexpr int kStages = 3;
// A group's rows lie side by side, 64 bytes each, their four pieces permuted so that no two of eight rows share banks.
// Groups are half a line apart: the copies of a row do not meet in the banks.
constexpr int kGroupBytes = kRows * 64 + 64;
constexpr int kSumBytes = kRows * 32;  // two sums a group
constexpr int PieceAt(int row, int piece) { return row * 64 + (piece ^ row / 2 % 4) * 16; }
template <typename Format>
constexpr int kStageBytes = kStageGroups* kGroupBytes + (Format::kMins ? kSumBytes : 0);

// How the chunks of a tile come to registers, one after the other. AnyProduct has its own.
template <typename Format>
class ChunkReader {
 public:
  static __device__ __forceinline__ int Chunks(const DeviceMatrix& w) { return w.chunks; }
  __device__ __forceinline__ ChunkReader(const DeviceMatrix& w, const uint8_t* data, int tile)
      : at_(data + int64_t{tile} * w.chunks * kBytes) {}
  __device__ __forceinline__ typename Format::Chunk Next(const Codebooks&, const typename Format::Tables&, int lane) {
    const auto chunk = Format::Load(at_, lane);
    at_ += kBytes;
    return chunk;
  }

 private:
  static constexpr int kBytes = Tiles(Format::kFormat).chunk_bytes;
  const uint8_t* at_;
};

// Three blocks fit a multiprocessor where the registers of two chunks and their fragments allow it.
template <typename Format>
constexpr int kBlocks = sizeof(typename Format::Chunk) <= (Format::kTerms == 1 ? 96 : 32) ? 3 : 2;
// Formats whose products need no scale are added where they are.
template <typename Format>
constexpr bool kUnscaled = Format::kGroups == 1;

// Blocks that share a tile of the list.
__host__ __device__ inline int TileParts(const PromptProduct& p) { return (p.tile_rows + kRows - 1) / kRows; }

struct BlockRows {
  int32_t from[kRows];  // rows of x; negative: none
  int32_t to[kRows];    // rows of the result
};

template <typename Format>
class RowStages {
 public:
  __device__ __forceinline__ RowStages(const TermRows& x, const BlockRows& rows, int count, uint8_t* shared)
      : x_(x), rows_(rows), count_(count), shared_(shared) {
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) Start(s);
  }
  // The next stage, readable by all threads; they are through with the one before.
  __device__ __forceinline__ const uint8_t* Next() {
    AwaitCopies<kStages - 2>();
    __syncthreads();
    Start(next_ + kStages - 1);
    return shared_ + next_++ % kStages * kStageBytes<Format>;
  }

 private:
  __device__ __forceinline__ void Start(int stage) {
    constexpr int kPieces = kStageGroups * 4, kAtOnce = kThreads / kPieces;
    if (stage < count_) {
      uint8_t* const to = shared_ + stage % kStages * kStageBytes<Format>;
      const int thread = static_cast<int>(threadIdx.x), piece = thread % kPieces;
      const uint16_t* const from = x_.data + stage * kStageGroups * kTermGroup + piece * 8;
      uint8_t* const at = to + piece / 4 * kGroupBytes;
#pragma unroll
      for (int i = 0; i < kRows / kAtOnce; ++i) {
        const int n = thread / kPieces + i * kAtOnce, row = rows_.from[n];
        CopyAsync16(at + PieceAt(n, piece % 4), from + int64_t{row < 0 ? 0 : row} * x_.stride, row >= 0);
      }
      if constexpr (Format::kMins) {
        static_assert(kThreads == 2 * kRows);
        const int n = thread / 2, row = rows_.from[n];
        CopyAsync16(to + kStageGroups * kGroupBytes + thread * 16,
                    x_.sums + int64_t{row < 0 ? 0 : row} * (x_.stride / 16) + stage * 2 * kStageGroups + thread % 2 * 4,
                    row >= 0);
      }
    }
    CommitCopies();
  }

  const TermRows& x_;
  const BlockRows& rows_;
  const int count_;
  uint8_t* const shared_;
  int next_ = 0;
};

// A group of 32 columns of one tile times eight rows. sums: of the rows, for formats with minima.
template <typename Format>
__device__ __forceinline__ void MultiplyRows(const GroupFragment<Format::kTerms>& f, const uint32_t (&b)[4],
                                             const float (&sums)[2], float (&acc)[4]) {
  constexpr int kParts = Format::kOneScale ? 1 : 2;
  auto multiply = [&](int half, float(&d)[4]) {
#pragma unroll
    for (int term = 0; term < Format::kTerms; ++term) {
      MmaBf16(d, f.a[term][half], b[2 * half], b[2 * half + 1]);
    }
  };
  if constexpr (kUnscaled<Format>) {
    multiply(0, acc);
    multiply(1, acc);
  } else {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float d[4] = {0, 0, 0, 0};
      multiply(part, d);
      if constexpr (kParts == 1) multiply(1, d);
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[i] = __fmaf_rn(f.scale[part][i / 2], d[i], acc[i]);
    }
  }
  if constexpr (Format::kMins) {
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[i] = __fmaf_rn(-f.min[i / 2], sums[i % 2], acc[i]);
  }
}

// Both tiles times all rows.
template <typename Format>
__device__ __forceinline__ void MultiplyGroup(const GroupFragment<Format::kTerms> (&f)[2], const uint8_t* stage,
                                              int group, int lane, float (&acc)[2][kN][4]) {
  const int t = lane % 4;
  // Matrices of eight rows and a piece each: k 0 .. 7 and 8 .. 15 of both halves.
  const auto rows = static_cast<uint32_t>(__cvta_generic_to_shared(stage + group * kGroupBytes)) +
                    static_cast<uint32_t>(PieceAt(lane % 8, lane / 8));
#pragma unroll
  for (int j = 0; j < kN; ++j) {
    uint32_t b[4];
    LoadMatrices(b, rows + j * 8 * 64);
    float sums[2] = {0, 0};
    if constexpr (Format::kMins) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const auto pair =
            *reinterpret_cast<const float2*>(stage + kStageGroups * kGroupBytes + (8 * j + 2 * t + c) * 32 + group * 8);
        sums[c] = pair.x + pair.y;
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) MultiplyRows<Format>(f[k], b, sums, acc[k][j]);
  }
}

// `readers`: the warp's two tiles.
template <typename Format>
__device__ __forceinline__ void MultiplyAll(const PromptProduct& p, ChunkReader<Format> (&readers)[2], bool active,
                                            const BlockRows& rows, const typename Format::Tables& tables,
                                            uint8_t* shared, int lane, float (&acc)[2][kN][4]) {
  constexpr int kGroups = Format::kGroups, kStep = kGroups > kStageGroups ? kGroups : kStageGroups;
  const int groups = ChunkReader<Format>::Chunks(p.w) * kGroups;
  RowStages<Format> stages(p.x, rows, (groups + kStageGroups - 1) / kStageGroups, shared);
  typename Format::Chunk chunk[2];
  auto load = [&] {
#pragma unroll
    for (int k = 0; k < 2; ++k) chunk[k] = readers[k].Next(p.books, tables, lane);
  };
  if (active) load();
  for (int base = 0; base < groups; base += kStep) {
    const uint8_t* stage = nullptr;
#pragma unroll
    for (int u = 0; u < kStep; ++u) {
      if (u % kStageGroups == 0) stage = stages.Next();
      if (!active || base + u >= groups) continue;
      GroupFragment<Format::kTerms> f[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) Format::Expand(chunk[k], u % kGroups, lane % 4, tables, &f[k]);
      // The next chunk comes while the last group of this one is multiplied.
      if (u % kGroups == kGroups - 1 && base + u + 1 < groups) load();
      MultiplyGroup<Format>(f, stage, u % kStageGroups, lane, acc);
    }
  }
}

// The block's sums over its stages: [kRows][kSumStride], the two tiles of each warp side by side.
constexpr int kBlockColumns = 2 * kWarps * kTileRows;
constexpr int kSumStride = kBlockColumns + 4;  // rows 2t of a warp's stores do not meet in the banks

__device__ __forceinline__ void ShareSums(const float (&acc)[2][kN][4], int warp, int lane, float* sums) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[(8 * j + 2 * t + i % 2) * kSumStride + (2 * warp + k) * kTileRows + g + i / 2 * 8] = acc[k][j][i];
      }
    }
  }
}

// Results of one matrix, a column a thread. first: the block's first column.
inline __device__ void StoreResults(const PromptProduct& p, int first, const BlockRows& rows, int expert,
                                    const float* sums) {
  static_assert(kBlockColumns == kThreads);
  const int column = first + static_cast<int>(threadIdx.x);
  if (column >= p.w.rows) return;
  const float scale = p.w.scale * Of(p.w_factor, expert, 1);
  const float bias = Of(p.w_bias, int64_t{expert} * p.w.rows + column, 0);
#pragma unroll 4
  for (int n = 0; n < kRows; ++n) {
    const int row = rows.to[n];
    if (row < 0) continue;
    float value = sums[n * kSumStride + threadIdx.x] * scale + bias;
    float* const to = p.y + row * p.y_stride + column;
    if (p.adds) value = *to + p.port_scale * (value * Of(p.row_factors, row, 1));
    *to = value;
  }
}

// Activations of gate and up, four columns a thread, and zeros behind the last tile. first: the block's first column.
inline __device__ void StoreActivations(const PromptProduct& p, int first, const BlockRows& rows, int expert,
                                        const float* sums) {
  constexpr int kQuads = kBlockColumns / 2 / 4;
  const int thread = static_cast<int>(threadIdx.x), in_block = 4 * (thread % kQuads), column = first + in_block;
  const float gate_scale = p.w.scale * Of(p.w_factor, expert, 1), up_scale = p.up.scale * Of(p.up_factor, expert, 1);
  const bool exists = column / kTileRows < p.w.tiles();
  float gate_bias[4], up_bias[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t at = int64_t{expert} * p.w.rows + column + i;
    gate_bias[i] = column + i < p.w.rows ? Of(p.w_bias, at, 0) : 0;
    up_bias[i] = column + i < p.w.rows ? Of(p.up_bias, at, 0) : 0;
  }
  const float* const from = sums + in_block / kTileRows * 2 * kTileRows + in_block % kTileRows;
#pragma unroll 1
  for (int n = thread / kQuads; n < kRows; n += kThreads / kQuads) {
    const float4 gates = *reinterpret_cast<const float4*>(from + n * kSumStride);
    const float4 ups = *reinterpret_cast<const float4*>(from + n * kSumStride + kTileRows);
    const float gate[4] = {gates.x, gates.y, gates.z, gates.w}, up[4] = {ups.x, ups.y, ups.z, ups.w};
    float h[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      h[i] =
          column + i < p.w.rows ? Activate(p, gate[i] * gate_scale + gate_bias[i], up[i] * up_scale + up_bias[i]) : 0;
    }
    const __nv_bfloat162 low = __floats2bfloat162_rn(h[0], h[1]), high = __floats2bfloat162_rn(h[2], h[3]);
    float sum = __bfloat162float(low.x) + __bfloat162float(low.y) + __bfloat162float(high.x) + __bfloat162float(high.y);
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int64_t row = rows.to[n];
    if (row < 0 || !exists) continue;
    uint16_t* const to = p.hidden.data + row * p.hidden.stride;
    *reinterpret_cast<uint32_t*>(to + PromptPosition(column)) = Bits(low);
    *reinterpret_cast<uint32_t*>(to + PromptPosition(column + 2)) = Bits(high);
    if (column % 16 == 0) p.hidden.sums[row * (p.hidden.stride / 16) + column / 16] = sum;
  }
  if (blockIdx.y + 1 < gridDim.y) return;
  const int end = p.w.tiles() * kTileRows, count = p.hidden.stride - end;
  for (int i = thread; i < kRows * count; i += kThreads) {
    const int row = rows.to[i / count], behind = end + i % count;
    if (row < 0) continue;
    p.hidden.data[int64_t{row} * p.hidden.stride + PromptPosition(behind)] = 0;
    if (behind % 16 == 0) p.hidden.sums[int64_t{row} * (p.hidden.stride / 16) + behind / 16] = 0;
  }
}

// Grid: 64 rows of the tiles, output rows.
template <typename Format>
__global__ void __launch_bounds__(kThreads, kBlocks<Format>) PromptKernel(const __grid_constant__ PromptProduct p) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ BlockRows rows;
  __shared__ typename Format::Tables tables;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int index = static_cast<int>(blockIdx.x);
  tables.Fill(p.books.iq3xxs_grid);
  LetNextStart();
  AwaitPrevious();
  ExpertGroup group{0, 0, index * kRows, p.rows - index * kRows};
  if (p.tiles != nullptr) {
    const int parts = TileParts(p), tile = index / parts, from = index % parts * kRows;
    if (tile >= *p.tile_count) return;
    group = p.tiles[tile];
    if (group.slot < p.first_slot || group.slot >= p.end_slot || group.count <= from) return;
    group.first += from;
    group.count -= from;
  }
  if (thread < kRows) {
    const bool have = thread < group.count;
    const int place = group.first + thread;
    const int route = have && (p.gathers || p.scatters) ? p.order[place] : 0;
    rows.from[thread] = !have ? -1 : p.gathers ? route / p.used : place;
    rows.to[thread] = !have ? -1 : p.scatters ? route : place;
  }
  __syncthreads();

  const int first = static_cast<int>(blockIdx.y) * kWarps + warp, last = p.w.tiles() - 1;
  const int tile[2] = {p.activates ? first : 2 * first, p.activates ? first : 2 * first + 1};
  const bool active = tile[0] <= last;
  // Tiles that do not exist are read as the last one.
  auto reader = [&](int k) {
    const bool up = p.activates && k == 1;
    const DeviceMatrix& w = up ? p.up : p.w;
    return ChunkReader<Format>(w, SlotOf(p, w, up ? p.up_staged : p.w_staged, group.slot),
                               tile[k] < last ? tile[k] : last);
  };
  ChunkReader<Format> readers[2] = {reader(0), reader(1)};
  float acc[2][kN][4] = {};
  MultiplyAll<Format>(p, readers, active, rows, tables, shared, lane, acc);
  AwaitCopies<0>();
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(shared);
  static_assert(kRows * kSumStride * sizeof(float) <= kStages * kStageBytes<Format>);
  if (active) ShareSums(acc, warp, lane, sums);
  __syncthreads();
  const int first_tile = static_cast<int>(blockIdx.y) * (p.activates ? kWarps : 2 * kWarps);
  if (p.activates) {
    StoreActivations(p, first_tile * kTileRows, rows, group.expert, sums);
  } else {
    StoreResults(p, first_tile * kTileRows, rows, group.expert, sums);
  }
}

template <typename Format>
cudaError_t LaunchAs(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  constexpr int kShared = kStages * kStageBytes<Format>;
  const cudaError_t error =
      cudaFuncSetAttribute(PromptKernel<Format>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (error != cudaSuccess) return error;
  const int tiles_of_block = p.activates ? kWarps : 2 * kWarps;
  const auto blocks = static_cast<unsigned>((p.w.tiles() + tiles_of_block - 1) / tiles_of_block);
  const auto row_tiles =
      static_cast<unsigned>(p.tiles != nullptr ? p.max_tiles * TileParts(p) : (p.rows + kRows - 1) / kRows);
  return cuda::Launch(
      queue, CostOf(p),
      {.grid = dim3(row_tiles, blocks), .block = dim3(kThreads), .shared_bytes = kShared, .overlap = true},
      PromptKernel<Format>, p);
}

}  // namespace prompt_gemm
}  // namespace bellhop::kernels
