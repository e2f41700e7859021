// The calibration of a machine, as `bellhop doctor --calibrate` stores it and plans read it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "cuda/device_info.h"
#include "plan/machine_constants.h"

namespace bellhop::engine {

// What rates depend on. A calibration holds for the machine whose identity is equal.
struct MachineIdentity {
  std::string cpu;  // model
  int cores = 0;    // physical ones that this process may use
  // Of the GPU that is used; all empty without one.
  std::string gpu, gpu_pci, driver;
  friend bool operator==(const MachineIdentity&, const MachineIdentity&) = default;
};
// `gpu`: null for none.
MachineIdentity IdentifyMachine(std::string cpu, int cores, const cuda::DeviceInfo* gpu);
// As files and `--json` have it.
nlohmann::ordered_json MachineJson(const MachineIdentity& machine);

struct Calibration {
  std::string date;  // UtcTimestamp()
  MachineIdentity machine;
  int threads = 0;                 // that read host memory
  plan::MachineConstants rates;    // 0: not measured; dram_gbps always is
  std::vector<std::string> notes;  // why something was not measured
};

// Its rates in words; "not measured" for those that are missing.
struct CalibrationLine {
  std::string name, value;
};
std::vector<CalibrationLine> DescribeRates(const Calibration& calibration);

// kNotFound; kCorrupt names the file and the field; kUnsupported for another version of the format.
Result<Calibration> ReadCalibration(const std::string& path);

// Makes the folder that the calibration is stored in, unless the user named the path. kInvalidArgument without a path;
// kIo or kNotFound name what cannot be made or does not exist.
Status PrepareCalibrationFolder(const config::CalibrationConfig& where);
// Prepares the folder too. Readers see the old file or the new one. kIo names what cannot be written.
Status WriteCalibration(const config::CalibrationConfig& where, const Calibration& calibration);

// The rates that plans go by: those stored for this machine, else plan::DefaultConstants. What a stored calibration has
// not measured of the GPU as a whole is the default too; a lane that alone was not measured stays without a rate.
struct MachineRates {
  plan::MachineConstants constants;
  bool measured = false;           // nothing of the GPU is a default
  std::vector<std::string> notes;  // why rates are defaults, and what to do about it
};
// An error only where the user named a file that cannot be used, is corrupt or of another machine.
// `gpu_memory_gbps`: cuda::DeviceInfo::memory_gbps.
Result<MachineRates> FindRates(const config::CalibrationConfig& where, const MachineIdentity& machine,
                               double gpu_memory_gbps);

// The stored calibration if it is this machine's; why not otherwise.
Result<Calibration> ReadCalibrationOf(const std::string& path, const MachineIdentity& machine);

}  // namespace bellhop::engine
