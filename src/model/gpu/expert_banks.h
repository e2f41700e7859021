// Slots in GPU memory, filled with experts, and the tables that say where each is.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "cuda/memory.h"
#include "model/gpu/device_weights.h"
#include "model/gpu/step_buffers.h"
#include "plan/gpu_placement.h"
#include "store/expert_store.h"

namespace bellhop::model {

class ExpertBanks {
 public:
  ExpertBanks() = default;
  // Copies the experts that have slots, and fills the step's tables. The host waits for the stream.
  static Result<ExpertBanks> Create(const store::ExpertStore& store, const plan::GpuPlacement& placement,
                                    const StepBuffers& buffers, WeightUploader* uploader, const cuda::Stream& stream);

  // [layers], of slot 0; null for layers without experts.
  const std::vector<uint8_t*>& bases() const { return bases_; }

 private:
  cuda::DeviceBuffer memory_;
  std::vector<uint8_t*> bases_;
};

}  // namespace bellhop::model
