#include "decode/cuda/sampler_kernels.h"

#include "cuda/launch.h"
#include "decode/cuda/sample_row.h"

namespace bellhop::decode {
namespace {

__device__ ChunkStats* StatsOf(const SampleArgs& args, int32_t row) {
  return static_cast<ChunkStats*>(args.workspace) + static_cast<int64_t>(row) * SampleChunks(args.vocab);
}

__global__ void __launch_bounds__(kChunkLanes) ScanChunksKernel(SampleArgs args) {
  __shared__ ChunkScratch scratch;
  const auto chunk = static_cast<int32_t>(blockIdx.x), row = static_cast<int32_t>(blockIdx.y);
  const RowView view{args.logits + row * args.stride, args.params[row].allow, args.vocab};
  ScanChunk(cuda::BlockGroup(), view, chunk, &scratch, StatsOf(args, row) + chunk);
}

__global__ void __launch_bounds__(kSampleLanes) SampleRowsKernel(SampleArgs args) {
  __shared__ SampleScratch scratch;
  const auto row = static_cast<int32_t>(blockIdx.x);
  float* const saved = reinterpret_cast<float*>(StatsOf(args, args.rows)) + static_cast<int64_t>(row) * args.max_edits;
  SampleRow(cuda::BlockGroup(), args, row, StatsOf(args, row), saved, &scratch);
}

}  // namespace

cudaError_t LaunchSample(const SampleArgs& args, const cuda::LaunchQueue& queue) {
  if (args.rows < 1 || args.vocab < 1 || args.vocab > kMaxSampledVocab || args.max_edits < 0) {
    return cudaErrorInvalidValue;
  }
  const auto rows = static_cast<uint32_t>(args.rows), chunks = static_cast<uint32_t>(SampleChunks(args.vocab));
  const uint64_t row_bytes = static_cast<uint64_t>(args.vocab) * sizeof(float);
  const cudaError_t error =
      cuda::Launch(queue, {.name = "scan logits", .bytes = rows * (row_bytes + chunks * sizeof(ChunkStats))},
                   {.grid = dim3(chunks, rows), .block = dim3(kChunkLanes)}, ScanChunksKernel, args);
  if (error != cudaSuccess) return error;
  // The chunks' numbers alone for a greedy row; what others read again depends on their parameters, unknown here.
  return cuda::Launch(queue, {.name = "sample", .bytes = rows * uint64_t{chunks} * sizeof(ChunkStats)},
                      {.grid = dim3(rows), .block = dim3(kSampleLanes)}, SampleRowsKernel, args);
}

}  // namespace bellhop::decode
