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
    seen_distinct_.resize(2 * layers);
  }
  // Adds what was counted since the last time. The host waits for the stream.
  Status Fetch(const store::ExpertStore& store, const StepBuffers& buffers, const cuda::Stream& stream);
  moe::RouteCounts& totals() { return totals_; }

 private:
  const plan::Placement& placement_;
  moe::RouteCounts totals_;
  int32_t experts_ = 0;
  std::vector<uint32_t> seen_routes_;    // [layers][experts] as last fetched
  std::vector<uint64_t> seen_distinct_;  // [layers][2]
};

}  // namespace bellhop::model
