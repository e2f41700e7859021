// What `bellhop opbench --device cuda` is to measure. Pure; needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/options.h"
#include "engine/opbench_expert.h"
#include "plan/gpu_placement.h"

namespace bellhop::engine {

// Where experts are, and who computes those without a slot.
enum class OpbenchMode : uint8_t {
  kResident,  // every expert has a slot, in order; nobody else is asked
  kOffAll,  // every expert has a slot of a bank that is used as for a part of them: in any order, misses are looked for
  kOffCpu,  // the CPU computes misses, asked by the doorbell; prompts: they are copied to the GPU in waves
  kOffGpu,  // the GPU reads misses from registered host memory
  kOffRing,  // as kOffCpu, but the CPU answers at once, with zeros: what the doorbell costs
};
std::string_view OpbenchModeName(OpbenchMode mode);
Result<OpbenchMode> ParseOpbenchMode(std::string_view name);

// Layers that are in memory at the same time, and the rows that they are measured with.
struct GpuOpbenchBank {
  OpbenchExpert expert;
  OpbenchMode mode = OpbenchMode::kResident;
  double hit_rate = 1;  // asked for
  int32_t layers = 0, experts = 0, topk = 0;
  int32_t resident = 0;  // experts of a layer with a slot
  uint64_t slot_bytes = 0;
  std::vector<int32_t> rows;

  bool misses() const { return resident < experts; }
  uint64_t device_bytes() const;  // of the slots
  // Of host memory. Experts with a slot share a few copies there, those without have one each.
  uint64_t host_bytes() const;
  // Copies that experts with a slot share.
  static constexpr int32_t kShared = 8;
};

struct GpuOpbenchPlan {
  std::vector<GpuOpbenchBank> banks;
  int64_t cases = 0;
};

// As RunOpbench: formats of a list are left out where they cannot be measured, which a note says, others are errors.
// kInvalidArgument and kUnsupported name the option and the remedy.
Result<GpuOpbenchPlan> PlanGpuOpbench(const config::OpbenchOptions& options, std::vector<std::string>* notes);

// Which experts have which slot: by chance, so that uniform routes hit as often as experts are resident.
plan::GpuPlacement PlaceOpbenchExperts(const GpuOpbenchBank& bank, uint64_t seed);

}  // namespace bellhop::engine
