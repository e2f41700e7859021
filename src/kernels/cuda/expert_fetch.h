// The PCIe lane: misses that the GPU computes itself. A kernel between the router and fc1 reads the missing experts
// from host memory, packs them as LaunchPackTiles does and leaves them in a staging bank, where fc1 and fc2 find them
// like hits. Alone, or for a part of fc1's results while the CPU computes the rest (the split lane). CUDA builds alone.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/launch_queue.h"
#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {

// An expert's matrices in registered or pinned host memory at the device's addresses: file rows one behind the other,
// at any alignment; of planar matrices the codes' rows and, elsewhere, those of the scales. What is read are pieces of
// 16 bytes at multiples of 16, so nothing outside of the pages that hold a byte of the matrix.
struct FetchSource {
  const uint8_t *gate = nullptr, *up = nullptr, *down = nullptr;
  const uint8_t *gate_scales = nullptr, *up_scales = nullptr, *down_scales = nullptr;
};

struct FetchArgs {
  const FetchSource* sources = nullptr;  // [experts] of the layer, device memory
  DeviceMatrix gate, up, down;           // of every expert; no data
  StagedMisses misses;
  StagingBank staging;
  InnerRange inner;
  int32_t used = 0, experts = 0;  // of the layer: what a step can miss at most
  // [experts + 1], where each expert's routes begin (PromptSortArgs): those without routes are not read. Null: all are.
  const int32_t* route_offsets = nullptr;
  uint64_t* fetched = nullptr;  // [1], += experts that are read; null: not wanted
};
// False: matrices whose rows are too short or too odd to be cut (InnerStep). Addresses are not looked at.
bool CanFetch(const FetchArgs& args);
// cudaErrorInvalidValue: what CanFetch refuses.
cudaError_t LaunchExpertFetch(const FetchArgs& args, int32_t bucket, const cuda::LaunchQueue& queue);

// What the lane adds to a layer; the host fills it in once.
struct PcieLane {
  const FetchSource* sources = nullptr;  // [experts], device memory
  StagedMisses misses;                   // all layers may share these two: a layer is done with them before the next
  StagingBank staging;                   // [min(rows * used, experts)] slots
  InnerRange inner;
  bool splits = false;  // the CPU is asked too
};

inline void AddPcieLane(const PcieLane& lane, RouterArgs* router) {
  router->ring_misses = lane.splits;
  router->staged = lane.misses;
  router->first_staging_slot = lane.staging.first_slot;
}
inline void AddPcieLane(const PcieLane& lane, ExpertArgs* experts) {
  experts->bank.staging = lane.staging;
  experts->bank.staged_inner = lane.inner;
  experts->waits = lane.splits;
}
inline FetchArgs FetchOf(const PcieLane& lane, const ExpertBank& bank, int32_t used, int32_t experts) {
  return {.sources = lane.sources,
          .gate = bank.gate,
          .up = bank.up,
          .down = bank.down,
          .misses = lane.misses,
          .staging = lane.staging,
          .inner = lane.inner,
          .used = used,
          .experts = experts};
}

}  // namespace bellhop::kernels
