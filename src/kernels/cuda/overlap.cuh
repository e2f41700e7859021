// Programmatic dependent launch inside kernels. Before sm_90 a kernel starts when the one before it has ended.
#pragma once

namespace bellhop::kernels {

// The next kernel may start. Every block of a kernel then waits for the one before (AwaitPrevious), even if it has
// nothing to do: else the end of this kernel would not mean the end of that one.
__device__ __forceinline__ void LetNextStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ __forceinline__ void AwaitPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

}  // namespace bellhop::kernels
