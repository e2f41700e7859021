// Routes that the device has counted, brought to the host.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "cuda/stream.h"
#include "model/gpu/step_buffers.h"
#include "moe/moe_layer.h"
#include "plan/placement.h"
#include "store/expert_store.h"

namespace bellhop::model {

class GpuCounts {
 public:
  explicit GpuCounts(const plan::Placement& placement) : placement_(placement), totals_(placement) {}

  // Before anything is counted. experts: of the widest layer.
  void Begin(size_t layers, int32_t experts) {
    experts_ = experts;
    seen_routes_.resize(layers * static_cast<size_t>(experts));
    seen_totals_.resize(kLayerTotals * layers);
    misses_.resize(layers);
  }
  // Adds what was counted since the last time. The host waits for the stream.
  Status Fetch(const store::ExpertStore& store, const StepBuffers& buffers, const cuda::Stream& stream);
  moe::RouteCounts& totals() { return totals_; }
  void Reset();

  // Distinct experts without a slot since Reset: those of decode steps, and those that prompts fetched.
  struct Misses {
    uint64_t decode = 0, fetched = 0;
  };
  const std::vector<Misses>& misses() const { return misses_; }  // [layers]

 private:
  const plan::Placement& placement_;
  moe::RouteCounts totals_;
  int32_t experts_ = 0;
  std::vector<uint32_t> seen_routes_;  // [layers][experts] as last fetched
  std::vector<uint64_t> seen_totals_;  // [layers][kLayerTotals]
  std::vector<Misses> misses_;
};

}  // namespace bellhop::model
