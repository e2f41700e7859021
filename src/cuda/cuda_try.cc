#include "cuda/cuda_try.h"

namespace bellhop::cuda {

Status CudaStatus(cudaError_t error, std::string_view expression) {
  if (error == cudaSuccess) return Status();
  const char* name = cudaGetErrorName(error);
  const char* meaning = cudaGetErrorString(error);
  switch (error) {
    case cudaErrorInsufficientDriver:
      return NotFound(
          "no usable NVIDIA driver ({}: {}); install a driver for CUDA {} or newer, or run with --device cpu", name,
          meaning, CUDART_VERSION / 1000);
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
      return NotFound(
          "no CUDA device ({}: {}); check nvidia-smi, the container's GPU access and CUDA_VISIBLE_DEVICES, "
          "or run with --device cpu",
          name, meaning);
    case cudaErrorMemoryAllocation:
      return OutOfMemory("{}: {} ({}); free GPU memory or lower --vram", expression, meaning, name);
    case cudaErrorNoKernelImageForDevice:
      return Unsupported("{}: {} ({}); this binary holds no code for the device: sm_80 or newer is needed", expression,
                         meaning, name);
    default: return CudaError("{}: {} ({})", expression, meaning, name);
  }
}

}  // namespace bellhop::cuda
