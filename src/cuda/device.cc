#include "cuda/device.h"

#include <cuda_runtime_api.h>

#include "cuda/cuda_try.h"

namespace bellhop::cuda {

Result<std::unique_ptr<Device>> Device::Open(DeviceId id, MemoryLedger* ledger) {
  int count = 0;
  BELLHOP_CUDA_TRY(cudaGetDeviceCount(&count));
  if (!id.valid() || id.value >= count) {
    return InvalidArgument("GPU {} does not exist: {} visible, numbered from 0", id.value, count);
  }
  auto device = std::unique_ptr<Device>(new Device(id, ledger));
  BELLHOP_TRY(device->MakeCurrent());
  int read_only = 0;
  BELLHOP_CUDA_TRY(cudaDeviceGetAttribute(&read_only, cudaDevAttrHostRegisterReadOnlySupported, id.value));
  device->registers_read_only_ = read_only != 0;
  return device;
}

Status Device::MakeCurrent() {
  BELLHOP_CUDA_CHECK(this, cudaSetDevice(id_.value));
  return Status();
}

}  // namespace bellhop::cuda
