// Test support: single pieces of what prompt_wgmma.cuh relies on, each launched by itself. sm_90a.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace bellhop::kernels {

// d = a * b, one product of a warpgroup.
struct WgmmaProbe {
  const uint16_t* a = nullptr;  // [64][16], bf16
  const uint16_t* b = nullptr;  // [first_row + n][64], bf16
  float* d = nullptr;           // [64][n]; read if it adds
  int32_t n = 0;                // 16, 32, 40, 48, 56, 64
  int32_t first_row = 0;        // of b, a multiple of 8
  int32_t columns = 0;          // of b, from 16 * this on
  bool adds = false;
  bool copies = false;  // b comes by asynchronous copies of other warps, not by stores
};
cudaError_t LaunchWgmmaProbe(const WgmmaProbe& probe, cudaStream_t stream);

// `bytes` to shared memory in `pieces` bulk copies that count at one barrier, and from there to `to`.
struct BulkProbe {
  const uint8_t* from = nullptr;
  uint8_t* to = nullptr;
  int32_t bytes = 0, pieces = 0;
};
cudaError_t LaunchBulkProbe(const BulkProbe& probe, cudaStream_t stream);

}  // namespace bellhop::kernels
