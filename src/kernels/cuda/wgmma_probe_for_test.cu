#include "kernels/cuda/wgmma_probe_for_test.h"

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/warp_roles.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace bellhop::kernels {
namespace {

constexpr int kMaxRows = 128;

template <int kN>
__device__ __forceinline__ void Multiply(const WgmmaProbe& probe, const uint8_t* rows) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row = 16 * warp + g;
  auto pair = [&](int m, int k) { return *reinterpret_cast<const uint32_t*>(probe.a + m * 16 + k); };
  const uint32_t a[4] = {pair(row, 2 * t), pair(row + 8, 2 * t), pair(row, 2 * t + 8), pair(row + 8, 2 * t + 8)};
  float d[kN / 2];
  auto result = [&](int i) { return probe.d + (row + i / 2 % 2 * 8) * kN + i / 4 * 8 + 2 * t + i % 2; };
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) d[i] = probe.adds ? *result(i) : 0;
  ShowToTensorCores();
  WgmmaFence();
  WgmmaBf16<kN>(d, a,
                WgmmaFurther(WgmmaRows(SharedAddress(rows)), probe.first_row * kWgmmaRowBytes + probe.columns * 32),
                probe.adds);
  WgmmaCommit();
  WgmmaAwait<0>();
  WgmmaTake<kN / 2>(d);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) *result(i) = d[i];
}

// Four warps multiply, four bring b.
__global__ void __launch_bounds__(256) ProductKernel(WgmmaProbe probe) {
  extern __shared__ uint8_t dynamic[];
  uint8_t* const rows =
      dynamic + (kWgmmaPatternBytes - SharedAddress(dynamic) % kWgmmaPatternBytes) % kWgmmaPatternBytes;
  auto* const full = reinterpret_cast<uint64_t*>(rows + kMaxRows * kWgmmaRowBytes);
  if (threadIdx.x == 0) {
    InitBarrier(full, 128);
    PublishBarriers();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    const int thread = static_cast<int>(threadIdx.x) - 128, count = (probe.first_row + probe.n) * 8;
    for (int i = thread; i < count; i += 128) {
      uint8_t* const to = rows + i / 8 * kWgmmaRowBytes + SwizzledPiece(i % 8, i / 8) * 16;
      if (probe.copies) {
        CopyAsync16(to, probe.b + i * 8, true);
      } else {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(probe.b + i * 8);
      }
    }
    if (probe.copies) {
      ArriveWithCopies(full);
    } else {
      ShowToTensorCores();
      ArriveAt(full);
    }
    return;
  }
  AwaitPhase(full, 0);
  switch (probe.n) {
    case 16: return Multiply<16>(probe, rows);
    case 32: return Multiply<32>(probe, rows);
    case 40: return Multiply<40>(probe, rows);
    case 48: return Multiply<48>(probe, rows);
    case 56: return Multiply<56>(probe, rows);
    case 64: return Multiply<64>(probe, rows);
    default: return;
  }
}

__global__ void __launch_bounds__(128) BulkKernel(BulkProbe probe) {
  extern __shared__ uint8_t dynamic[];
  auto* const full = reinterpret_cast<uint64_t*>(dynamic);
  uint8_t* const data = dynamic + 128;
  const int thread = static_cast<int>(threadIdx.x), piece = probe.bytes / probe.pieces;
  if (thread == 0) {
    InitBarrier(full, 1);
    PublishBarriers();
  }
  __syncthreads();
  if (thread < 32) {
    if (thread == 0) ArriveExpecting(full, static_cast<uint32_t>(probe.bytes));
    __syncwarp();
    if (thread < probe.pieces) {
      CopyBulk(data + thread * piece, probe.from + thread * piece, static_cast<uint32_t>(piece), full);
    }
  }
  AwaitPhase(full, 0);
  for (int i = thread; i < probe.bytes; i += 128) probe.to[i] = data[i];
}

}  // namespace

cudaError_t LaunchWgmmaProbe(const WgmmaProbe& probe, cudaStream_t stream) {
  if (probe.first_row + probe.n > kMaxRows) return cudaErrorInvalidValue;
  ProductKernel<<<1, 256, kMaxRows * kWgmmaRowBytes + kWgmmaPatternBytes + 16, stream>>>(probe);
  return cudaGetLastError();
}

cudaError_t LaunchBulkProbe(const BulkProbe& probe, cudaStream_t stream) {
  BulkKernel<<<1, 128, static_cast<unsigned>(probe.bytes) + 128, stream>>>(probe);
  return cudaGetLastError();
}

}  // namespace bellhop::kernels
