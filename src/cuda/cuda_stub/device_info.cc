#include "cuda/device_info.h"

#include "cuda/cuda_stub/no_cuda.h"

namespace bellhop::cuda {

bool BuiltWithCuda() { return false; }
Result<std::vector<DeviceInfo>> ListDevices() { return NoCuda(); }
Result<ProbeResult> ProbeDevice(DeviceId device) { return NoCuda(); }

}  // namespace bellhop::cuda
