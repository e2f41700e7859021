#include "kernels/cuda/expert_fetch.h"

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/tile_pack.cuh"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kBlocks = 48;  // a third of them fills the link
constexpr int kStages = 2;
constexpr int64_t kStageBytes = 32 * 1024;
constexpr int kPiece = 16;

// How a matrix is cut: a unit is some chunks of the 16 rows of a tile. Chunks of a matrix without tiles are columns
// that are copied together.
struct MatrixPlan {
  DeviceMatrix w;
  int64_t offset = 0;       // in a slot
  int32_t chunk_bytes = 0;  // of a file row
  int32_t first_tile = 0, tiles = 0;
  int32_t first_chunk = 0, chunks = 0;
  int32_t part_chunks = 0, parts = 0;  // units of a tile
  bool whole_rows = false;             // a tile is one piece of memory
  __host__ __device__ int32_t units() const { return tiles * parts; }
};

struct FetchPlan {
  const FetchSource* sources;
  StagedMisses misses;
  StagingBank staging;
  MatrixPlan matrices[3];
  const int32_t* route_offsets;
  uint64_t* fetched;

  __device__ bool Reads(int32_t staged) const {
    if (route_offsets == nullptr) return true;
    const int32_t expert = misses.experts[staged];
    return route_offsets[expert] != route_offsets[expert + 1];
  }
};

struct Unit {
  const uint8_t* from = nullptr;  // of the first row
  uint8_t* matrix = nullptr;      // in the staging slot
  int32_t which = 0, tile = 0, rows = 0;
  int32_t first_chunk = 0, chunks = 0;
  int64_t bytes = 0;  // of a row
};

__device__ Unit UnitOf(const FetchPlan& plan, int index) {
  const MatrixPlan* const m = plan.matrices;
  const int per_expert = m[0].units() + m[1].units() + m[2].units();
  const int staged = index / per_expert;
  int in_expert = index % per_expert;
  Unit unit;
  while (in_expert >= m[unit.which].units()) in_expert -= m[unit.which++].units();
  const MatrixPlan& p = m[unit.which];
  unit.tile = p.first_tile + in_expert / p.parts;
  const int part = in_expert % p.parts;
  unit.rows = min(kTileRows, p.w.rows - unit.tile * kTileRows);
  unit.first_chunk = p.first_chunk + part * p.part_chunks;
  unit.chunks = min(p.part_chunks, p.first_chunk + p.chunks - unit.first_chunk);
  const int64_t begin = int64_t{unit.first_chunk} * p.chunk_bytes;
  unit.bytes = min(int64_t{unit.chunks} * p.chunk_bytes, p.w.row_bytes - begin);
  const FetchSource& source = plan.sources[plan.misses.experts[staged]];
  const uint8_t* const file = unit.which == 0 ? source.gate : unit.which == 1 ? source.up : source.down;
  unit.from = file + int64_t{unit.tile} * kTileRows * p.w.row_bytes + begin;
  unit.matrix = plan.staging.base + staged * plan.staging.slot_bytes + p.offset;
  return unit;
}

// Bytes behind the last multiple of a piece.
__device__ __forceinline__ int Shift(const uint8_t* p) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(p) % kPiece);
}
// Room for a row that begins anywhere in its first piece. An odd number of pieces, for the banks.
__host__ __device__ constexpr int64_t Pitch(int64_t bytes) { return ((bytes + 2 * kPiece - 2) / kPiece | 1) * kPiece; }

// Starts the copy of a unit's pieces to shared memory.
__device__ void StartLoad(const FetchPlan& plan, const Unit& unit, uint8_t* stage) {
  const MatrixPlan& p = plan.matrices[unit.which];
  const int segments = p.whole_rows ? 1 : unit.rows;
  const int64_t bytes = p.whole_rows ? unit.rows * p.w.row_bytes : unit.bytes, pitch = Pitch(bytes);
  const int pieces = static_cast<int>(pitch / kPiece);
  for (int i = static_cast<int>(threadIdx.x); i < segments * pieces; i += kThreads) {
    const int segment = i / pieces, piece = i % pieces;
    const uint8_t* const from = unit.from + segment * p.w.row_bytes;
    const int shift = Shift(from);
    if (piece * kPiece >= shift + bytes) continue;
    __pipeline_memcpy_async(stage + segment * pitch + piece * kPiece, from - shift + piece * kPiece, kPiece);
  }
}

// A row of a unit in shared memory.
__device__ __forceinline__ const uint8_t* StagedRow(const MatrixPlan& p, const Unit& unit, const uint8_t* stage,
                                                    int row) {
  if (p.whole_rows) return stage + Shift(unit.from) + row * p.w.row_bytes;
  return stage + row * Pitch(unit.bytes) + Shift(unit.from + row * p.w.row_bytes);
}

template <WeightFormat F>
__device__ __noinline__ void PackUnit(const MatrixPlan& p, const Unit& unit, const uint8_t* stage) {
  constexpr int kBytes = Tiles(F).chunk_bytes;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  auto row = [&](int i) {
    return tile_pack::Source{i < unit.rows ? StagedRow(p, unit, stage, i) : nullptr, unit.bytes};
  };
  uint8_t* const to = unit.matrix + (int64_t{unit.tile} * p.w.chunks + unit.first_chunk) * kBytes;
  for (int c = warp; c < unit.chunks; c += kWarps) tile_pack::PackTileChunk<F>(row, c, lane, to + int64_t{c} * kBytes);
}

__device__ void CopyUnit(const MatrixPlan& p, const Unit& unit, const uint8_t* stage) {
  for (int row = 0; row < unit.rows; ++row) {
    const uint8_t* const from = StagedRow(p, unit, stage, row);
    uint8_t* const to = unit.matrix + (int64_t{unit.tile} * kTileRows + row) * p.w.row_bytes +
                        int64_t{unit.first_chunk} * p.chunk_bytes;
    for (int64_t i = threadIdx.x; i < unit.bytes; i += kThreads) to[i] = from[i];
  }
}

__device__ void Unpack(const FetchPlan& plan, const Unit& unit, const uint8_t* stage) {
  const MatrixPlan& p = plan.matrices[unit.which];
  if (p.w.layout == MatrixLayout::kFile) return CopyUnit(p, unit, stage);
  switch (p.w.format) {
    case WeightFormat::kF32: return PackUnit<WeightFormat::kF32>(p, unit, stage);
    case WeightFormat::kF16: return PackUnit<WeightFormat::kF16>(p, unit, stage);
    case WeightFormat::kBF16: return PackUnit<WeightFormat::kBF16>(p, unit, stage);
    case WeightFormat::kQ4_0: return PackUnit<WeightFormat::kQ4_0>(p, unit, stage);
    case WeightFormat::kQ8_0: return PackUnit<WeightFormat::kQ8_0>(p, unit, stage);
    case WeightFormat::kMXFP4: return PackUnit<WeightFormat::kMXFP4>(p, unit, stage);
    case WeightFormat::kQ4K: return PackUnit<WeightFormat::kQ4K>(p, unit, stage);
    case WeightFormat::kQ6K: return PackUnit<WeightFormat::kQ6K>(p, unit, stage);
    case WeightFormat::kIQ3XXS: return PackUnit<WeightFormat::kIQ3XXS>(p, unit, stage);
    default: return;
  }
}

// While a block unpacks one unit, the bytes of its next one are on their way.
__global__ void __launch_bounds__(kThreads) FetchKernel(FetchPlan plan) {
  extern __shared__ __align__(kPiece) uint8_t stages[];
  LetNextStart();
  AwaitPrevious();
  const MatrixPlan* const m = plan.matrices;
  const int misses = *plan.misses.count, per_expert = m[0].units() + m[1].units() + m[2].units();
  if (plan.fetched != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    uint64_t read = 0;
    for (int i = 0; i < misses; ++i) read += plan.Reads(i) ? 1 : 0;
    cuda::AddToTotal(plan.fetched, read);
  }
  const int total = misses * per_expert, step = static_cast<int>(gridDim.x);
  // From `index` on, the block's first unit of an expert that is read.
  auto from = [&](int index) {
    while (index < total && !plan.Reads(index / per_expert)) index += step;
    return index;
  };
  int index = from(static_cast<int>(blockIdx.x));
  if (index >= total) return;
  Unit unit = UnitOf(plan, index), next;
  StartLoad(plan, unit, stages);
  __pipeline_commit();
  for (int stage = 0; index < total; stage ^= 1) {
    index = from(index + step);
    if (index < total) {
      next = UnitOf(plan, index);
      StartLoad(plan, next, stages + (stage ^ 1) * kStageBytes);
    }
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    Unpack(plan, unit, stages + stage * kStageBytes);
    __syncthreads();
    unit = next;
  }
}

// Rows [begin, end) of the columns [first, last). False: it cannot be cut so.
bool Cut(const DeviceMatrix& w, int64_t offset, int32_t begin, int32_t end, int32_t first, int32_t last,
         MatrixPlan* plan) {
  MatrixPlan& p = *plan;
  p.w = w;
  p.offset = offset;
  const TileGeometry tiles = Tiles(w.format);
  const bool packed = w.layout == MatrixLayout::kTiles;
  const int32_t chunk_cols = packed ? tiles.chunk_cols : InnerStep(w);
  if (chunk_cols == 0 || w.cols == 0 || (!packed && w.row_bytes * chunk_cols % w.cols != 0)) return false;
  p.chunk_bytes = packed ? tiles.chunk_bytes / kTileRows : static_cast<int32_t>(w.row_bytes * chunk_cols / w.cols);
  if (begin % kTileRows != 0 || first % chunk_cols != 0 || begin >= end || first >= last) return false;
  if ((end < w.rows && end % kTileRows != 0) || (last < w.cols && last % chunk_cols != 0)) return false;
  p.first_tile = begin / kTileRows;
  p.tiles = (end + kTileRows - 1) / kTileRows - p.first_tile;
  p.first_chunk = first / chunk_cols;
  p.chunks = (last + chunk_cols - 1) / chunk_cols - p.first_chunk;
  p.whole_rows = first == 0 && last == w.cols && Pitch(kTileRows * w.row_bytes) <= kStageBytes;
  p.part_chunks = p.chunks;
  if (!p.whole_rows) {
    int32_t most = p.chunks;
    while (most > 0 && kTileRows * Pitch(int64_t{most} * p.chunk_bytes) > kStageBytes) --most;
    if (most == 0) return false;
    const int32_t parts = (p.chunks + most - 1) / most;
    p.part_chunks = (p.chunks + parts - 1) / parts;
  }
  p.parts = (p.chunks + p.part_chunks - 1) / p.part_chunks;
  return true;
}

// Of one expert: read and written.
uint64_t Bytes(const MatrixPlan& p) {
  const auto cells = static_cast<uint64_t>(p.tiles) * static_cast<uint64_t>(p.chunks) * kTileRows;
  return 2 * cells * static_cast<uint64_t>(p.chunk_bytes);
}

bool CutAll(const FetchArgs& args, FetchPlan* plan) {
  const int32_t begin = args.inner.begin, end = std::min(args.inner.end, args.gate.rows);
  return Cut(args.gate, args.staging.gate, begin, end, 0, args.gate.cols, &plan->matrices[0]) &&
         Cut(args.up, args.staging.up, begin, end, 0, args.up.cols, &plan->matrices[1]) &&
         Cut(args.down, args.staging.down, 0, args.down.rows, begin, end, &plan->matrices[2]);
}

}  // namespace

bool CanFetch(const FetchArgs& args) {
  FetchPlan plan{};
  return CutAll(args, &plan);
}

cudaError_t LaunchExpertFetch(const FetchArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  FetchPlan plan{args.sources, args.misses, args.staging, {}, args.route_offsets, args.fetched};
  if (!CutAll(args, &plan)) return cudaErrorInvalidValue;
  constexpr auto kShared = static_cast<uint32_t>(kStages * kStageBytes);
  const cudaError_t error =
      cudaFuncSetAttribute(FetchKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  if (error != cudaSuccess) return error;
  const auto most = static_cast<uint64_t>(std::min(bucket * args.used, args.experts));
  return cuda::Launch(queue,
                      {.name = "fetch experts",
                       .bytes = most * (Bytes(plan.matrices[0]) + Bytes(plan.matrices[1]) + Bytes(plan.matrices[2]))},
                      {.grid = dim3(kBlocks), .block = dim3(kThreads), .shared_bytes = kShared, .overlap = true},
                      FetchKernel, plan);
}

}  // namespace bellhop::kernels
