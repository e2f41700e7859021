// Who computes the misses of a layer: the CPU, the GPU reading host memory over PCIe, or both, each a part of every
// expert's inner dimension. Pure functions of measured rates.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "config/config.h"
#include "plan/machine_constants.h"

namespace bellhop::plan {

struct MissLaneChoice {
  config::MissLane lane = config::MissLane::kCpu;  // never kAuto
  double cpu_share = 1;                            // of the inner dimension: 1 for kCpu, 0 for kPcie
  double us = 0;                                   // expected time of one layer's misses
};

// For layers whose misses read `bytes`. Each lane costs its MissUs too. With both, the shares end at the same
// time. kAuto: the fastest; not kSplit under --deterministic, because where the sum is cut would show in
// its last bits. kInvalidArgument for a lane that cannot be had: kSplit under --deterministic, or no measured rate.
Result<MissLaneChoice> ChooseMissLane(config::MissLane asked, const MachineConstants& machine, uint64_t bytes,
                                      bool deterministic);

// The CPU's part [0, n) of the inner dimension: a multiple of `granularity` (whole blocks of the format) or all of it,
// the nearest to the share. The GPU computes [n, inner).
int64_t CpuInner(double cpu_share, int64_t inner, int64_t granularity);
// That of a lane, where each side cuts at multiples of its own granularity.
int64_t CpuInner(const MissLaneChoice& lane, int64_t inner, int64_t cpu_granularity, int64_t gpu_granularity);

}  // namespace bellhop::plan
