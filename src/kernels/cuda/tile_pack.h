// From file rows to tiles (device_matrix.h), on the device. CUDA builds alone.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/launch_queue.h"
#include "kernels/cuda/device_matrix.h"

namespace bellhop::kernels {

struct PackArgs {
  quant::WeightFormat format = quant::WeightFormat::kF32;
  const uint8_t* from = nullptr;  // [rows][row_bytes], memory that the device reads
  int64_t row_bytes = 0;
  int32_t rows = 0, cols = 0;
  uint8_t* to = nullptr;  // DeviceMatrixBytes, aligned to 16
};

// cudaErrorInvalidValue for a format without tiles.
cudaError_t LaunchPackTiles(const PackArgs& args, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
