#include "cuda/device_probe.h"

namespace bellhop::cuda {
namespace {

// Each thread hands its value to its mirror image through shared memory, so that a missing barrier or a wrong block
// shows in the pattern.
__global__ void ProbeKernel(uint32_t* __restrict__ out) {
  __shared__ uint32_t mirror[kProbeThreads];
  const uint32_t thread = threadIdx.x;
  mirror[kProbeThreads - 1 - thread] = (kProbeThreads - thread) * 2654435761u;
  __syncthreads();
  out[thread] = mirror[thread];
#ifdef __CUDA_ARCH__
  if (thread == 0) out[kProbeThreads] = __CUDA_ARCH__;
#endif
}

}  // namespace

cudaError_t LaunchProbe(uint32_t* out, cudaStream_t stream) {
  ProbeKernel<<<1, kProbeThreads, 0, stream>>>(out);
  return cudaGetLastError();
}

}  // namespace bellhop::cuda
