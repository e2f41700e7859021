#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // pieces of a thread under way
constexpr int kPagesAtOnce = 4;
constexpr int kPieceColumns = 4 * kThreads * kAtOnce;
constexpr int kInputWords = sizeof(StepInput) / sizeof(uint2);
static_assert(sizeof(StepInput) % sizeof(uint2) == 0 && alignof(StepInput) % alignof(uint2) == 0);
static_assert(kInputWords <= kThreads);

// The input crosses the bus once a block, in few and wide reads that are all under way together: the bus takes about as
// long for a word as for sixteen bytes of it.
__device__ __forceinline__ const StepInput& FetchInput(const StepInput* input) {
  __shared__ uint2 words[kInputWords];
  if (threadIdx.x < kInputWords) words[threadIdx.x] = __ldcg(reinterpret_cast<const uint2*>(input) + threadIdx.x);
  __syncthreads();
  return *reinterpret_cast<const StepInput*>(words);
}

// Columns [base, base + kPieceColumns) of a row, through shared memory: a lane has one column of each residual sum.
__device__ __forceinline__ void FetchColumns(const float* from, int hidden, int base, float* columns) {
  const int first = base + 4 * static_cast<int>(threadIdx.x);
  float4 piece[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int c = first + i * 4 * kThreads;
    piece[i] = c < hidden ? __ldcg(reinterpret_cast<const float4*>(from + c)) : make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) reinterpret_cast<float4*>(columns)[i * kThreads + threadIdx.x] = piece[i];
}

// Block m < bucket: row m. The last block: what the whole step needs.
__global__ void __launch_bounds__(kThreads) BeginDecodeKernel(BeginArgs args) {
  __shared__ __align__(16) float columns[kPieceColumns];
  LetNextStart();
  AwaitPrevious();
  const StepInput& input = FetchInput(args.input);
  const auto m = static_cast<int32_t>(blockIdx.x), thread = static_cast<int32_t>(threadIdx.x);
  if (blockIdx.x == gridDim.x - 1) {
    if (thread == 0) *args.state.rows = input.rows;
    if (thread < kMaxStepRows) args.state.positions[thread] = input.positions[thread];
    if (args.doorbell != nullptr) cuda::BeginDeviceStep(cuda::BlockGroup(), args.doorbell);
    return;
  }
  if (m >= input.rows) return;
  const int32_t pages = input.positions[m] / 64 + 1, hidden = args.residual.hidden;
  const int64_t first = int64_t{m} * input.max_pages;
  int32_t page_ids[kPagesAtOnce];
#pragma unroll
  for (int i = 0; i < kPagesAtOnce; ++i) {
    const int32_t page = thread + i * kThreads;
    page_ids[i] = page < pages ? __ldcg(&input.pages[first + page]) : 0;
  }
  const float* const from = input.embeddings + int64_t{m} * hidden;
  for (int base = 0; base < hidden; base += kPieceColumns) {
    FetchColumns(from, hidden, base, columns);
    __syncthreads();
    for (int c = base + thread; c - thread < min(hidden, base + kPieceColumns); c += kThreads) {
      WriteResidual(args.residual, m, c, columns[c - base], c / 16 * 16 < hidden);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPagesAtOnce; ++i) {
    const int32_t page = thread + i * kThreads;
    if (page < pages) args.state.pages[first + page] = page_ids[i];
  }
  for (int32_t i = thread + kPagesAtOnce * kThreads; i < pages; i += kThreads) {
    args.state.pages[first + i] = __ldcg(&input.pages[first + i]);
  }
}

}  // namespace

cudaError_t LaunchBeginDecode(const BeginArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  if (args.residual.hidden % 4 != 0) return cudaErrorInvalidValue;
  return cuda::Launch(
      queue,
      {.name = "begin step", .bytes = static_cast<uint64_t>(bucket) * static_cast<uint64_t>(args.residual.hidden) * 12},
      {.grid = dim3(static_cast<unsigned>(bucket) + 1), .block = dim3(kThreads), .overlap = true}, BeginDecodeKernel,
      args);
}

}  // namespace bellhop::kernels
