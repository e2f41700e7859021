// From file rows or planes to tiles (device_matrix.h), on the device. CUDA builds alone.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/launch_queue.h"
#include "kernels/cuda/device_matrix.h"

namespace bellhop::kernels {

struct PackArgs {
  quant::WeightFormat format = quant::WeightFormat::kF32;  // of the rows
  const uint8_t* from = nullptr;                           // [rows][row_bytes], memory that the device reads
  int64_t row_bytes = 0;
  // Planar formats.
  const uint8_t* scales = nullptr;  // [rows][scale_row_bytes]
  int64_t scale_row_bytes = 0;
  int32_t scale_group = 0;
  int32_t rows = 0, cols = 0;
  uint8_t* to = nullptr;  // DeviceMatrixBytes of the tiles' format, aligned to 16
};

// cudaErrorInvalidValue for a format without tiles.
cudaError_t LaunchPackTiles(const PackArgs& args, const cuda::LaunchQueue& queue);

}  // namespace bellhop::kernels
