#include "cuda/doorbell_kernels.h"

#include "cuda/launch.h"

namespace bellhop::cuda {
namespace {

constexpr int kThreads = 512;    // 16 bytes each are a row of hidden size 2048
constexpr int kWaitBlocks = 16;  // what it takes to read host memory at the link's rate

__global__ void BeginStepKernel(DoorbellState* state) { BeginDeviceStep(BlockGroup(), state); }

__global__ void __launch_bounds__(kThreads)
    ClassifyAndRingKernel(ClassifyArgs args, DoorbellChannel channel, DoorbellState* state) {
  __shared__ ClassifyScratch scratch;
  ClassifyAndRing(BlockGroup(), args, channel, state, &scratch);
}

// All threads of a grid, without a barrier.
struct GridThreads {
  __device__ int32_t rank() const { return static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x); }
  __device__ int32_t size() const { return static_cast<int32_t>(gridDim.x * blockDim.x); }
};

__global__ void __launch_bounds__(kThreads)
    WaitAndAccumulateKernel(WaitArgs args, DoorbellChannel channel, DoorbellState* state) {
  WaitAndAccumulate(GridThreads(), args, channel, state);
}

}  // namespace

cudaError_t LaunchBeginStep(DoorbellState* state, const LaunchQueue& queue) {
  return Launch(queue, {.name = "begin step", .bytes = sizeof state->rows},
                {.grid = dim3(1), .block = dim3(kDoorbellMaxRows)}, BeginStepKernel, state);
}

cudaError_t LaunchClassifyAndRing(const ClassifyArgs& args, const DoorbellChannel& channel, DoorbellState* state,
                                  const LaunchQueue& queue) {
  // At most: rows without a miss stay where they are.
  const auto routes = static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(args.used);
  const auto floats = static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(channel.hidden);
  return Launch(queue, {.name = "classify and ring", .bytes = routes * 20 + floats * 8},
                {.grid = dim3(1), .block = dim3(kThreads)}, ClassifyAndRingKernel, args, channel, state);
}

cudaError_t LaunchWaitAndAccumulate(const WaitArgs& args, const DoorbellChannel& channel, DoorbellState* state,
                                    const LaunchQueue& queue) {
  const auto floats = static_cast<uint64_t>(channel.max_rows) * static_cast<uint64_t>(channel.hidden);
  return Launch(queue, {.name = "wait and accumulate", .bytes = floats * 12},
                {.grid = dim3(kWaitBlocks), .block = dim3(kThreads)}, WaitAndAccumulateKernel, args, channel, state);
}

}  // namespace bellhop::cuda
