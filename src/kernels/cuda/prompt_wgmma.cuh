// Rows of x times weights in tiles on Hopper's tensor cores. A block stays on its multiprocessor and goes through
// items, each up to 192 rows times eight tiles of 16 output rows. One warpgroup fetches: rows of x by route, and
// weights as they lie, through rings of stages. Two warpgroups multiply 64 output rows each: they decode weights into
// registers and scale sums while the other's products run. The kernel, for the sources that instantiate it.
#pragma once

#include <iterator>

#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/prompt_wgmma_store.cuh"
#include "kernels/cuda/prompt_wgmma_sums.cuh"

namespace bellhop::kernels {
namespace prompt_wgmma {

// Of a thread: what fetches needs few, what multiplies as many as there are.
constexpr int kFetchRegisters = 40, kMultiplyRegisters = 232;
// The block has what it was launched with, as many for each thread; more would wait for ever.
constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
static_assert(kFetchRegisters + kMultipliers * kMultiplyRegisters <= (1 + kMultipliers) * kLaunchRegisters);

template <typename Format, int kN>
__device__ __forceinline__ void MultiplyItem(const PromptProduct& p, Multiplier<Format>* m, const Item& item,
                                             Shared<Format>* shared, const int32_t* routes) {
  float acc[kN / 2] = {};
  m->template Sum<kN>(acc);
  uint8_t* const share = shared->share[threadIdx.x / 128 - 1];
  if (p.activates) {
    StoreActivations<kN>(p, item, share, acc);
  } else {
    StoreResults<kN>(p, item, routes, acc);
  }
}

// The narrowest kind that holds the item.
template <typename Format, int kAt = 0>
__device__ __forceinline__ void MultiplyWidth(const PromptProduct& p, Multiplier<Format>* m, const Item& item,
                                              Shared<Format>* shared, const int32_t* routes) {
  constexpr int kWidth = kWgmmaWidths[kAt];
  if (kWidth == kWgmmaMaxRows || item.group.count <= kWidth) {
    MultiplyItem<Format, kWidth>(p, m, item, shared, routes);
  } else if constexpr (kAt + 1 < static_cast<int>(std::size(kWgmmaWidths))) {
    MultiplyWidth<Format, kAt + 1>(p, m, item, shared, routes);
  }
}

template <typename Format>
__device__ __forceinline__ void Multiply(const PromptProduct& p, Shared<Format>* shared) {
  Multiplier<Format> m(p, shared);
  for (int turn = 0;; turn ^= 1) {
    const Item item = m.Await();
    if (item.block < 0) return;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    int32_t* const routes = shared->routes[threadIdx.x / 128 - 1][turn];
    if (p.scatters) {
      for (int n = thread; n < item.group.count; n += 128) {
        CopyAsync4(routes + n, p.order + item.group.first + n);
      }
      CommitCopies();
    }
    MultiplyWidth(p, &m, item, shared, routes);
  }
}

// Grid: as many blocks as there are multiprocessors, or less.
template <typename Format>
__global__ void __launch_bounds__(kThreads, 1) WgmmaKernel(const __grid_constant__ PromptProduct p) {
  extern __shared__ uint8_t dynamic[];
  const uint32_t behind = SharedAddress(dynamic) % kWgmmaPatternBytes;
  auto* const shared =
      reinterpret_cast<Shared<Format>*>(dynamic + (behind == 0 ? 0 : kWgmmaPatternBytes - static_cast<int>(behind)));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int s = 0; s < Stages<Format>::kRows; ++s) {
      InitBarrier(&shared->rows_full[s], kRowWarps * 32);
      InitBarrier(&shared->rows_empty[s], kMultiplierWarps);
    }
    for (int s = 0; s < Stages<Format>::kCount; ++s) {
      InitBarrier(&shared->weights_full[s], 1);
      InitBarrier(&shared->weights_empty[s], kMultiplierWarps);
    }
    PublishBarriers();
  }
  shared->tables.Fill(p.books.iq3xxs_grid);
  __syncthreads();
  LetNextStart();
  AwaitPrevious();
  if (thread >= 128) {
    TakeRegisters<kMultiplyRegisters>();
    Multiply(p, shared);
  } else {
    GiveRegisters<kFetchRegisters>();
    if (thread < kRowWarps * 32) {
      FetchRows(p, shared);
    } else {
      FetchWeights(p, shared);
    }
  }
}

template <typename Format>
cudaError_t LaunchAs(const PromptProduct& p, const cuda::LaunchQueue& queue) {
  constexpr int kBytes = kSharedBytes<Format>;
  static_assert(kBytes <= 227 * 1024);
  const cudaError_t error =
      cudaFuncSetAttribute(WgmmaKernel<Format>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  if constexpr (Format::kMins) {
    const cudaError_t summed = LaunchGroupSums(p.x, p.tiles != nullptr && !p.gathers ? p.rows * p.used : p.rows, queue);
    if (summed != cudaSuccess) return summed;
  }
  PromptProduct own = p;
  if (p.tiles == nullptr) own.tile_rows = WgmmaTileRows(p.rows, Blocks(p), p.device.multiprocessors);
  const int64_t tiles = p.tiles != nullptr ? p.max_tiles : (p.rows + own.tile_rows - 1) / own.tile_rows;
  const int64_t items = tiles * Blocks(p);
  return cuda::Launch(
      queue, prompt_gemm::CostOf(p),
      {.grid = dim3(static_cast<unsigned>(items < p.device.multiprocessors ? items : p.device.multiprocessors)),
       .block = dim3(kThreads),
       .shared_bytes = kBytes,
       .overlap = true,
       .shared_carveout = 100},
      WgmmaKernel<Format>, own);
}

}  // namespace prompt_wgmma
}  // namespace bellhop::kernels
