// What this machine offers and what limits it, measured: for `bellhop doctor` and bug reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"

namespace bellhop::engine {

enum class CheckLevel : uint8_t { kOk, kNote, kProblem };

struct DoctorLine {
  std::string group;  // "CPU", "Memory", "Limits", "Measured", "GPU", "Calibration", "Build", "Model"
  std::string name;   // "instruction sets"
  std::string value;  // "avx512 (avx2, reference)"
  CheckLevel level = CheckLevel::kOk;
  std::string remedy;  // what to do about a note or problem; empty for kOk
};

struct DoctorOptions {
  bool measure = true;  // bandwidth and pool latency; about two seconds
  int32_t threads = 0;
  std::string model_path;                      // also say whether this model fits; empty: none
  config::CalibrationConfig calibration = {};  // where a stored one is looked up
};

struct DoctorReport {
  std::vector<DoctorLine> lines;
  double read_gb_per_s = 0, pool_round_trip_ns = 0;
  bool problems() const;
};

// Failure: bad options, or a model file that cannot be opened; whatever is wrong with the machine is a line.
Result<DoctorReport> Diagnose(const DoctorOptions& options);

}  // namespace bellhop::engine
