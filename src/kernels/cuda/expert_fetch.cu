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
  int64_t offset = 0;  // in a slot
  int32_t chunk_cols = 0;
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

// Bytes behind the last multiple of a piece.
__device__ __forceinline__ int Shift(const uint8_t* p) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(p) % kPiece);
}
// Room for a row that begins anywhere in its first piece. An odd number of pieces, for the banks.
__host__ __device__ constexpr int64_t Pitch(int64_t bytes) { return ((bytes + 2 * kPiece - 2) / kPiece | 1) * kPiece; }

// Rows of one plane, on the host and in a stage.
struct PlaneRows {
  const uint8_t* from = nullptr;  // of the first; null: the matrix has no such plane
  int64_t stride = 0, bytes = 0;  // from one row to the next; of a row
  int32_t count = 0;
  bool whole = false;  // one piece of memory

  __device__ int64_t StageBytes() const { return whole ? Pitch(count * stride) : count * Pitch(bytes); }
  // Starts the copy of their pieces to shared memory.
  __device__ void Load(uint8_t* stage) const {
    if (from == nullptr) return;
    const int segments = whole ? 1 : count;
    const int64_t segment_bytes = whole ? count * stride : bytes, pitch = Pitch(segment_bytes);
    const int pieces = static_cast<int>(pitch / kPiece);
    for (int i = static_cast<int>(threadIdx.x); i < segments * pieces; i += kThreads) {
      const int segment = i / pieces, piece = i % pieces;
      const uint8_t* const first = from + segment * stride;
      const int shift = Shift(first);
      if (piece * kPiece >= shift + segment_bytes) continue;
      __pipeline_memcpy_async(stage + segment * pitch + piece * kPiece, first - shift + piece * kPiece, kPiece);
    }
  }
  __device__ __forceinline__ const uint8_t* Staged(const uint8_t* stage, int row) const {
    if (whole) return stage + Shift(from) + row * stride;
    return stage + row * Pitch(bytes) + Shift(from + row * stride);
  }
};

struct Unit {
  PlaneRows codes, scales;    // scales: of planar matrices
  uint8_t* matrix = nullptr;  // in the staging slot
  int32_t which = 0, tile = 0;
  int32_t first_chunk = 0, chunks = 0;
  int64_t first_col = 0, cols = 0;  // of the matrix

  __device__ void Load(uint8_t* stage) const {
    codes.Load(stage);
    scales.Load(stage + codes.StageBytes());
  }
};

// Bytes of the scales of some columns of a row, and where they begin.
struct ScaleRange {
  int64_t begin, bytes;
};
__host__ __device__ inline ScaleRange ScalesOf(const PlanarRows& planar, int64_t first_col, int64_t end_col) {
  const int64_t begin = first_col / planar.group, end = (end_col + planar.group - 1) / planar.group;
  return {begin * planar.scale_bytes(), (end - begin) * planar.scale_bytes()};
}

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
  unit.first_chunk = p.first_chunk + part * p.part_chunks;
  unit.chunks = min(p.part_chunks, p.first_chunk + p.chunks - unit.first_chunk);
  unit.first_col = int64_t{unit.first_chunk} * p.chunk_cols;
  unit.cols = min(int64_t{unit.chunks} * p.chunk_cols, p.w.cols - unit.first_col);
  const FetchSource& source = plan.sources[plan.misses.experts[staged]];
  const int64_t first_row = int64_t{unit.tile} * kTileRows, begin = int64_t{unit.first_chunk} * p.chunk_bytes;
  const int32_t rows = min(kTileRows, p.w.rows - unit.tile * kTileRows);
  const uint8_t* const file = unit.which == 0 ? source.gate : unit.which == 1 ? source.up : source.down;
  unit.codes = {file + first_row * p.w.row_bytes + begin, p.w.row_bytes,
                min(int64_t{unit.chunks} * p.chunk_bytes, p.w.row_bytes - begin), rows, p.whole_rows};
  if (p.w.planar.group > 0) {
    const int64_t stride = p.w.planar.scale_row_bytes;
    const uint8_t* const scales = unit.which == 0   ? source.gate_scales
                                  : unit.which == 1 ? source.up_scales
                                                    : source.down_scales;
    const ScaleRange range = ScalesOf(p.w.planar, unit.first_col, unit.first_col + unit.cols);
    unit.scales = {scales + first_row * stride + range.begin, stride, range.bytes, rows, p.whole_rows};
  }
  unit.matrix = plan.staging.base + staged * plan.staging.slot_bytes + p.offset;
  return unit;
}

template <WeightFormat F>
__device__ __noinline__ void PackUnit(const MatrixPlan& p, const Unit& unit, const uint8_t* stage) {
  constexpr int kBytes = Tiles(TileFormatOf(F)).chunk_bytes;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  auto row = [&](int i) {
    tile_pack::Source source;
    if (i >= unit.codes.count) return source;
    source.row = unit.codes.Staged(stage, i);
    source.bytes = unit.codes.bytes;
    if (PlanarBits(F) > 0) {
      source.scales = unit.scales.Staged(stage + unit.codes.StageBytes(), i);
      source.group = p.w.planar.group;
      source.in_group = static_cast<int32_t>(unit.first_col % source.group);
      source.cols = unit.cols;
    }
    return source;
  };
  uint8_t* const to = unit.matrix + (int64_t{unit.tile} * p.w.chunks + unit.first_chunk) * kBytes;
  for (int c = warp; c < unit.chunks; c += kWarps) tile_pack::PackTileChunk<F>(row, c, lane, to + int64_t{c} * kBytes);
}

__device__ void CopyUnit(const MatrixPlan& p, const Unit& unit, const uint8_t* stage) {
  for (int row = 0; row < unit.codes.count; ++row) {
    const uint8_t* const from = unit.codes.Staged(stage, row);
    uint8_t* const to = unit.matrix + (int64_t{unit.tile} * kTileRows + row) * p.w.row_bytes +
                        int64_t{unit.first_chunk} * p.chunk_bytes;
    for (int64_t i = threadIdx.x; i < unit.codes.bytes; i += kThreads) to[i] = from[i];
  }
}

__device__ void Unpack(const FetchPlan& plan, const Unit& unit, const uint8_t* stage) {
  const MatrixPlan& p = plan.matrices[unit.which];
  if (p.w.layout == MatrixLayout::kFile) return CopyUnit(p, unit, stage);
  switch (p.w.planar.group > 0 ? p.w.planar.format : p.w.format) {
    case WeightFormat::kF32: return PackUnit<WeightFormat::kF32>(p, unit, stage);
    case WeightFormat::kF16: return PackUnit<WeightFormat::kF16>(p, unit, stage);
    case WeightFormat::kBF16: return PackUnit<WeightFormat::kBF16>(p, unit, stage);
    case WeightFormat::kQ4_0: return PackUnit<WeightFormat::kQ4_0>(p, unit, stage);
    case WeightFormat::kQ8_0: return PackUnit<WeightFormat::kQ8_0>(p, unit, stage);
    case WeightFormat::kMXFP4: return PackUnit<WeightFormat::kMXFP4>(p, unit, stage);
    case WeightFormat::kQ4K: return PackUnit<WeightFormat::kQ4K>(p, unit, stage);
    case WeightFormat::kQ6K: return PackUnit<WeightFormat::kQ6K>(p, unit, stage);
    case WeightFormat::kIQ3XXS: return PackUnit<WeightFormat::kIQ3XXS>(p, unit, stage);
    case WeightFormat::kInt4: return PackUnit<WeightFormat::kInt4>(p, unit, stage);
    case WeightFormat::kInt3: return PackUnit<WeightFormat::kInt3>(p, unit, stage);
    case WeightFormat::kInt8: return PackUnit<WeightFormat::kInt8>(p, unit, stage);
    case WeightFormat::kMxfp4Planar: return PackUnit<WeightFormat::kMxfp4Planar>(p, unit, stage);
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
  unit.Load(stages);
  __pipeline_commit();
  for (int stage = 0; index < total; stage ^= 1) {
    index = from(index + step);
    if (index < total) {
      next = UnitOf(plan, index);
      next.Load(stages + (stage ^ 1) * kStageBytes);
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
  p.chunk_cols = chunk_cols;
  p.chunk_bytes = w.planar.group > 0 ? chunk_cols * PlanarBits(w.planar.format) / 8
                  : packed           ? tiles.chunk_bytes / kTileRows
                                     : static_cast<int32_t>(w.row_bytes * chunk_cols / w.cols);
  if (begin % kTileRows != 0 || first % chunk_cols != 0 || begin >= end || first >= last) return false;
  if ((end < w.rows && end % kTileRows != 0) || (last < w.cols && last % chunk_cols != 0)) return false;
  p.first_tile = begin / kTileRows;
  p.tiles = (end + kTileRows - 1) / kTileRows - p.first_tile;
  p.first_chunk = first / chunk_cols;
  p.chunks = (last + chunk_cols - 1) / chunk_cols - p.first_chunk;
  const int64_t scale_row_bytes = w.planar.group > 0 ? w.planar.scale_row_bytes : 0;
  p.whole_rows = first == 0 && last == w.cols &&
                 Pitch(kTileRows * w.row_bytes) + Pitch(kTileRows * scale_row_bytes) <= kStageBytes;
  p.part_chunks = p.chunks;
  if (!p.whole_rows) {
    // Of a unit of so many chunks, wherever it begins.
    auto stage_bytes = [&](int32_t chunks) {
      int64_t bytes = Pitch(int64_t{chunks} * p.chunk_bytes);
      if (w.planar.group > 0) bytes += Pitch(ScalesOf(w.planar, 0, chunks * chunk_cols + w.planar.group).bytes);
      return kTileRows * bytes;
    };
    int32_t most = p.chunks;
    while (most > 0 && stage_bytes(most) > kStageBytes) --most;
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
