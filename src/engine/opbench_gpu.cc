#include "engine/opbench_gpu.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/units.h"
#include "cuda/device.h"
#include "cuda/device_info.h"
#include "engine/calibrate.h"
#include "engine/worker_threads.h"
#include "model/gpu_layer_bench.h"
#include "store/expert_store.h"
#include "sys/aligned_buffer.h"
#include "sys/cpu_features.h"
#include "sys/topology.h"
#include "sys/worker_pool.h"

namespace bellhop::engine {
namespace {

constexpr int32_t kStepRows = 32;  // more are prompts
constexpr int kBandwidthPasses = 5;
// Memory that the rest of the process and the machine keep.
constexpr uint64_t kReserveBytes = uint64_t{1} << 30;

// The experts of a bank on the host.
struct HostExperts {
  sys::AlignedBuffer memory;
  std::unique_ptr<store::ExpertStore> store;
};

Result<HostExperts> MakeHostExperts(const GpuOpbenchBank& bank, const plan::Placement& placement, uint64_t seed,
                                    sys::WorkerPool* pool) {
  HostExperts made;
  BELLHOP_TRY_ASSIGN(made.memory, sys::AlignedBuffer::Create(bank.host_bytes(), MemoryTag::kExpertWeights));
  std::byte* const memory = made.memory.bytes().data();
  const uint64_t stride = bank.expert.stride;
  constexpr int32_t kShared = GpuOpbenchBank::kShared;
  pool->Run([&](int worker, int workers) {
    for (int32_t e = worker; e < kShared; e += workers) {
      bank.expert.Fill(memory + static_cast<uint64_t>(e) * stride, seed + static_cast<uint64_t>(e) * 3);
    }
  });
  const auto copies = static_cast<int64_t>(bank.host_bytes() / stride) - kShared;
  pool->ParallelFor(copies, 1, [&](RowRange range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      std::memcpy(memory + static_cast<uint64_t>(kShared + i) * stride,
                  memory + static_cast<uint64_t>(i % kShared) * stride, stride);
    }
  });
  std::vector<std::vector<store::ExpertView>> layers(static_cast<size_t>(bank.layers));
  uint64_t next = kShared;
  for (int32_t l = 0; l < bank.layers; ++l) {
    for (int32_t e = 0; e < bank.experts; ++e) {
      const bool hit = placement.IsHit(LayerId(l), ExpertId(e));
      const uint64_t at = hit ? static_cast<uint64_t>(e % kShared) : next++;
      layers[static_cast<size_t>(l)].push_back(bank.expert.View(memory + at * stride));
    }
  }
  made.store = store::ExpertStore::FromViews(std::move(layers));
  return made;
}

plan::MissLaneChoice LaneOf(OpbenchMode mode) {
  if (mode == OpbenchMode::kOffGpu) return {.lane = config::MissLane::kPcie, .cpu_share = 0, .us = 0};
  return {.lane = config::MissLane::kCpu, .cpu_share = 1, .us = 0};
}

class Runner {
 public:
  Runner(const config::OpbenchOptions& options, const OpbenchControl& control, const GpuOpbenchPlan& plan,
         GpuOpbenchReport* report)
      : options_(options), control_(control), plan_(plan), report_(report) {}

  // Before anything is timed.
  Status Prepare() {
    const sys::Topology topology = sys::ReadTopology();
    for (const GpuOpbenchBank& bank : plan_.banks) {
      if (bank.host_bytes() + kReserveBytes <= topology.memory_available_bytes) continue;
      return InvalidArgument(
          "{} of experts without a slot do not fit in the {} of memory that are available; raise --hit-rate, or lower "
          "--layers or --experts",
          FormatBytes(bank.host_bytes()), FormatBytes(topology.memory_available_bytes));
    }
    auto devices = cuda::ListDevices();
    if (!devices.ok()) return devices.status().WithContext("--device cuda");
    gpu_ = std::move(devices->front());
    if (!gpu_.note.empty()) return Unsupported("--device cuda: {}: {}; use --device cpu", gpu_.name, gpu_.note);
    for (const GpuOpbenchBank& bank : plan_.banks) {
      if (bank.device_bytes() <= gpu_.free_bytes) continue;
      return InvalidArgument(
          "{} of experts in slots do not fit in the {} that {} has free; lower --layers or --experts",
          FormatBytes(bank.device_bytes()), FormatBytes(gpu_.free_bytes), gpu_.name);
    }
    BELLHOP_TRY_ASSIGN(device_, cuda::Device::Open(gpu_.id, &ledger_));

    const int32_t threads = options_.threads.front();
    BELLHOP_TRY_ASSIGN(sys::WorkerPool::Options workers,
                       ChooseWorkers(topology, threads, options_.pin_threads, &report_->notes));
    // A core for the thread that drives the GPU, as for a model.
    if (threads == 0 && workers.cpus.size() > 2) workers.cpus.pop_back();
    workers.spin_us = kDoorbellSpinUs;
    service_cpu_ = workers.pin ? workers.cpus.front() : -1;
    BELLHOP_TRY_ASSIGN(pool_, sys::WorkerPool::Create(workers));
    for (const std::string& note : pool_->notes()) report_->notes.push_back(note);
    return Status();
  }

  // The first failure. Banks behind it are measured unless the device is lost.
  Status Run() {
    BELLHOP_TRY(MeasureBandwidth());
    Status failure;
    for (const GpuOpbenchBank& bank : plan_.banks) {
      const int64_t end = done_ + static_cast<int64_t>(bank.rows.size());
      const std::string name = fmt::format("{} {}", bank.expert.format.name, OpbenchModeName(bank.mode));
      const Status status = RunBank(bank, name);
      if (Cancelled()) return failure;
      done_ = end;
      if (status.ok()) continue;
      // A list goes on without formats that this lane does not take.
      const bool left_out = bank.expert.format.from_list && status.code() == StatusCode::kUnsupported;
      report_->notes.push_back(fmt::format("{}: {}: {}", left_out ? "left out" : "failed", name, status.message()));
      if (!left_out && failure.ok()) failure = status.WithContext(name);
      if (!device_->poison().status().ok()) return failure;
    }
    BELLHOP_TRY(MeasureBandwidth());
    return failure;
  }

  bool Cancelled() const { return control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed); }

 private:
  void Starting(const std::string& what) const {
    if (control_.progress) control_.progress(std::min(done_, plan_.cases - 1), plan_.cases, what);
  }

  Status MeasureBandwidth() {
    Starting("reading device memory");
    BELLHOP_TRY_ASSIGN(const double gbps, MeasureHbm(device_.get(), gpu_.free_bytes / 4, kBandwidthPasses));
    report_->hbm_gbps.push_back(gbps);
    return Status();
  }

  Status RunBank(const GpuOpbenchBank& bank, const std::string& name) {
    Starting(name + ": filling memory");
    const plan::GpuPlacement placement = PlaceOpbenchExperts(bank, options_.seed);
    BELLHOP_TRY_ASSIGN(const HostExperts host, MakeHostExperts(bank, placement.placement, options_.seed, pool_.get()));
    if (Cancelled()) return Status();
    const model::GpuLayerBenchOptions options{.shape = {.hidden = bank.expert.hidden,
                                                        .inner = bank.expert.inter,
                                                        .layers = bank.layers,
                                                        .experts = bank.experts,
                                                        .used = bank.topk,
                                                        .seed = options_.seed},
                                              .max_rows = bank.rows.back(),
                                              .max_replays = options_.repetitions,
                                              .offloads = bank.mode != OpbenchMode::kResident,
                                              .lane = LaneOf(bank.mode),
                                              .reads_experts = bank.mode == OpbenchMode::kOffGpu,
                                              .answers_at_once = bank.mode == OpbenchMode::kOffRing,
                                              .service_cpu = service_cpu_};
    std::vector<std::string> notes;
    BELLHOP_TRY_ASSIGN(const auto bench, model::CreateGpuLayerBench(*host.store, placement, device_.get(), pool_.get(),
                                                                    sys::DetectCpu(), options, &notes));
    for (std::string& note : notes) {
      auto& all = report_->notes;
      if (std::find(all.begin(), all.end(), note) == all.end()) all.push_back(std::move(note));
    }
    for (const int32_t rows : bank.rows) {
      if (Cancelled()) return Status();
      Starting(fmt::format("{}, {} rows", name, rows));
      BELLHOP_TRY_ASSIGN(model::GpuLayerTimes times, bench->Time(rows, options_.repetitions));
      report_->cases.push_back({.format = bank.expert.format.name,
                                .mode = bank.mode,
                                .hit_rate = bank.hit_rate,
                                .hidden = bank.expert.hidden,
                                .inter = bank.expert.inter,
                                .layers = bank.layers,
                                .experts = bank.experts,
                                .topk = bank.topk,
                                .rows = rows,
                                .prompt = rows > kStepRows,
                                .expert_bytes = bank.expert.bytes(),
                                .layer_us = std::move(times.layer_us),
                                .kernel_us = std::move(times.experts_us),
                                .router_us = std::move(times.router_us),
                                .quiet_us = std::move(times.quiet_us),
                                .hot_experts = times.hot_experts,
                                .cold_experts = times.cold_experts,
                                .hits = times.hits,
                                .misses = times.misses});
      ++done_;
    }
    return Status();
  }

  const config::OpbenchOptions& options_;
  const OpbenchControl& control_;
  const GpuOpbenchPlan& plan_;
  GpuOpbenchReport* report_;
  cuda::DeviceInfo gpu_;
  cuda::MemoryLedger ledger_;
  std::unique_ptr<cuda::Device> device_;
  std::unique_ptr<sys::WorkerPool> pool_;
  int service_cpu_ = -1;
  int64_t done_ = 0;
};

}  // namespace

double GpuOpbenchCase::kernel_flops() const {
  const double routes = kernel_misses() ? hits + misses : hits;
  return 2.0 * 3.0 * static_cast<double>(hidden) * static_cast<double>(inter) * routes;
}

Result<GpuOpbenchReport> RunGpuOpbench(const config::OpbenchOptions& options, const OpbenchControl& control) {
  GpuOpbenchReport report;
  BELLHOP_TRY_ASSIGN(const GpuOpbenchPlan plan, PlanGpuOpbench(options, &report.notes));
  Runner runner(options, control, plan, &report);
  BELLHOP_TRY(runner.Prepare());
  report.failure = runner.Run();
  report.cancelled = runner.Cancelled();
  if (!report.cases.empty()) return report;
  BELLHOP_TRY(report.failure);
  if (report.cancelled) return Status(StatusCode::kCancelled, "nothing was measured before the interruption");
  return Unsupported("nothing could be measured: {}", report.notes.empty() ? "" : report.notes.back());
}

}  // namespace bellhop::engine
