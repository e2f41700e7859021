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

struct Budget {
  uint64_t bytes = 0;
  std::string name;
  bool known = false;  // else nothing is checked against it
  bool given = false;  // by --ram
};

Budget HostBudget(const RuntimeConfig& runtime, const MachineInfo& machine) {
  Budget budget;
  budget.given = runtime.ram_bytes.has_value();
  budget.bytes = runtime.ram_bytes.value_or(machine.memory_available_bytes);
  budget.name = budget.given ? "--ram" : "available memory";
  // A larger --ram does not raise the container's limit.
  const bool unknown = !budget.given && budget.bytes == 0;
  if (machine.memory_limit_bytes > 0 && (unknown || machine.memory_limit_bytes < budget.bytes)) {
    budget.bytes = machine.memory_limit_bytes;
    budget.name = "the container's memory limit";
  }
  budget.known = budget.bytes > 0 || budget.given;
  return budget;
}

uint64_t ExpertBytes(const manifest::Manifest& manifest) {
  uint64_t bytes = 0;
  for (const manifest::ExpertLayer& layer : manifest.expert_layers) {
    for (const int32_t stack : {layer.gate, layer.up, layer.down, layer.gate_up}) {
      if (stack >= 0) bytes += manifest.tensors[static_cast<size_t>(stack)].bytes;
    }
    for (const auto* each : {&layer.gate_each, &layer.up_each, &layer.down_each}) {
      for (const int32_t index : *each) bytes += manifest.tensors[static_cast<size_t>(index)].bytes;
    }
  }
  return bytes;
}

// Why a copy of the experts is not to be had; OK: it is.
Status CheckExpertCopy(const MachineInfo& machine, const MemoryNeeds& needs, const Budget& budget, uint64_t dense_bytes,
                       uint64_t host_bytes) {
  if (!machine.no_huge_pages_reason.empty()) return InvalidArgument("{}", machine.no_huge_pages_reason);
  if (!budget.known) return Status();
  // The pool's pages are not part of what is available; --ram limits whatever the process uses.
  const uint64_t charged = machine.reserved_huge_pages && !budget.given ? 0 : needs.expert_copy_bytes;
  uint64_t sum = 0;
  if (CheckedAdd(host_bytes, dense_bytes, &sum) && CheckedAdd(sum, charged, &sum) && sum <= budget.bytes) {
    return Status();
  }
  return OutOfMemory(
      "a copy of the experts {} + other weights {} + KV cache and workspace {} exceed {} ({}); lower --ctx-size, or "
      "use a smaller format (`bellhop quantize`)",
      FormatBytes(needs.expert_copy_bytes), FormatBytes(dense_bytes), FormatBytes(host_bytes), budget.name,
      FormatBytes(budget.bytes));
}

// Decides on the copy, and moves the experts from the mapped file to the host in the plan's sums.
Status PlanExpertCopy(const RuntimeConfig& runtime, const MachineInfo& machine, const MemoryNeeds& needs,
                      const Budget& budget, uint64_t expert_bytes, Plan* plan) {
  if (runtime.huge_pages == config::HugePagesMode::kOff || expert_bytes == 0) return Status();
  const uint64_t dense_bytes = plan->mapped_bytes - expert_bytes;
  const Status status = CheckExpertCopy(machine, needs, budget, dense_bytes, plan->host_bytes);
  if (!status.ok()) {
    if (runtime.huge_pages == config::HugePagesMode::kRequired) return status.WithContext("--hugepages required");
    plan->notes.push_back(
        fmt::format("--hugepages auto: the experts are read from the mapped file: {}", status.message()));
    return Status();
  }
  plan->copy_experts = true;
  plan->mapped_bytes = dense_bytes;
  if (!CheckedAdd(plan->host_bytes, needs.expert_copy_bytes, &plan->host_bytes)) plan->host_bytes = UINT64_MAX;
  for (MemoryLine& line : plan->memory) {
    if (line.tag == MemoryTag::kExpertWeights) line = {line.tag, "huge pages", needs.expert_copy_bytes};
  }
  return Status();
}

// `in_memory`: what is allocated out of the budget.
Status PlanPrefault(const RuntimeConfig& runtime, const Budget& budget, uint64_t in_memory, Plan* plan) {
  const bool fits = in_memory <= budget.bytes && plan->mapped_bytes <= budget.bytes - in_memory;
  if (budget.known && !fits) {
    if (runtime.prefault == config::PrefaultMode::kRequired) {
      return OutOfMemory(
          "--prefault required: weights {} + {} exceed {} ({}): what is read first would be dropped again before it is "
          "used; lower --ctx-size, use a smaller format (`bellhop quantize`), or --prefault off",
          FormatBytes(plan->mapped_bytes), FormatBytes(in_memory), budget.name, FormatBytes(budget.bytes));
    }
    plan->notes.push_back(
        fmt::format("weights {} + {} exceed {} ({}): cold weights will be read from disk again while "
                    "running",
                    FormatBytes(plan->mapped_bytes), FormatBytes(in_memory), budget.name, FormatBytes(budget.bytes)));
    return Status();
  }
  plan->prefault = runtime.prefault == config::PrefaultMode::kRequired ||
                   (runtime.prefault == config::PrefaultMode::kAuto && budget.known);
  return Status();
}

}  // namespace

Result<Plan> MakePlan(const manifest::Manifest& manifest, const MachineInfo& machine, const RuntimeConfig& runtime,
                      const MemoryNeeds& needs, const ExpertProfile* profile) {
  BELLHOP_TRY(CheckDevice(runtime, machine));
  if (profile != nullptr) BELLHOP_TRY(CheckProfile(manifest, *profile));

  Plan plan;
  std::vector<int32_t> experts_per_layer(manifest.hparams.layers, 0);
  for (const manifest::ExpertLayer& layer : manifest.expert_layers) {
    experts_per_layer[layer.layer.index()] = static_cast<int32_t>(manifest.hparams.experts.count);
  }
  const uint64_t expert_bytes = ExpertBytes(manifest);
  plan.placement = Placement::AllCold(experts_per_layer);
  plan.mapped_bytes = manifest.TotalTensorBytes();
  plan.memory.push_back({MemoryTag::kDenseWeights, "mapped file", plan.mapped_bytes - expert_bytes});
  if (expert_bytes > 0) plan.memory.push_back({MemoryTag::kExpertWeights, "mapped file", expert_bytes});
  plan.memory.push_back({MemoryTag::kKvCache, "host", needs.kv_bytes});
  plan.memory.push_back({MemoryTag::kWorkspace, "host", needs.workspace_bytes});
  if (!CheckedAdd(needs.kv_bytes, needs.workspace_bytes, &plan.host_bytes)) plan.host_bytes = UINT64_MAX;

  const Budget budget = HostBudget(runtime, machine);
  if (budget.known && plan.host_bytes > budget.bytes) {
    return OutOfMemory("KV cache {} + workspace {} = {} do not fit {} ({}); lower --ctx-size or --batch-size",
                       FormatBytes(needs.kv_bytes), FormatBytes(needs.workspace_bytes), FormatBytes(plan.host_bytes),
                       budget.name, FormatBytes(budget.bytes));
  }
  const uint64_t state_bytes = plan.host_bytes;
  BELLHOP_TRY(PlanExpertCopy(runtime, machine, needs, budget, expert_bytes, &plan));
  const bool outside = plan.copy_experts && machine.reserved_huge_pages && !budget.given;
  BELLHOP_TRY(PlanPrefault(runtime, budget, outside ? state_bytes : plan.host_bytes, &plan));
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
