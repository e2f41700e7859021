#include "cuda/doorbell_kernels.h"

namespace bellhop::cuda {
namespace {

constexpr int kThreads = 512;  // 16 bytes each are a row of hidden size 2048

__global__ void ClearRowErrorsKernel(DoorbellState* state) { ClearRowErrors(BlockGroup(), state); }

__global__ void __launch_bounds__(kThreads)
    ClassifyAndRingKernel(ClassifyArgs args, DoorbellChannel channel, DoorbellState* state) {
  __shared__ ClassifyScratch scratch;
  ClassifyAndRing(BlockGroup(), args, channel, state, &scratch);
}

__global__ void __launch_bounds__(kThreads)
    WaitAndAccumulateKernel(WaitArgs args, DoorbellChannel channel, DoorbellState* state) {
  __shared__ WaitScratch scratch;
  WaitAndAccumulate(BlockGroup(), args, channel, state, &scratch);
}

}  // namespace

cudaError_t LaunchClearRowErrors(DoorbellState* state, cudaStream_t stream) {
  ClearRowErrorsKernel<<<1, kDoorbellMaxRows, 0, stream>>>(state);
  return cudaGetLastError();
}

cudaError_t LaunchClassifyAndRing(const ClassifyArgs& args, const DoorbellChannel& channel, DoorbellState* state,
                                  cudaStream_t stream) {
  ClassifyAndRingKernel<<<1, kThreads, 0, stream>>>(args, channel, state);
  return cudaGetLastError();
}

cudaError_t LaunchWaitAndAccumulate(const WaitArgs& args, const DoorbellChannel& channel, DoorbellState* state,
                                    cudaStream_t stream) {
  WaitAndAccumulateKernel<<<1, kThreads, 0, stream>>>(args, channel, state);
  return cudaGetLastError();
}

}  // namespace bellhop::cuda
