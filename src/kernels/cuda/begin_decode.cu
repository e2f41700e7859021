#include "cuda/launch.h"
#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {
namespace {

constexpr int kThreads = 256;

template <typename T>
__device__ __forceinline__ const T* LoadPointer(const T* const* from) {
  static_assert(sizeof(from) == sizeof(unsigned long long));
  return reinterpret_cast<const T*>(__ldcv(reinterpret_cast<const unsigned long long*>(from)));
}

// Block m < bucket: row m. The last block: what the whole step needs.
__global__ void __launch_bounds__(kThreads) BeginDecodeKernel(BeginArgs args) {
  LetNextStart();
  AwaitPrevious();
  // All that is not behind a pointer at once: each load crosses the bus.
  const auto* input = args.input;
  const auto m = static_cast<int32_t>(blockIdx.x);
  const int32_t rows = __ldcv(&input->rows), max_pages = __ldcv(&input->max_pages);
  const int32_t position = __ldcv(&input->positions[min(m, kMaxStepRows - 1)]);
  const auto* const embeddings = LoadPointer(&input->embeddings);
  const auto* const page_ids = LoadPointer(&input->pages);
  if (blockIdx.x == gridDim.x - 1) {
    if (threadIdx.x == 0) *args.state.rows = rows;
    if (threadIdx.x < kMaxStepRows) args.state.positions[threadIdx.x] = __ldcv(&input->positions[threadIdx.x]);
    if (args.doorbell != nullptr) cuda::BeginDeviceStep(cuda::BlockGroup(), args.doorbell);
    return;
  }
  if (m >= rows) return;
  const int32_t pages = position / 64 + 1;
  const int64_t first = int64_t{m} * max_pages;
  const auto thread = static_cast<int>(threadIdx.x);
  const int32_t page_id = thread < pages ? __ldcv(&page_ids[first + thread]) : 0;
  constexpr int kAtOnce = 8;
  const int32_t hidden = args.residual.hidden;
  const float* const from = embeddings + int64_t{m} * hidden;
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
  if (thread < pages) args.state.pages[first + thread] = page_id;
  for (int i = thread + kThreads; i < pages; i += kThreads) {
    args.state.pages[first + i] = __ldcv(&page_ids[first + i]);
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
