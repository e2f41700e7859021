#include "plan/gpu_plan.h"

#include <algorithm>

#include "base/units.h"

namespace bellhop::plan {
namespace {

using config::RuntimeConfig;

Result<uint64_t> VramBudget(const RuntimeConfig& runtime, uint64_t free_bytes) {
  if (!runtime.vram_bytes) return free_bytes - VramReserve(free_bytes);
  if (*runtime.vram_bytes <= free_bytes) return *runtime.vram_bytes;
  return OutOfMemory("--vram {}: {} of GPU memory are free; lower --vram or close other programs that use the GPU",
                     FormatBytes(*runtime.vram_bytes), FormatBytes(free_bytes));
}

// Bytes of the misses of a layer that rings, on average: what the lane is chosen for.
uint64_t MissBytesPerRing(const std::vector<ExpertLayerInfo>& layers, const Popularity& popularity,
                          const Placement& placement, const DecodePrediction& prediction) {
  double bytes = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    for (int32_t e = 0; e < layers[l].experts(); ++e) {
      if (placement.IsHit(LayerId(static_cast<int32_t>(l)), ExpertId(e))) continue;
      const auto i = static_cast<size_t>(e);
      bytes += popularity.routes[l][i] * static_cast<double>(layers[l].expert_bytes[i]);
    }
  }
  return prediction.ringing_layers > 0 ? static_cast<uint64_t>(bytes / prediction.ringing_layers) : 0;
}

// Under --deterministic kAuto never splits, so neither do the rates that placement goes by.
MachineConstants UsableRates(const RuntimeConfig& runtime, MachineConstants rates) {
  if (runtime.deterministic) rates.both_dram_gbps = rates.both_pcie_gbps = 0;
  return rates;
}

struct Asked {
  const RuntimeConfig& runtime;
  const std::vector<ExpertLayerInfo>& layers;
  const Popularity& popularity;
  uint64_t vram_bytes = 0;
  uint64_t token_bytes = 0;
};

Result<GpuPlan> PlanWithLane(const Asked& asked, config::MissLane lane, const MachineConstants& machine,
                             const VramCharges& charges) {
  const RuntimeConfig& runtime = asked.runtime;
  GpuPlan plan;
  plan.used = true;
  plan.vram_bytes = asked.vram_bytes;
  BELLHOP_TRY_ASSIGN(const uint64_t budget, ExpertBudget(plan.vram_bytes, charges));
  const MachineConstants rates = UsableRates(runtime, machine);
  // A lane that cannot be had is an error before anything goes by its rate.
  BELLHOP_TRY_ASSIGN(plan.lane, ChooseMissLane(lane, machine, 0, runtime.deterministic));
  const bool whole = runtime.offload == config::OffloadMode::kOff;
  if (whole && (runtime.gpu_experts || runtime.gpu_experts_percent)) {
    return InvalidArgument("--gpu-experts places experts on CPU and GPU, which --offload off excludes; drop one");
  }
  BELLHOP_TRY_ASSIGN(plan.experts, PlaceExperts({.layers = asked.layers,
                                                 .popularity = asked.popularity,
                                                 .machine = rates,
                                                 .lane = lane,
                                                 .budget_bytes = budget,
                                                 .per_layer = runtime.gpu_experts,
                                                 .percent = runtime.gpu_experts_percent}));
  const Placement& placement = plan.experts.placement;
  if (whole && placement.resident() < placement.total()) {
    return OutOfMemory("--offload off: {} of {} experts fit {} of GPU memory; use --offload auto", placement.resident(),
                       placement.total(), FormatBytes(budget));
  }
  PredictionInput input{.layers = asked.layers,
                        .popularity = asked.popularity,
                        .placement = placement,
                        .dense_bytes = asked.token_bytes,
                        .machine = rates,
                        .lane = lane};
  const uint64_t bytes = MissBytesPerRing(asked.layers, asked.popularity, placement, PredictDecode(input));
  BELLHOP_TRY_ASSIGN(plan.lane, ChooseMissLane(lane, machine, bytes, runtime.deterministic));
  plan.staging_bytes = charges.staging_bytes;
  input.lane = plan.lane.lane;
  plan.prediction = PredictDecode(input);
  plan.deadline_ns = DoorbellDeadlineNs(plan.prediction.ms_per_token());
  if (asked.popularity.even && placement.resident() < placement.total()) {
    plan.notes.push_back(
        "no expert profile: every layer gets the same share of slots; --profile (`bellhop profile`) "
        "raises the hit rate");
  }
  return plan;
}

bool NeedsStaging(const GpuPlan& plan) {
  return plan.lane.lane != config::MissLane::kCpu && plan.experts.placement.resident() < plan.experts.placement.total();
}

// Staging takes room from slots, so it is charged to plans alone that make the GPU read misses.
Result<GpuPlan> PlanWithin(const RuntimeConfig& runtime, const GpuInfo& gpu, const GpuNeeds& needs,
                           const Popularity& popularity, const std::vector<ExpertLayerInfo>& layers) {
  Asked asked{.runtime = runtime,
              .layers = layers,
              .popularity = popularity,
              .vram_bytes = 0,
              .token_bytes = needs.token_bytes};
  BELLHOP_TRY_ASSIGN(asked.vram_bytes, VramBudget(runtime, gpu.free_bytes));
  VramCharges charges = needs.charges;
  charges.staging_bytes = 0;
  auto plan = PlanWithLane(asked, runtime.miss_lane, gpu.rates, charges);
  if (!plan.ok() || needs.charges.staging_bytes == 0 || !NeedsStaging(*plan)) return plan;
  auto staged = PlanWithLane(asked, runtime.miss_lane, gpu.rates, needs.charges);
  if (runtime.miss_lane != config::MissLane::kAuto || (staged.ok() && NeedsStaging(*staged))) return staged;
  plan = PlanWithLane(asked, config::MissLane::kCpu, gpu.rates, charges);
  if (plan.ok() && !staged.ok()) {
    plan->notes.push_back(
        fmt::format("--miss-lane auto: the CPU alone computes misses: {}", staged.status().message()));
  }
  return plan;
}

}  // namespace

std::string_view AskedForGpu(const RuntimeConfig& runtime) {
  if (runtime.device == config::Device::kCuda) return "--device cuda";
  if (runtime.offload == config::OffloadMode::kRequired) return "--offload required";
  if (runtime.vram_bytes.value_or(0) > 0) return "--vram above 0";
  if (runtime.gpu_experts.value_or(0) > 0 || runtime.gpu_experts_percent.value_or(0) > 0) {
    return "--gpu-experts above 0";
  }
  if (runtime.miss_lane == config::MissLane::kPcie) return "--miss-lane pcie";
  if (runtime.miss_lane == config::MissLane::kSplit) return "--miss-lane split";
  return {};
}

uint64_t VramReserve(uint64_t free_bytes) {
  constexpr uint64_t kLeast = uint64_t{256} << 20;
  return std::min(free_bytes, std::max(kLeast, free_bytes / 50));
}

Result<GpuPlan> PlanGpu(const manifest::Manifest& manifest, const RuntimeConfig& runtime, const GpuInfo& gpu,
                        const GpuNeeds& needs, const ExpertProfile* profile) {
  if (runtime.device == config::Device::kCpu || (runtime.vram_bytes && *runtime.vram_bytes == 0)) {
    const char* const excludes = runtime.device == config::Device::kCpu ? "--device cpu" : "--vram 0";
    const std::string_view asked = AskedForGpu(runtime);
    if (!asked.empty()) return InvalidArgument("{} needs the GPU, which {} excludes; drop one", asked, excludes);
    GpuPlan plan;
    plan.notes.push_back(fmt::format("no GPU used: {}", excludes));
    return plan;
  }
  const std::vector<ExpertLayerInfo> layers = ExpertLayers(manifest);
  Popularity popularity = EvenPopularity(layers);
  if (profile != nullptr) {
    auto known = PopularityFromProfile(layers, *profile);
    if (!known.ok()) return known.status().WithContext("--profile");
    popularity = std::move(*known);
  }
  auto plan = PlanWithin(runtime, gpu, needs, popularity, layers);
  if (plan.ok() || !AskedForGpu(runtime).empty() || plan.status().code() != StatusCode::kOutOfMemory) return plan;
  GpuPlan without;
  without.notes.push_back(fmt::format("no GPU used: {}", plan.status().message()));
  return without;
}

}  // namespace bellhop::plan
