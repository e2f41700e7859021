// The judgements of `bellhop doctor`, apart from the gathering: facts in, lines out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/device_info.h"
#include "engine/build_info.h"
#include "engine/calibration_file.h"
#include "engine/doctor.h"
#include "sys/cpu_features.h"
#include "sys/host_info.h"
#include "sys/huge_pages.h"
#include "sys/topology.h"

namespace bellhop::engine {

struct MachineFacts {
  sys::Topology topology;
  sys::HostInfo host;
  sys::CpuCaps caps;
  int online_cpus = 0;         // 0: the machine does not say
  bool cpu_lists_amx = false;  // the CPU has AMX, usable or not
  sys::HugePageState huge_pages;
};

// `root` is prepended to /sys and /proc, so tests feed made-up machines; `affinity` as in sys::ReadTopology. The
// capabilities are those of the real CPU.
MachineFacts GatherMachine(const std::string& root = "", const std::vector<int>& affinity = {});

struct GpuFacts {
  Status status;  // of listing the devices
  std::vector<cuda::DeviceInfo> devices;
  std::vector<Result<cuda::ProbeResult>> probes;  // parallel to devices
};
GpuFacts GatherGpus();

struct Measurements {
  int threads = 0;
  double read_gb_per_s = 0, round_trip_ns = 0;
};

// What a model file needs; sizes in bytes.
struct ModelFacts {
  std::string path;
  Status supported;  // why not
  uint64_t weights = 0, cache_and_buffers = 0;
  uint64_t expert_copy = 0;  // that --hugepages makes; 0: no experts
  int32_t context = 0;
  std::vector<std::string> slow_formats;  // without a SIMD kernel on this CPU
};
// Failure: the file cannot be opened. Structure that the engine refuses is in ModelFacts::supported.
Result<ModelFacts> GatherModel(const std::string& path, const sys::CpuCaps& caps, int threads);

void CheckCpu(const MachineFacts& machine, std::vector<DoctorLine>* lines);
void CheckMemory(const MachineFacts& machine, std::vector<DoctorLine>* lines);
void CheckLimits(const MachineFacts& machine, bool has_gpu, std::vector<DoctorLine>* lines);
void CheckMeasurements(const Result<Measurements>& measured, const std::vector<std::string>& pool_notes,
                       std::vector<DoctorLine>* lines);
void CheckGpus(const GpuFacts& gpus, std::vector<DoctorLine>* lines);
void CheckCalibration(const config::CalibrationConfig& where, const Result<Calibration>& stored,
                      std::vector<DoctorLine>* lines);
void CheckBuild(const BuildInfo& build, std::vector<DoctorLine>* lines);
void CheckModel(const ModelFacts& model, const MachineFacts& machine, std::vector<DoctorLine>* lines);

}  // namespace bellhop::engine
