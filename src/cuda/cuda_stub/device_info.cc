#include "cuda/device_info.h"

namespace bellhop::cuda {
namespace {

Status NoCuda() {
  return Unsupported(
      "this binary was built without CUDA; use a build with -DBELLHOP_CUDA=ON, or run with --device cpu");
}

}  // namespace

bool BuiltWithCuda() { return false; }
Result<std::vector<DeviceInfo>> ListDevices() { return NoCuda(); }
Result<ProbeResult> ProbeDevice(DeviceId device) { return NoCuda(); }
}  // namespace bellhop::cuda
