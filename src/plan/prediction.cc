#include "plan/prediction.h"

#include <algorithm>

namespace bellhop::plan {
namespace {

const char* MissResource(const MachineConstants& machine, config::MissLane lane) {
  const double rate = machine.MissGbps(lane);
  if (lane == config::MissLane::kCpu || (lane == config::MissLane::kAuto && rate == machine.dram_gbps)) {
    return "host memory";
  }
  if (lane == config::MissLane::kPcie || (lane == config::MissLane::kAuto && rate == machine.pcie_gbps)) return "PCIe";
  return "host memory and PCIe";
}

}  // namespace

DecodePrediction PredictDecode(const PredictionInput& input) {
  DecodePrediction result;
  double gpu_bytes = static_cast<double>(input.dense_bytes), miss_bytes = 0, hits = 0, routes = 0;
  for (size_t l = 0; l < input.layers.size(); ++l) {
    double quiet = 1;  // chance that the layer does not ring
    for (int32_t e = 0; e < input.layers[l].experts(); ++e) {
      const auto i = static_cast<size_t>(e);
      const double p = input.popularity.routes[l][i];
      const double bytes = p * static_cast<double>(input.layers[l].expert_bytes[i]);
      const bool hit = input.placement.IsHit(LayerId(static_cast<int32_t>(l)), ExpertId(e));
      routes += p;
      hits += hit ? p : 0;
      (hit ? gpu_bytes : miss_bytes) += bytes;
      if (!hit) quiet *= 1 - p;
    }
    result.ringing_layers += 1 - quiet;
  }
  result.hit_rate = routes > 0 ? hits / routes : 1;
  const double bytes_per_ms = 1e6;  // of 1 GB/s
  result.gpu_ms = gpu_bytes / (input.machine.hbm_gbps * bytes_per_ms);
  result.miss_ms = miss_bytes / (input.machine.MissGbps(input.lane) * bytes_per_ms);
  result.sync_ms = result.ringing_layers * input.machine.MissUs(input.lane) * 1e-3;
  if (result.gpu_ms >= result.miss_ms && result.gpu_ms >= result.sync_ms) {
    result.bound = "GPU memory";
  } else {
    result.bound = result.miss_ms >= result.sync_ms ? MissResource(input.machine, input.lane) : "synchronisation";
  }
  return result;
}

uint64_t DoorbellDeadlineNs(double ms_per_step) {
  constexpr double kLeastMs = 10'000, kSteps = 100, kMostMs = 3'600'000;
  return static_cast<uint64_t>(std::clamp(kSteps * ms_per_step, kLeastMs, kMostMs) * 1e6);
}

}  // namespace bellhop::plan
