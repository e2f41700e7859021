// The plan: placement, budgets and what they are spent on. A pure function of the manifest, the machine and the
// configuration; the engine carries it out and prints it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_tag.h"
#include "base/status.h"
#include "config/config.h"
#include "manifest/manifest.h"
#include "plan/expert_profile.h"
#include "plan/gpu_plan.h"
#include "plan/placement.h"

namespace bellhop::plan {

struct MachineInfo {
  uint64_t memory_available_bytes = 0;  // 0: unknown, no check
  uint64_t memory_limit_bytes = 0;      // cgroup limit, 0: none
  std::optional<GpuInfo> gpu = {};      // usable by this build, for this model
  std::string no_gpu_reason = {};       // why there is none
  // For --hugepages: why there are none for the experts, with the remedy; empty: there are.
  std::string no_huge_pages_reason = {};
  bool reserved_huge_pages = false;  // they come from a pool that is not part of the available memory
};

// Bytes that the model needs beside its weights, as model/ computes them. kv_bytes and workspace_bytes: of the model on
// the CPU alone.
struct MemoryNeeds {
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t expert_copy_bytes = 0;  // of a copy of all experts, padding included
  GpuNeeds gpu = {};               // with MachineInfo::gpu
};

struct MemoryLine {
  MemoryTag tag = MemoryTag::kOther;
  std::string where;  // "mapped file", "huge pages", "host", "GPU 0"
  uint64_t bytes = 0;
};

struct Plan {
  Placement placement;  // that of `gpu` when it is used
  GpuPlan gpu;          // its notes are part of those below
  std::vector<MemoryLine> memory;
  uint64_t host_bytes = 0;         // allocated, without the mapped file
  uint64_t mapped_bytes = 0;       // weights read where they lie
  bool copy_experts = false;       // to huge pages, before the first step
  bool prefault = false;           // read what is mapped into memory before the first step
  std::vector<std::string> notes;  // decisions and fallbacks, each with its reason
};

// kInvalidArgument for a budget, device or kind of memory that cannot be honoured, naming the flag; kOutOfMemory with
// the needs when the host budget does not hold them. With a GPU, further errors as for PlanGpu.
Result<Plan> MakePlan(const manifest::Manifest& manifest, const MachineInfo& machine,
                      const config::RuntimeConfig& runtime, const MemoryNeeds& needs, const ExpertProfile* profile);

// The plan as lines for people.
std::vector<std::string> DescribePlan(const Plan& plan);

}  // namespace bellhop::plan
