// What a placement should give, before anything is loaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "plan/machine_constants.h"
#include "plan/placement.h"
#include "plan/popularity.h"

namespace bellhop::plan {

// One row per step. Times are those of the bytes at the machine's rates, one after the other: a bound that no step
// beats by more than the overlap of GPU and CPU.
struct DecodePrediction {
  double hit_rate = 0;        // of routes; 1 without experts
  double ringing_layers = 0;  // per token
  double gpu_ms = 0;          // dense weights, KV cache and hits out of GPU memory
  double miss_ms = 0;         // misses over the lane
  double sync_ms = 0;
  std::string bound;  // the largest of the three: "GPU memory", "host memory", "PCIe", "host memory and PCIe",
                      // "synchronisation"
  double ms_per_token() const { return gpu_ms + miss_ms + sync_ms; }
};

struct PredictionInput {
  const std::vector<ExpertLayerInfo>& layers;
  const Popularity& popularity;
  const Placement& placement;
  uint64_t dense_bytes = 0;  // that a token reads: dense weights and its KV cache
  MachineConstants machine;
  config::MissLane lane = config::MissLane::kAuto;
};

// Sizes of layers, popularity and placement agree, and rates are positive (PlaceExperts has checked them).
DecodePrediction PredictDecode(const PredictionInput& input);

// How long a GPU waits for the CPU before it takes it for dead: 10 s, or 100 times what a step should take if that is
// longer (an hour at most). The engine waits without end (0) where threads run far slower than they should, as under a
// debugger.
uint64_t DoorbellDeadlineNs(double ms_per_step);

}  // namespace bellhop::plan
