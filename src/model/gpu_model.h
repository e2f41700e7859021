// A whole model on the GPU, with the CPU as the cold path of experts without a slot. Builds without CUDA have the same
// functions (gpu_model_stub.cc) and they return kUnsupported.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/memory_ledger.h"
#include "manifest/manifest.h"
#include "model/step_model.h"
#include "moe/doorbell_service.h"
#include "plan/gpu_placement.h"
#include "plan/miss_lane.h"
#include "store/expert_store.h"
#include "sys/cpu_features.h"
#include "sys/worker_pool.h"

namespace bellhop::model {

struct GpuModelOptions {
  TransformerOptions base;
  bool exact_terms = false;   // --act f32: prompts as three bf16 terms, exact to f32's last bits
  uint64_t deadline_ns = 0;   // of a ring; 0: none
  plan::MissLaneChoice lane;  // not read by PlanGpuModel
  // Prompts' misses: whether the device may read experts where they lie, if that turns out to be possible; else they
  // are copied by way of pinned memory, also where the lane is the CPU's. And the size of each of two banks that they
  // go through, which grows to that of one expert.
  bool reads_experts = false;
  uint64_t wave_bytes = uint64_t{32} << 20;
  bool timers = false;                   // time the parts of a step
  int service_cpu = -1;                  // for the doorbell's thread, the pool's worker 0; -1: any
  cuda::MemoryLedger* ledger = nullptr;  // that the model's memory is charged to; null: one of its own
  // For tests: what runs misses, made around what runs them otherwise. Null: nothing is made.
  std::function<std::unique_ptr<moe::MissRunner>(moe::MissRunner*)> wrap_runner = {};
};

// Bytes that CreateGpuModel will allocate beside the banks of experts.
struct GpuModelNeeds {
  uint64_t dense_bytes = 0, kv_bytes = 0, workspace_bytes = 0, graph_bytes = 0;
  uint64_t staging_bytes = 0;  // with misses, when their lane is not the CPU's
  uint64_t wave_bytes = 0;     // with misses
  uint64_t host_bytes = 0;     // of host memory: the cold path's workspace and pinned pages
};

// Pure. kUnsupported names what of the model the GPU cannot do.
Result<GpuModelNeeds> PlanGpuModel(const manifest::Manifest& manifest, const ModelSpec& spec,
                                   const store::ExpertStore& store, const GpuModelOptions& options);

// On device 0. The manifest, store, placement and pool must outlive the model. Notes name slow paths.
Result<std::unique_ptr<StepModel>> CreateGpuModel(const manifest::Manifest& manifest, ModelSpec spec,
                                                  const store::ExpertStore& store, const plan::GpuPlacement& placement,
                                                  sys::WorkerPool* pool, const sys::CpuCaps& caps,
                                                  const GpuModelOptions& options, std::vector<std::string>* notes);

}  // namespace bellhop::model
