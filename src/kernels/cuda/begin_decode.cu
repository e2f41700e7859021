#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace {

constexpr int kThreads = 256;

// Block m < bucket: row m. The last block: what the whole step needs.
__global__ void __launch_bounds__(kThreads) BeginDecodeKernel(BeginArgs args) {
  LetNextStart();
  AwaitPrevious();
  const auto* input = args.input;
  const int32_t rows = __ldcv(&input->rows);
  const auto m = static_cast<int32_t>(blockIdx.x);
  if (blockIdx.x == gridDim.x - 1) {
    if (threadIdx.x == 0) *args.state.rows = rows;
    if (threadIdx.x < kMaxStepRows) args.state.positions[threadIdx.x] = __ldcv(&input->positions[threadIdx.x]);
    if (args.doorbell != nullptr) cuda::BeginDeviceStep(cuda::BlockGroup(), args.doorbell);
    return;
  }
  if (m >= rows) return;
  const int32_t pages = __ldcv(&input->positions[m]) / 64 + 1;
  const int64_t first = int64_t{m} * input->max_pages;
  for (int i = static_cast<int>(threadIdx.x); i < pages; i += kThreads) {
    args.state.pages[first + i] = __ldcv(&input->pages[first + i]);
  }
  // Many loads under way: each crosses the bus.
  constexpr int kAtOnce = 8;
  const int32_t hidden = args.residual.hidden;
  const float* const from = input->embeddings + int64_t{m} * hidden;
  for (int base = 0; base < hidden; base += kAtOnce * kThreads) {
    float value[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int c = base + i * kThreads + static_cast<int>(threadIdx.x);
      value[i] = c < hidden ? __ldcv(from + c) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int c = base + i * kThreads + static_cast<int>(threadIdx.x);
      if (base + i * kThreads >= hidden) break;
      WriteResidual(args.residual, m, c, value[i], c / 16 * 16 < hidden);
    }
  }
}

}  // namespace

cudaError_t LaunchBeginDecode(const BeginArgs& args, int32_t bucket, const cuda::LaunchQueue& queue) {
  return cuda::Launch(
      queue,
      {.name = "begin step", .bytes = static_cast<uint64_t>(bucket) * static_cast<uint64_t>(args.residual.hidden) * 12},
      {.grid = dim3(static_cast<unsigned>(bucket) + 1), .block = dim3(kThreads), .overlap = true}, BeginDecodeKernel,
      args);
}

}  // namespace bellhop::kernels
