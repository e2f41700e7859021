// Layers of routed experts on a GPU, run and timed as a model's steps (up to 32 rows) and prompts (more) run them.
// Builds without CUDA have the same function (gpu_layer_bench_stub.cc) and it returns kUnsupported.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/device.h"
#include "model/synthetic_layers.h"
#include "plan/gpu_placement.h"
#include "plan/miss_lane.h"
#include "store/expert_store.h"
#include "sys/cpu_features.h"
#include "sys/worker_pool.h"

namespace bellhop::model {

struct GpuLayerBenchOptions {
  SyntheticShape shape;
  int32_t max_rows = 1;        // of a replay
  int32_t max_replays = 1;     // of one Time, without those that warm up
  bool offloads = false;       // steps look for misses of the CPU in every layer, also where there are none
  plan::MissLaneChoice lane;   // kCpu or kPcie
  bool reads_experts = false;  // GpuModelOptions
  // Misses are not computed: the CPU answers with zeros. Replays that ring nobody are then timed too.
  bool answers_at_once = false;
  int service_cpu = -1;  // GpuModelOptions
};

struct GpuLayerTimes {
  // Of each replay, the mean of its layers. Whole layers: from the rows that the router reads to the combined output.
  // In steps the router and the experts (fetches, fc1, fc2 with the combined output) are also timed apart, in replays
  // of their own, with the routes of other rows and without the CPU; in prompts as parts of whole layers.
  std::vector<double> layer_us, router_us, experts_us;
  std::vector<double> quiet_us;  // of steps: whole layers without rings, if answers_at_once
  // Of the whole layers' replays, means of a layer.
  double hot_experts = 0, cold_experts = 0;  // distinct, with a slot and without
  double hits = 0, misses = 0;               // routes
};

class GpuLayerBench {
 public:
  virtual ~GpuLayerBench() = default;
  // Every replay has rows of its own, and so routes of its own. Rows: up to max_rows.
  virtual Result<GpuLayerTimes> Time(int32_t rows, int32_t replays) = 0;
};

// The store has the layers of the shape; it, the placement, the device and the pool must outlive the bench.
// kUnsupported names what the GPU cannot do; kOutOfMemory what does not fit. Notes name slow paths.
Result<std::unique_ptr<GpuLayerBench>> CreateGpuLayerBench(const store::ExpertStore& store,
                                                           const plan::GpuPlacement& placement, cuda::Device* device,
                                                           sys::WorkerPool* pool, const sys::CpuCaps& caps,
                                                           const GpuLayerBenchOptions& options,
                                                           std::vector<std::string>* notes);

}  // namespace bellhop::model
