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

bool IsStickyError(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorContained:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

Status CheckCuda(Device* device, cudaError_t error, std::string_view expression) {
  if (error == cudaSuccess) return Status();
  (void)cudaGetLastError();
  Status status = CudaStatus(error, expression).WithContext(fmt::format("GPU {}", device->id().value));
  if (!IsStickyError(error)) return status;
  return device->poison().Set(CudaError("{}; the device's state is lost: restart the program", status.message()));
}

}  // namespace bellhop::cuda
