// What one GPU gets to do: from budgets, flags and a profile to slots, a miss lane and a prediction. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "manifest/manifest.h"
#include "plan/expert_profile.h"
#include "plan/gpu_placement.h"
#include "plan/machine_constants.h"
#include "plan/miss_lane.h"
#include "plan/prediction.h"

namespace bellhop::plan {

struct GpuInfo {
  uint64_t free_bytes = 0;  // now
  MachineConstants rates;
};

struct GpuNeeds {
  VramCharges charges;       // of the model on the GPU
  uint64_t token_bytes = 0;  // dense weights and KV cache that a token reads
  uint64_t host_bytes = 0;   // host memory beside the experts: the CPU's part of the work
};

struct GpuPlan {
  bool used = false;  // false: the CPU alone, for the reason in `notes`; nothing below is set
  uint64_t vram_bytes = 0;
  GpuPlacement experts;
  MissLaneChoice lane;
  uint64_t staging_bytes = 0;  // of the charges, when the lane needs them
  DecodePrediction prediction;
  uint64_t deadline_ns = 0;
  std::vector<std::string> notes;
};

// The first flag that would be ignored without a GPU; empty: none was given.
std::string_view AskedForGpu(const config::RuntimeConfig& runtime);

// GPU memory that --vram auto leaves to the driver and to others.
uint64_t VramReserve(uint64_t free_bytes);

// --device cpu and --vram 0: not used. --offload off: every expert in a slot, or the GPU is not used; auto and
// required: as many as fit. --miss-lane auto: the CPU's where there is no room for the staging of the others. What
// keeps the GPU from being used is a note with --device auto, and an error with a flag for which AskedForGpu has a
// name. Further errors as for PlaceExperts, ChooseMissLane and profiles of other models.
Result<GpuPlan> PlanGpu(const manifest::Manifest& manifest, const config::RuntimeConfig& runtime, const GpuInfo& gpu,
                        const GpuNeeds& needs, const ExpertProfile* profile);

}  // namespace bellhop::plan
