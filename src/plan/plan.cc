#include "plan/plan.h"

#include <algorithm>

#include "base/units.h"

namespace bellhop::plan {
namespace {

using config::RuntimeConfig;

// Flags that ask for a GPU are errors without one: nothing falls back silently.
Status CheckDevice(const RuntimeConfig& runtime, const MachineInfo& machine) {
  if (machine.gpus > 0) return Status();
  const std::string& why = machine.no_gpu_reason;
  if (runtime.device == config::Device::kCuda) return InvalidArgument("--device cuda: {}", why);
  if (runtime.offload == config::OffloadMode::kRequired) return InvalidArgument("--offload required: {}", why);
  if (runtime.vram_bytes.value_or(0) > 0) return InvalidArgument("--vram above 0: {}", why);
  if (runtime.gpu_experts.value_or(0) > 0 || runtime.gpu_experts_percent.value_or(0) > 0) {
    return InvalidArgument("--gpu-experts above 0: {}", why);
  }
  if (runtime.miss_lane == config::MissLane::kPcie || runtime.miss_lane == config::MissLane::kSplit) {
    return InvalidArgument("--miss-lane pcie and split need a GPU: {}", why);
  }
  return Status();
}

Status CheckProfile(const manifest::Manifest& manifest, const ExpertProfile& profile) {
  const auto layers = static_cast<int32_t>(manifest.hparams.layers);
  const auto experts = static_cast<int32_t>(manifest.hparams.experts.count);
  if (profile.layers == layers && profile.experts == experts) return Status();
  return InvalidArgument(
      "--profile: made for {} layers of {} experts, the model has {} of {}; make one with `bellhop "
      "profile`",
      profile.layers, profile.experts, layers, experts);
}

}  // namespace

Result<Plan> MakePlan(const manifest::Manifest& manifest, const MachineInfo& machine, const RuntimeConfig& runtime,
                      const MemoryNeeds& needs, const ExpertProfile* profile) {
  BELLHOP_TRY(CheckDevice(runtime, machine));
  if (profile != nullptr) BELLHOP_TRY(CheckProfile(manifest, *profile));

  Plan plan;
  std::vector<int32_t> experts_per_layer(manifest.hparams.layers, 0);
  uint64_t expert_bytes = 0;
  for (const manifest::ExpertLayer& layer : manifest.expert_layers) {
    experts_per_layer[layer.layer.index()] = static_cast<int32_t>(manifest.hparams.experts.count);
    for (const int32_t stack : {layer.gate, layer.up, layer.down, layer.gate_up}) {
      if (stack >= 0) expert_bytes += manifest.tensors[static_cast<size_t>(stack)].bytes;
    }
    for (const auto* each : {&layer.gate_each, &layer.up_each, &layer.down_each}) {
      for (const int32_t index : *each) expert_bytes += manifest.tensors[static_cast<size_t>(index)].bytes;
    }
  }
  plan.placement = Placement::AllCold(experts_per_layer);
  plan.mapped_bytes = manifest.TotalTensorBytes();
  plan.memory.push_back({MemoryTag::kDenseWeights, "mapped file", plan.mapped_bytes - expert_bytes});
  if (expert_bytes > 0) plan.memory.push_back({MemoryTag::kExpertWeights, "mapped file", expert_bytes});
  plan.memory.push_back({MemoryTag::kKvCache, "host", needs.kv_bytes});
  plan.memory.push_back({MemoryTag::kWorkspace, "host", needs.workspace_bytes});
  if (!CheckedAdd(needs.kv_bytes, needs.workspace_bytes, &plan.host_bytes)) plan.host_bytes = UINT64_MAX;

  uint64_t budget = runtime.ram_bytes.value_or(machine.memory_available_bytes);
  std::string budget_name = runtime.ram_bytes ? "--ram" : "available memory";
  // A larger --ram does not raise the container's limit.
  const bool unknown = !runtime.ram_bytes && budget == 0;
  if (machine.memory_limit_bytes > 0 && (unknown || machine.memory_limit_bytes < budget)) {
    budget = machine.memory_limit_bytes;
    budget_name = "the container's memory limit";
  }
  if (budget > 0 || runtime.ram_bytes) {
    if (plan.host_bytes > budget) {
      return OutOfMemory("KV cache {} + workspace {} = {} do not fit {} ({}); lower --ctx-size or --batch-size",
                         FormatBytes(needs.kv_bytes), FormatBytes(needs.workspace_bytes), FormatBytes(plan.host_bytes),
                         budget_name, FormatBytes(budget));
    }
    if (plan.mapped_bytes > budget - plan.host_bytes) {
      plan.notes.push_back(
          fmt::format("weights {} + {} exceed {} ({}): cold weights will be read from disk again while "
                      "running",
                      FormatBytes(plan.mapped_bytes), FormatBytes(plan.host_bytes), budget_name, FormatBytes(budget)));
    }
  }
  if (machine.gpus == 0 && runtime.device == config::Device::kAuto) {
    plan.notes.push_back(fmt::format("no GPU used: {}", machine.no_gpu_reason));
  }
  if (profile != nullptr) {
    plan.notes.push_back("the profile places experts in GPU slots; without a GPU it has no effect on where they run");
  }
  return plan;
}

std::vector<std::string> DescribePlan(const Plan& plan) {
  std::vector<std::string> lines;
  if (plan.placement.total() > 0) {
    lines.push_back(fmt::format("experts: {} of {} in GPU slots, {} computed by the CPU where they lie",
                                plan.placement.resident(), plan.placement.total(),
                                plan.placement.total() - plan.placement.resident()));
  } else {
    lines.push_back("experts: none, a dense model");
  }
  std::string memory = "memory:";
  for (const MemoryLine& line : plan.memory) {
    memory += fmt::format(" {} {} ({}),", MemoryTagName(line.tag), FormatBytes(line.bytes), line.where);
  }
  memory.pop_back();
  lines.push_back(memory);
  for (const std::string& note : plan.notes) lines.push_back("note: " + note);
  return lines;
}

}  // namespace bellhop::plan
