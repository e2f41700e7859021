// Which experts get a GPU slot: by the time that a slot saves per byte, over all layers. Pure and deterministic; the
// placement for a larger budget contains that for a smaller one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/machine_constants.h"
#include "plan/placement.h"
#include "plan/popularity.h"

namespace bellhop::plan {

// Slots begin on multiples of this, for loads of any width and for copies.
inline constexpr uint64_t kSlotAlignment = 256;

// All slots of one layer, of one size: that of the layer's largest expert.
struct Bank {
  uint64_t slot_bytes = 0;
  std::vector<ExpertId> experts;  // of slot 0, 1, …; ascending

  uint64_t bytes() const { return slot_bytes * experts.size(); }
};

struct GpuPlacement {
  Placement placement;
  std::vector<Bank> banks;  // [layers]
  uint64_t bank_bytes = 0;
  double residency = 0;  // share of expert bytes in slots
};

// GPU memory that something other than experts takes, charged first.
struct VramCharges {
  uint64_t dense_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t graph_bytes = 0;
  uint64_t staging_bytes = 0;  // of misses that the GPU reads over PCIe; 0 where none can be
};

// What is left for experts of --vram. kOutOfMemory with the needs when it does not hold the charges.
Result<uint64_t> ExpertBudget(uint64_t vram_bytes, const VramCharges& charges);

struct PlacementRequest {
  const std::vector<ExpertLayerInfo>& layers;
  const Popularity& popularity;
  MachineConstants machine;
  config::MissLane lane = config::MissLane::kAuto;
  uint64_t budget_bytes = 0;  // of banks
  // --gpu-experts: this many in each layer, or this share of all slots' bytes. None: as many as the budget holds.
  std::optional<uint32_t> per_layer = {};
  std::optional<double> percent = {};
};

// kOutOfMemory when --gpu-experts asks for more than the budget holds; kInvalidArgument for a share outside of 0..100,
// for popularity of another shape, or a machine without rates.
Result<GpuPlacement> PlaceExperts(const PlacementRequest& request);

}  // namespace bellhop::plan
