#include "plan/machine_constants.h"

namespace bellhop::plan {

// Assumptions, not measurements.
MachineConstants DefaultConstants(double gpu_memory_gbps) {
  constexpr double kOfPaper = 0.8;  // that kernels get of the bandwidth on paper
  return {
      .hbm_gbps = gpu_memory_gbps > 0 ? kOfPaper * gpu_memory_gbps : 300,  // 300: a small card
      .dram_gbps = 30,                                                     // two channels of DDR4-3200: 51 on paper
      .pcie_gbps = 10,                                                     // PCIe 3.0 x16 or 4.0 x8: 16 on paper
      // The host's memory serves both: what PCIe reads, the CPU does not get.
      .both_dram_gbps = 20,
      .both_pcie_gbps = 8,
      .sync_us = 15,  // some transfers over PCIe one after the other, about a microsecond each, and as much again
  };
}

}  // namespace bellhop::plan
