// What placement and prediction know of a machine: measured rates, in GB/s (10^9 bytes per second).
#pragma once

#include <algorithm>

#include "config/config.h"

namespace bellhop::plan {

struct MachineConstants {
  double hbm_gbps = 0;
  double dram_gbps = 0;  // the CPU cold path alone
  double pcie_gbps = 0;  // kernels that read host memory, alone
  // Both at the same time.
  double both_dram_gbps = 0, both_pcie_gbps = 0;
  double sync_us = 0;  // of a layer that rings
  // What a layer's misses take beside their bytes; not measured, but as on 16 cores and an H200.
  double cpu_us = 2;     // workers start and meet, while the hits are computed
  double fetch_us = 90;  // a kernel that reads over PCIe fills and empties, and the layer's hits wait for it

  // Of a layer with misses, beside their bytes.
  double MissUs(config::MissLane lane) const { return lane == config::MissLane::kPcie ? fetch_us : sync_us + cpu_us; }
  // At which misses are computed. kAuto: the fastest lane.
  double MissGbps(config::MissLane lane) const {
    switch (lane) {
      case config::MissLane::kCpu: return dram_gbps;
      case config::MissLane::kPcie: return pcie_gbps;
      case config::MissLane::kSplit: return both_dram_gbps + both_pcie_gbps;
      case config::MissLane::kAuto: break;
    }
    return std::max({dram_gbps, pcie_gbps, both_dram_gbps + both_pcie_gbps});
  }
};

// For a machine that has not been calibrated: less than most deliver, so that a prediction does not promise too much.
// `gpu_memory_gbps`: of the GPU's memory on paper; 0: unknown.
MachineConstants DefaultConstants(double gpu_memory_gbps = 0);

}  // namespace bellhop::plan
