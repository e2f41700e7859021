// The GPUs of this machine. A build without CUDA has the same functions and they return kUnsupported, so that nothing
// takes the CPU for a GPU silently.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace bellhop::cuda {

struct DeviceInfo {
  DeviceId id;            // CUDA's ordinal: CUDA_VISIBLE_DEVICES has been applied
  std::string name;       // "NVIDIA H200"
  int compute_major = 0;  // compute capability, 9.0 for sm_90
  int compute_minor = 0;
  int sm_count = 0;
  uint64_t l2_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;        // now, with other processes running; 0 when the device refused a context (see note)
  double memory_gbps = 0;         // of its memory's clock and width, on paper; 0: unknown
  std::string pci_id;             // "0000:17:00.0", the name under /sys/bus/pci/devices
  bool maps_host_memory = false;  // kernels can read pinned host memory
  bool registers_read_only = false;  // read-only mapped files can be registered
  int driver_version = 0;            // highest CUDA version that the driver supports: 13000 is 13.0
  int runtime_version = 0;           // of the runtime in this binary
  std::string note;                  // why a value is missing; empty normally
};

bool BuiltWithCuda();

// All visible devices, at least one. kUnsupported: built without CUDA; kNotFound: no driver or no device; kCuda:
// anything else. Creates a context on each device (some hundred MB of its memory) to ask for the free bytes.
Result<std::vector<DeviceInfo>> ListDevices();

struct ProbeResult {
  int kernel_arch = 0;  // architecture that the kernel in use was compiled for: 900 is sm_90
};

// Runs a small kernel and checks what it wrote: shows that this binary holds code for the device and that the device
// computes. kUnsupported when it holds none.
Result<ProbeResult> ProbeDevice(DeviceId device);

// 13000 -> "13.0"
inline std::string FormatCudaVersion(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace bellhop::cuda
