// What steps moved, and the time that a GPU needs for that at its rates.
#pragma once

#include <cstdint>
#include <string>

namespace bellhop::engine {

// Weight bytes that steps read, by the path that they took, and what moved meanwhile.
struct TrafficTotals {
  uint64_t steps = 0;
  uint64_t hbm_bytes = 0, pcie_bytes = 0, dram_bytes = 0, disk_bytes = 0;
  // Experts that were run, counted once in each step however many rows chose them.
  uint64_t hot_experts = 0, cold_experts = 0;
  uint64_t rings = 0, zero_cold_layers = 0, promotions = 0;
  uint64_t wait_ns = 0;  // of the GPU, for the CPU; with GpuSummary::timed

  TrafficTotals& operator+=(const TrafficTotals& other);
  TrafficTotals operator-(const TrafficTotals& before) const;
};

// A bound on the time of steps: bytes at rates, one after the other.
struct StepBound {
  double hbm_ms = 0;   // dense weights and hits out of GPU memory
  double miss_ms = 0;  // misses over their lane
  double sync_ms = 0;  // of layers that rang
  double read_ms() const { return hbm_ms + miss_ms; }
  double ms() const { return read_ms() + sync_ms; }
};

// The GPU that a model runs on, and what was expected of it.
struct GpuSummary {
  std::string device;       // "NVIDIA H200"
  std::string lane;         // of misses: "cpu", "pcie" or "split"
  bool timed = false;       // waits of the GPU for the CPU are measured
  double residency = 0;     // share of expert bytes in slots
  double predicted_ms = 0;  // of a token
  bool calibrated = false;  // the rates are measured ones of this machine; else estimates
  double hbm_gbps = 0;      // GPU memory
  double miss_gbps = 0;     // of the lane
  double sync_us = 0;       // of a layer that rings

  // Per step.
  StepBound Bound(const TrafficTotals& traffic) const;
};

}  // namespace bellhop::engine
