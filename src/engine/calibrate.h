// Measures the rates that plans for the GPU go by.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "cuda/device.h"
#include "engine/calibration_file.h"

namespace bellhop::engine {

struct CalibrateOptions {
  int32_t threads = 0;  // as for the engine's pool
  // Of buffers: first touch takes some seconds per GiB in a virtual machine.
  uint64_t max_buffer_bytes = uint64_t{2} << 30;
  int passes = 5;             // over each buffer
  double both_seconds = 0.5;  // that CPU and GPU read at the same time
};

// GB/s at which kernels read the device's memory, of a part of the free bytes; the median.
Result<double> MeasureHbm(cuda::Device* device, uint64_t free_bytes, int passes);

// Takes some seconds, and some GiB of host and GPU memory while it runs. Without a usable GPU the calibration has the
// CPU's rate alone, and a note says why; a machine that should be idle is the caller's business.
Result<Calibration> Calibrate(const CalibrateOptions& options);

}  // namespace bellhop::engine
