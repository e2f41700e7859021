#include "cuda/device_info.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cuda/cuda_try.h"
#include "cuda/device_probe.h"

namespace bellhop::cuda {
namespace {

// The calling thread's device, put back at the end.
class DeviceScope {
 public:
  DeviceScope() : known_(cudaGetDevice(&device_) == cudaSuccess) {}
  ~DeviceScope() {
    if (known_) (void)cudaSetDevice(device_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int device_ = 0;
  bool known_;
};

struct DeviceMemory {
  void* data = nullptr;
  ~DeviceMemory() { (void)cudaFree(data); }
};

struct OwnedStream {
  cudaStream_t stream = nullptr;
  ~OwnedStream() {
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
};

Result<int> Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  BELLHOP_CUDA_TRY(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

Result<DeviceInfo> Describe(int device) {
  DeviceInfo info;
  info.id = DeviceId(device);
  cudaDeviceProp properties{};
  BELLHOP_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  info.name = properties.name;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.sm_count = properties.multiProcessorCount;
  info.l2_bytes = static_cast<uint64_t>(properties.l2CacheSize);
  info.total_bytes = properties.totalGlobalMem;
  info.maps_host_memory = properties.canMapHostMemory != 0;
  BELLHOP_TRY_ASSIGN(const int read_only, Attribute(cudaDevAttrHostRegisterReadOnlySupported, device));
  info.registers_read_only = read_only != 0;
  BELLHOP_TRY_ASSIGN(const int clock_khz, Attribute(cudaDevAttrMemoryClockRate, device));
  BELLHOP_TRY_ASSIGN(const int bus_bits, Attribute(cudaDevAttrGlobalMemoryBusWidth, device));
  constexpr double kTransfersPerClock = 2;
  info.memory_gbps = kTransfersPerClock * clock_khz * bus_bits / 8 / 1e6;

  std::array<char, 32> pci{};
  BELLHOP_CUDA_TRY(cudaDeviceGetPCIBusId(pci.data(), static_cast<int>(pci.size()), device));
  info.pci_id = pci.data();
  std::transform(info.pci_id.begin(), info.pci_id.end(), info.pci_id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });

  // A device in exclusive mode, or one that is full, refuses a context: it is still listed.
  size_t free = 0, total = 0;
  Status status = CudaStatus(cudaSetDevice(device), "cudaSetDevice");
  if (status.ok()) status = CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (status.ok()) {
    info.free_bytes = free;
  } else {
    info.note = fmt::format("free memory is unknown: {}", status.message());
    (void)cudaGetLastError();  // not sticky: later calls must not report it again
  }
  return info;
}

}  // namespace

bool BuiltWithCuda() { return true; }

Result<std::vector<DeviceInfo>> ListDevices() {
  int count = 0;
  BELLHOP_CUDA_TRY(cudaGetDeviceCount(&count));
  if (count == 0) return CudaStatus(cudaErrorNoDevice, "cudaGetDeviceCount");
  const DeviceScope scope;
  int driver = 0, runtime = 0;
  BELLHOP_CUDA_TRY(cudaDriverGetVersion(&driver));
  BELLHOP_CUDA_TRY(cudaRuntimeGetVersion(&runtime));
  std::vector<DeviceInfo> devices;
  for (int device = 0; device < count; ++device) {
    BELLHOP_TRY_ASSIGN(DeviceInfo info, Describe(device));
    info.driver_version = driver;
    info.runtime_version = runtime;
    devices.push_back(std::move(info));
  }
  return devices;
}

Result<ProbeResult> ProbeDevice(DeviceId device) {
  int count = 0;
  BELLHOP_CUDA_TRY(cudaGetDeviceCount(&count));
  if (!device.valid() || device.value >= count) {
    return InvalidArgument("GPU {} does not exist: {} visible, numbered from 0", device.value, count);
  }
  const DeviceScope scope;
  BELLHOP_CUDA_TRY(cudaSetDevice(device.value));
  OwnedStream stream;
  BELLHOP_CUDA_TRY(cudaStreamCreateWithFlags(&stream.stream, cudaStreamNonBlocking));
  std::array<uint32_t, kProbeThreads + 1> host{};
  DeviceMemory memory;
  BELLHOP_CUDA_TRY(cudaMalloc(&memory.data, sizeof host));
  BELLHOP_CUDA_TRY(LaunchProbe(static_cast<uint32_t*>(memory.data), stream.stream));
  BELLHOP_CUDA_TRY(cudaMemcpyAsync(host.data(), memory.data, sizeof host, cudaMemcpyDeviceToHost, stream.stream));
  BELLHOP_CUDA_TRY(cudaStreamSynchronize(stream.stream));
  for (uint32_t i = 0; i < kProbeThreads; ++i) {
    if (host[i] != ProbePattern(i)) {
      return CudaError(
          "GPU {}: the probe kernel wrote {:#x} instead of {:#x} at {}; the device or its driver is faulty",
          device.value, host[i], ProbePattern(i), i);
    }
  }
  ProbeResult result;
  result.kernel_arch = static_cast<int>(host[kProbeThreads]);
  return result;
}

}  // namespace bellhop::cuda
