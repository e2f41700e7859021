#include "plan/plan.h"

#include <algorithm>

#include "base/units.h"

namespace bellhop::plan {
namespace {

using config::RuntimeConfig;

constexpr const char* kMappedFile = "mapped file";
constexpr const char* kHost = "host";
constexpr const char* kGpu = "GPU 0";

// Flags that ask for a GPU are errors without one: nothing falls back silently.
Status CheckDevice(const RuntimeConfig& runtime, const MachineInfo& machine) {
  const std::string_view asked = AskedForGpu(runtime);
  if (machine.gpu || asked.empty()) return Status();
  return InvalidArgument("{}: {}", asked, machine.no_gpu_reason);
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
    const bool experts = line.tag == MemoryTag::kExpertWeights && line.where == kMappedFile;
    if (experts) line = {line.tag, "huge pages", needs.expert_copy_bytes};
  }
  return Status();
}

// `in_memory`: what is allocated out of the budget.
Status PlanPrefault(const RuntimeConfig& runtime, const Budget& budget, uint64_t in_memory, Plan* plan) {
  if (plan->mapped_bytes == 0) return Status();
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

// The whole model on the CPU.
void ChargeCpu(const manifest::Manifest& manifest, const MemoryNeeds& needs, uint64_t expert_bytes, Plan* plan) {
  std::vector<int32_t> experts_per_layer(manifest.hparams.layers, 0);
  for (const manifest::ExpertLayer& layer : manifest.expert_layers) {
    experts_per_layer[layer.layer.index()] = static_cast<int32_t>(manifest.hparams.experts.count);
  }
  plan->placement = Placement::AllCold(experts_per_layer);
  plan->mapped_bytes = manifest.TotalTensorBytes();
  plan->memory.push_back({MemoryTag::kDenseWeights, kMappedFile, plan->mapped_bytes - expert_bytes});
  if (expert_bytes > 0) plan->memory.push_back({MemoryTag::kExpertWeights, kMappedFile, expert_bytes});
  plan->memory.push_back({MemoryTag::kKvCache, kHost, needs.kv_bytes});
  plan->memory.push_back({MemoryTag::kWorkspace, kHost, needs.workspace_bytes});
  if (!CheckedAdd(needs.kv_bytes, needs.workspace_bytes, &plan->host_bytes)) plan->host_bytes = UINT64_MAX;
}

// host_expert_bytes: every expert stays on the host too, because which ones have a slot may change while running,
// unless all have. The other weights are read once, to be copied.
void ChargeGpu(const GpuNeeds& needs, uint64_t host_expert_bytes, Plan* plan) {
  plan->placement = plan->gpu.experts.placement;
  plan->memory.push_back({MemoryTag::kDenseWeights, kGpu, needs.charges.dense_bytes});
  const uint64_t bank_bytes = plan->gpu.experts.bank_bytes;
  if (bank_bytes > 0) plan->memory.push_back({MemoryTag::kExpertWeights, kGpu, bank_bytes});
  plan->memory.push_back({MemoryTag::kKvCache, kGpu, needs.charges.kv_bytes});
  plan->memory.push_back({MemoryTag::kWorkspace, kGpu, needs.charges.workspace_bytes});
  plan->memory.push_back({MemoryTag::kGraph, kGpu, needs.charges.graph_bytes});
  if (plan->gpu.staging_bytes > 0) plan->memory.push_back({MemoryTag::kStaging, kGpu, plan->gpu.staging_bytes});
  plan->mapped_bytes = host_expert_bytes;
  if (host_expert_bytes > 0) plan->memory.push_back({MemoryTag::kExpertWeights, kMappedFile, host_expert_bytes});
  plan->memory.push_back({MemoryTag::kWorkspace, kHost, needs.host_bytes});
  plan->host_bytes = needs.host_bytes;
}

std::string MissWords(const MissLaneChoice& lane) {
  switch (lane.lane) {
    case config::MissLane::kPcie: return "read by the GPU over PCIe";
    case config::MissLane::kSplit:
      return fmt::format("computed by CPU ({:.0f} %) and GPU over PCIe together", lane.cpu_share * 100);
    default: return "computed by the CPU where they lie";
  }
}

}  // namespace

Result<Plan> MakePlan(const manifest::Manifest& manifest, const MachineInfo& machine, const RuntimeConfig& runtime,
                      const MemoryNeeds& needs, const ExpertProfile* profile) {
  BELLHOP_TRY(CheckDevice(runtime, machine));
  if (profile != nullptr) BELLHOP_TRY(CheckProfile(manifest, *profile));

  Plan plan;
  if (machine.gpu) {
    BELLHOP_TRY_ASSIGN(plan.gpu, PlanGpu(manifest, runtime, *machine.gpu, needs.gpu, profile));
    plan.notes = plan.gpu.notes;
  }
  const Placement& slots = plan.gpu.experts.placement;
  const bool none_cold = plan.gpu.used && slots.resident() == slots.total();
  const uint64_t expert_bytes = none_cold ? 0 : ExpertBytes(manifest);
  if (plan.gpu.used) {
    ChargeGpu(needs.gpu, expert_bytes, &plan);
  } else {
    ChargeCpu(manifest, needs, expert_bytes, &plan);
  }

  const Budget budget = HostBudget(runtime, machine);
  if (budget.known && plan.host_bytes > budget.bytes) {
    const uint64_t kv_bytes = plan.gpu.used ? 0 : needs.kv_bytes;
    const uint64_t workspace_bytes = plan.gpu.used ? needs.gpu.host_bytes : needs.workspace_bytes;
    return OutOfMemory("KV cache {} + workspace {} = {} do not fit {} ({}); lower --ctx-size or --batch-size",
                       FormatBytes(kv_bytes), FormatBytes(workspace_bytes), FormatBytes(plan.host_bytes), budget.name,
                       FormatBytes(budget.bytes));
  }
  const uint64_t state_bytes = plan.host_bytes;
  BELLHOP_TRY(PlanExpertCopy(runtime, machine, needs, budget, expert_bytes, &plan));
  const bool outside = plan.copy_experts && machine.reserved_huge_pages && !budget.given;
  BELLHOP_TRY(PlanPrefault(runtime, budget, outside ? state_bytes : plan.host_bytes, &plan));
  if (!machine.gpu && runtime.device == config::Device::kAuto) {
    plan.notes.push_back(fmt::format("no GPU used: {}", machine.no_gpu_reason));
  }
  if (profile != nullptr && !plan.gpu.used) {
    plan.notes.push_back("the profile places experts in GPU slots; without a GPU it has no effect on where they run");
  }
  return plan;
}

std::vector<std::string> DescribePlan(const Plan& plan) {
  std::vector<std::string> lines;
  if (plan.placement.total() > 0) {
    lines.push_back(fmt::format("experts: {} of {} in GPU slots, {} {}", plan.placement.resident(),
                                plan.placement.total(), plan.placement.total() - plan.placement.resident(),
                                MissWords(plan.gpu.lane)));
  } else {
    lines.push_back("experts: none, a dense model");
  }
  if (plan.gpu.used) {
    const DecodePrediction& p = plan.gpu.prediction;
    lines.push_back(
        fmt::format("prediction: {:.1f} % of routes hit a slot, {:.1f} of {} layers ring per token, {:.2f} ms per "
                    "token, bound by {}",
                    p.hit_rate * 100, p.ringing_layers, plan.placement.layers(), p.ms_per_token(), p.bound));
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
