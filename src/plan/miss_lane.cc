#include "plan/miss_lane.h"

#include <algorithm>
#include <numeric>

namespace bellhop::plan {
namespace {

using config::MissLane;

double Microseconds(double bytes, double gbps) { return bytes / (gbps * 1e3); }

// Both lanes at once: cpu_share such that both end together.
MissLaneChoice Split(const MachineConstants& machine, double bytes) {
  const double all_cpu = Microseconds(bytes, machine.both_dram_gbps);
  const double all_pcie = Microseconds(bytes, machine.both_pcie_gbps);
  const double sum = all_cpu + all_pcie, cpu_us = machine.MissUs(MissLane::kCpu);
  const double share = sum > 0 ? std::clamp((all_pcie + machine.fetch_us - cpu_us) / sum, 0.0, 1.0) : 0.0;
  return {.lane = MissLane::kSplit,
          .cpu_share = share,
          .us = std::max(cpu_us + share * all_cpu, machine.fetch_us + (1 - share) * all_pcie)};
}

Status NoRate(const char* lane) {
  return InvalidArgument("--miss-lane {}: its bandwidth has not been measured; run `bellhop doctor --calibrate`", lane);
}

}  // namespace

Result<MissLaneChoice> ChooseMissLane(MissLane asked, const MachineConstants& machine, uint64_t bytes,
                                      bool deterministic) {
  const auto size = static_cast<double>(bytes);
  const bool has_cpu = machine.dram_gbps > 0, has_pcie = machine.pcie_gbps > 0;
  const bool has_both = machine.both_dram_gbps > 0 && machine.both_pcie_gbps > 0;
  const auto alone = [&](MissLane lane, double gbps) { return machine.MissUs(lane) + Microseconds(size, gbps); };
  const MissLaneChoice cpu{MissLane::kCpu, 1, has_cpu ? alone(MissLane::kCpu, machine.dram_gbps) : 0};
  const MissLaneChoice pcie{MissLane::kPcie, 0, has_pcie ? alone(MissLane::kPcie, machine.pcie_gbps) : 0};
  switch (asked) {
    case MissLane::kCpu: return has_cpu ? Result<MissLaneChoice>(cpu) : NoRate("cpu");
    case MissLane::kPcie: return has_pcie ? Result<MissLaneChoice>(pcie) : NoRate("pcie");
    case MissLane::kSplit:
      if (deterministic) {
        return InvalidArgument(
            "--miss-lane split changes the last bits of a sum with the split point, which "
            "--deterministic excludes; use --miss-lane cpu, pcie or auto");
      }
      return has_both ? Result<MissLaneChoice>(Split(machine, size)) : NoRate("split");
    case MissLane::kAuto: break;
  }
  if (!has_cpu && !has_pcie) return NoRate("auto");
  MissLaneChoice best = has_cpu ? cpu : pcie;
  if (has_pcie && pcie.us < best.us) best = pcie;
  if (deterministic || !has_both) return best;
  const MissLaneChoice both = Split(machine, size);
  return both.us < best.us ? both : best;
}

int64_t CpuInner(double cpu_share, int64_t inner, int64_t granularity) {
  const double target = cpu_share * static_cast<double>(inner);
  const int64_t below = static_cast<int64_t>(target) / granularity * granularity;
  const int64_t above = std::min(inner, below + granularity);
  return target - static_cast<double>(below) < static_cast<double>(above) - target ? below : above;
}

int64_t CpuInner(const MissLaneChoice& lane, int64_t inner, int64_t cpu_granularity, int64_t gpu_granularity) {
  if (lane.lane == MissLane::kCpu) return inner;
  if (lane.lane == MissLane::kPcie) return 0;
  return CpuInner(lane.cpu_share, inner, std::lcm(cpu_granularity, gpu_granularity));
}

}  // namespace bellhop::plan
