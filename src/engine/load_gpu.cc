// The GPU's part of loading: whether there is one for this model, and the model on it.
#include <algorithm>

#include "base/units.h"
#include "engine/calibration_file.h"
#include "engine/text_engine_impl.h"

#include "model/transformer.h"
#include "sys/host_info.h"

namespace bellhop::engine {

// Why the GPU cannot read experts where they lie; OK: it can. Registered pages are locked, as reserved huge pages are
// anyway.
Status TextEngineImpl::CheckPcieLane() const {
  if (!gpu_.registers_read_only) {
    return Unsupported("{} (or its driver) does not register read-only memory, where the experts lie", gpu_.name);
  }
  uint64_t limit = topology_.memory_available_bytes;
  for (const uint64_t bound : {topology_.memory_limit_bytes, config_.runtime.ram_bytes.value_or(0)}) {
    if (bound > 0) limit = limit > 0 ? std::min(limit, bound) : bound;
  }
  if (limit == 0 || plan_inputs_.machine.reserved_huge_pages || store_->TotalBytes() <= limit) return Status();
  return OutOfMemory("memory that the GPU reads is locked, and the experts' {} exceed {}",
                     FormatBytes(store_->TotalBytes()), FormatBytes(limit));
}

// Device 0 and what the model needs of it, into plan_inputs_; else why the model runs on the CPU alone.
Status TextEngineImpl::FindGpu() {
  // Looking for devices takes memory of each.
  if (config_.runtime.device == config::Device::kCpu) return InvalidArgument("--device cpu excludes the GPU");
  BELLHOP_TRY_ASSIGN(std::vector<cuda::DeviceInfo> devices, cuda::ListDevices());
  gpu_ = std::move(devices.front());
  if (!gpu_.note.empty()) return Unsupported("{}: {}", gpu_.name, gpu_.note);
  if (!gpu_.maps_host_memory) return Unsupported("{} cannot read host memory", gpu_.name);
  BELLHOP_TRY_ASSIGN(const model::GpuModelNeeds needs, model::PlanGpuModel(manifest_, spec_, *store_, GpuOptions()));
  const auto vocab = static_cast<int32_t>(spec_.vocab);
  model::TransformerOptions one = options_;
  one.sequences = 1;
  plan_inputs_.needs.gpu = {
      .charges = {.dense_bytes = needs.dense_bytes,
                  .kv_bytes = needs.kv_bytes,
                  .workspace_bytes =
                      needs.workspace_bytes + needs.wave_bytes + decode::RowSampler::DeviceBytes(kMaxDecodeRows, vocab),
                  .graph_bytes = needs.graph_bytes,
                  .staging_bytes = needs.staging_bytes},
      // In the middle of a sequence.
      .token_bytes = dense_bytes_ + model::Transformer::KvBytes(spec_, one) / 2,
      .host_bytes = needs.host_bytes + decode::RowSampler::HostBytes(kMaxDecodeRows),
  };
  BELLHOP_TRY_ASSIGN(MachineRates rates,
                     FindRates(config_.runtime.calibration,
                               IdentifyMachine(sys::ReadHostInfo(topology_).cpu_model, topology_.physical_cores, &gpu_),
                               gpu_.memory_gbps));
  plan_notes_.insert(plan_notes_.end(), rates.notes.begin(), rates.notes.end());
  rates_measured_ = rates.measured;
  const config::MissLane asked = config_.runtime.miss_lane;
  if (asked != config::MissLane::kCpu && store_->TotalBytes() > 0) {
    const Status pcie = CheckPcieLane();
    if (!pcie.ok() && asked != config::MissLane::kAuto) return Unsupported("{}; use --miss-lane cpu", pcie.message());
    if (!pcie.ok()) {
      rates.constants.pcie_gbps = rates.constants.both_dram_gbps = rates.constants.both_pcie_gbps = 0;
      plan_notes_.push_back(fmt::format("--miss-lane auto: the CPU alone computes misses: {}", pcie.message()));
    }
  }
  plan_inputs_.machine.gpu = plan::GpuInfo{.free_bytes = gpu_.free_bytes, .rates = rates.constants};
  return Status();
}

model::GpuModelOptions TextEngineImpl::GpuOptions() const {
  return {.base = options_,
          .exact_terms = config_.context.act == config::ActMode::kF32,
          .deadline_ns = plan_.gpu.deadline_ns,
          .lane = plan_.gpu.lane,
          .reads_experts = CheckPcieLane().ok(),
          .timers = config_.runtime.timers,
          .service_cpu = caller_cpu_};
}

GpuSummary TextEngineImpl::SummarizeGpu() const {
  const plan::MachineConstants& rates = plan_inputs_.machine.gpu->rates;
  const config::MissLane lane = plan_.gpu.lane.lane;
  return {.device = gpu_.name,
          .lane = lane == config::MissLane::kSplit  ? "split"
                  : lane == config::MissLane::kPcie ? "pcie"
                                                    : "cpu",
          .timed = config_.runtime.timers,
          .residency = plan_.gpu.experts.residency,
          .predicted_ms = plan_.gpu.prediction.ms_per_token(),
          .calibrated = rates_measured_,
          .hbm_gbps = rates.hbm_gbps,
          .miss_gbps = rates.MissGbps(lane),
          .sync_us = rates.sync_us};
}

// Leaves model_ null, and the plan that of the CPU alone, when the GPU fails and no flag asked for it.
Status TextEngineImpl::BindGpuModel(const LoadProgress& progress) {
  const config::RuntimeConfig& runtime = config_.runtime;
  std::vector<std::string> notes;
  // The doorbell's thread is the pool's worker 0; this thread waits for the GPU on a core of its own.
  BELLHOP_TRY(MakePool(1));
  const auto create = [&] {
    notes.clear();
    return model::CreateGpuModel(manifest_, spec_, *store_, plan_.gpu.experts, pool_.get(), caps_, GpuOptions(),
                                 &notes);
  };
  auto model = create();
  if (!model.ok() && runtime.miss_lane == config::MissLane::kAuto && plan_.gpu.lane.lane != config::MissLane::kCpu) {
    // What the lane needs beyond the CPU's comes first, so little has been done in vain.
    const Status refused = model.status();
    plan_.gpu.lane = {};
    std::erase_if(plan_.memory, [](const plan::MemoryLine& line) { return line.tag == MemoryTag::kStaging; });
    model = create();
    if (model.ok()) {
      notes.push_back(fmt::format("--miss-lane auto: the CPU alone computes misses: {}", refused.message()));
    }
  }
  if (model.ok()) {
    model_ = std::move(model).value();
    gpu_summary_ = SummarizeGpu();
    plan_.notes.insert(plan_.notes.end(), notes.begin(), notes.end());
    return Status();
  }
  const Status failed = model.status().WithContext(config_.model_path);
  const std::string_view asked = plan::AskedForGpu(runtime);
  if (!asked.empty()) return failed.WithContext(asked);
  if (runtime.offload != config::OffloadMode::kAuto) return failed;

  const bool copied = plan_.copy_experts, read = plan_.prefault;
  BELLHOP_TRY(MakePool(0));
  plan_inputs_.machine.gpu.reset();
  plan_inputs_.machine.no_gpu_reason = std::string(model.status().message());
  BELLHOP_TRY(MakePlan());
  // The CPU alone needs more host memory, and the copy cannot be taken back.
  if (copied && !plan_.copy_experts) return failed;
  const bool more = (plan_.copy_experts && !copied) || (plan_.prefault && !read);
  return more ? PlaceWeights(progress) : Status();
}

}  // namespace bellhop::engine
