// The synthetic benchmark of layers of experts on a GPU: whole layers, from rows to the combined output, as a model's
// steps and prompts run them, for every weight format, placement and number of rows asked for.
//
// Weights are random but valid, every expert with a slot has its own there, and layers take turns, so weights come from
// memory and not from caches. Rows are random and other ones in each replay, so routes are uniform and fresh.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/options.h"
#include "engine/opbench.h"
#include "engine/opbench_gpu_plan.h"

namespace bellhop::engine {

// Multiply-adds on bf16 tensor cores of an H200, times two: what large matrix products reach there. Not measured here.
inline constexpr double kBf16Tflops = 790;

struct GpuOpbenchCase {
  std::string format;  // as --format takes it: "q4_0", "int4_b32"
  OpbenchMode mode = OpbenchMode::kResident;
  double hit_rate = 1;  // asked for
  int64_t hidden = 0, inter = 0;
  int32_t layers = 0, experts = 0, topk = 0, rows = 0;
  bool prompt = false;  // numeric class, and family of kernels
  uint64_t expert_bytes = 0;
  // Of each replay, the mean of its layers, in microseconds. Kernels: the GPU's experts alone (in steps hits alone
  // where the CPU computes misses); router: norm, scores, choice and classification.
  std::vector<double> layer_us = {}, kernel_us = {}, router_us = {};
  std::vector<double> quiet_us = {};  // kOffRing: whole layers that ask nobody
  // Means of a layer: distinct experts with a slot and without, and routes to them.
  double hot_experts = 0, cold_experts = 0, hits = 0, misses = 0;

  double measured_hit_rate() const { return hits / (hits + misses); }
  double weight_bytes() const { return (hot_experts + cold_experts) * static_cast<double>(expert_bytes); }
  // What kernel_us reads and computes.
  double kernel_bytes() const {
    return (hot_experts + (kernel_misses() ? cold_experts : 0)) * static_cast<double>(expert_bytes);
  }
  double kernel_flops() const;

 private:
  bool kernel_misses() const { return prompt || (mode != OpbenchMode::kOffCpu && mode != OpbenchMode::kOffRing); }
};

struct GpuOpbenchReport {
  std::vector<GpuOpbenchCase> cases;
  std::vector<double> hbm_gbps;  // measured before, between and after
  std::vector<std::string> notes;
  bool cancelled = false;  // `cases` holds those that were complete by then
  Status failure;          // the first one; other banks were measured, unless the device was lost
};

// An error: nothing was measured. kUnsupported without CUDA, kNotFound without a GPU; each says what to do.
Result<GpuOpbenchReport> RunGpuOpbench(const config::OpbenchOptions& options, const OpbenchControl& control);

}  // namespace bellhop::engine
