// The PCIe lane of a model: host memory that the GPU may read, the staging bank, and how each layer's misses are shared
// between GPU and CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "kernels/cuda/expert_fetch.h"
#include "model/gpu/gpu_layers.h"
#include "model/gpu/prompt_waves.h"
#include "model/gpu_model.h"
#include "model/spec.h"
#include "plan/gpu_placement.h"
#include "store/expert_store.h"
#include "sys/cpu_features.h"

namespace bellhop::model {

// Slots for the misses of any layer in a step of any size.
uint64_t StagingBankBytes(const ModelSpec& spec, const store::ExpertStore& store);

// Where an expert's bytes lie on the host.
kernels::FetchSource SourceOf(const store::ExpertView& expert);

// Half-open ranges of the host memory of all experts of layers that have misses.
std::vector<cuda::AddressRange> RangesOfMisses(const store::ExpertStore& store, const plan::Placement& placement);

// Registers that memory, so that the device reads it where it lies. All of it or nothing.
Result<std::vector<cuda::RegisteredHost>> RegisterMisses(const store::ExpertStore& store,
                                                         const plan::Placement& placement, cuda::Device* device);

class PcieLanes {
 public:
  // Nothing for lane kCpu, or without misses. Errors name what stands in the way and the remedy.
  static Result<PcieLanes> Create(const ModelSpec& spec, const store::ExpertStore& store,
                                  const plan::Placement& placement, const plan::MissLaneChoice& lane,
                                  const sys::CpuCaps& caps, const StepBuffers& buffers, const cuda::Stream& stream);

  // Null: the layer has no misses, or its misses are the CPU's alone.
  const kernels::PcieLane* layer(size_t layer) const {
    return layers_[layer].sources == nullptr ? nullptr : &layers_[layer];
  }
  // The CPU's part of a layer's inner dimension; an empty range: all of it.
  const std::vector<RowRange>& cpu_inner() const { return cpu_inner_; }
  // A layer's misses can ring.
  bool rings() const { return rings_; }
  // Of a layer's misses, what the GPU reads.
  double gpu_share(size_t layer) const { return gpu_shares_[layer]; }
  // The memory of RangesOfMisses is registered.
  bool registered() const { return !registered_.empty(); }

 private:
  Status ChooseParts(const ModelSpec& spec, const store::ExpertStore& store, const plan::Placement& placement,
                     const plan::MissLaneChoice& lane, const sys::CpuCaps& caps);

  std::vector<cuda::RegisteredHost> registered_;
  cuda::DeviceBuffer staging_;
  std::vector<kernels::PcieLane> layers_;
  std::vector<RowRange> cpu_inner_;
  std::vector<double> gpu_shares_;
  bool rings_ = false;
};

}  // namespace bellhop::model
