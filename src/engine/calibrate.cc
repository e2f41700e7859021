#include "engine/calibrate.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "cuda/doorbell_probe.h"
#include "cuda/read_probe.h"
#include "engine/process.h"
#include "engine/worker_threads.h"
#include "moe/doorbell_service.h"
#include "sys/aligned_buffer.h"
#include "sys/bandwidth.h"
#include "sys/clock.h"
#include "sys/host_info.h"
#include "sys/topology.h"
#include "sys/worker_pool.h"

namespace bellhop::engine {
namespace {

// Of device memory: at least some times the largest L2 (126 MB), so that what it holds does not flatter.
constexpr uint64_t kLeastDeviceBytes = uint64_t{1} << 30;
constexpr uint64_t kMostDeviceBytes = uint64_t{4} << 30;
constexpr uint64_t kShareOfFree = 4;
// Of host memory that the GPU reads: 20 ms over PCIe 5.0, 0.3 s over four lanes of PCIe 3.0.
constexpr uint64_t kMostHostBytes = uint64_t{1} << 30;
// Reads of the GPU while the CPU reads too: short against the measurement, long against a launch, and fewer than a
// stream takes without making the host wait.
constexpr int kPieces = 200;
// The GPU reads this much longer than the CPU at the rate that it has alone, so that the CPU never reads alone.
constexpr double kLonger = 1.3;

constexpr int32_t kRingLayers = 100;
constexpr int64_t kRingHidden = 4096;  // floats of the row that a ring carries both ways
constexpr int kRingReplays = 20;

// Memory that the GPU reads where it lies: as experts in the engine, or pinned where it cannot be registered.
struct HostMemory {
  sys::AlignedBuffer own;
  cuda::RegisteredHost registered;  // ends before `own` does
  cuda::PinnedBuffer pinned;
  PinnedSpan<const std::byte> bytes() const {
    return registered.pieces() > 0 ? registered.bytes() : PinnedSpan<const std::byte>(pinned.bytes());
  }
};

Result<HostMemory> MakeHostMemory(cuda::Device* device, sys::WorkerPool& pool, uint64_t bytes) {
  HostMemory memory;
  BELLHOP_TRY_ASSIGN(memory.own, sys::AlignedBuffer::Create(bytes, MemoryTag::kOther));
  sys::FillForReading(pool, memory.own.bytes());
  auto registered = cuda::RegisteredHost::Create(device, memory.own.bytes(), MemoryTag::kOther);
  if (registered.ok()) {
    memory.registered = std::move(*registered);
    return memory;
  }
  memory.own = sys::AlignedBuffer();
  BELLHOP_TRY_ASSIGN(memory.pinned, cuda::PinnedBuffer::Create(device, bytes, MemoryTag::kOther));
  return memory;
}

// Rates over the time that both were reading. No thread drives the GPU: it would take a core from the pool.
Status MeasureBoth(cuda::ReadProbe* probe, PinnedSpan<const std::byte> of_gpu, sys::WorkerPool& pool,
                   HostSpan<const std::byte> of_cpu, double seconds, plan::MachineConstants* rates) {
  const double expected = rates->pcie_gbps * 1e9 * seconds * kLonger;
  constexpr uint64_t kLeastPiece = uint64_t{1} << 20;
  const auto piece = std::clamp(RoundUp(static_cast<uint64_t>(expected / kPieces), kLeastPiece), kLeastPiece,
                                std::max<uint64_t>(of_gpu.size() / kLeastPiece, 1) * kLeastPiece);
  BELLHOP_TRY(probe->Start(of_gpu, piece, static_cast<int>(expected / static_cast<double>(piece)) + 1));
  for (;;) {
    BELLHOP_TRY_ASSIGN(const bool started, probe->Started());
    if (started) break;
    std::this_thread::yield();
  }
  const int64_t start = sys::MonotonicNs();
  auto cpu = sys::ReadMemoryFor(pool, of_cpu, static_cast<int64_t>(seconds * 1e9));
  BELLHOP_TRY_ASSIGN(const std::vector<double> ends, probe->Finish());  // of the GPU, before the memory may go
  BELLHOP_TRY(cpu.status());
  std::vector<sys::ReadPoint> gpu{{start, 0}};
  for (const double ms : ends) {
    gpu.push_back({start + static_cast<int64_t>(ms * 1e6), gpu.back().bytes + piece});
  }
  const int64_t from = std::max(cpu->front().ns, gpu.front().ns), to = std::min(cpu->back().ns, gpu.back().ns);
  if (to <= from) return Internal("the GPU had stopped reading before the CPU began");
  rates->both_dram_gbps = sys::RateWithin(*cpu, from, to);
  rates->both_pcie_gbps = sys::RateWithin(gpu, from, to);
  return Status();
}

// The median: the system disturbs some replays.
Result<double> ReplayUs(cuda::DoorbellProbe* probe, moe::DoorbellService* service) {
  std::vector<double> times;
  for (int i = 0; i < kRingReplays; ++i) {
    BELLHOP_TRY(service->BeginStep());
    const Result<double> us = probe->Replay();
    BELLHOP_TRY(service->EndStep());
    BELLHOP_TRY(us.status());
    times.push_back(*us);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Status MeasureRing(cuda::Device* device, int cpu, plan::MachineConstants* rates) {
  BELLHOP_TRY_ASSIGN(const auto probe, cuda::DoorbellProbe::Create(device, kRingLayers, kRingHidden));
  moe::InstantRunner runner(kRingHidden);
  BELLHOP_TRY_ASSIGN(const auto service,
                     moe::DoorbellService::Create(probe->channel(), &runner, {.experts_per_layer = {1}, .cpu = cpu}));
  BELLHOP_TRY_ASSIGN(const double quiet, ReplayUs(probe.get(), service.get()));
  BELLHOP_TRY(probe->SetRinging(true));
  BELLHOP_TRY_ASSIGN(const double ringing, ReplayUs(probe.get(), service.get()));
  rates->sync_us = std::max(0.0, ringing - quiet);
  return Status();
}

struct Host {
  sys::WorkerPool& pool;
  int service_cpu;                   // -1: any
  HostSpan<const std::byte> memory;  // that the CPU reads
};

Status CalibrateGpu(const cuda::DeviceInfo& info, const Host& host, const CalibrateOptions& options,
                    plan::MachineConstants* rates, std::vector<std::string>* notes) {
  if (!info.note.empty()) return CudaError("GPU {}: {}", info.id.value, info.note);
  cuda::MemoryLedger ledger;
  BELLHOP_TRY_ASSIGN(const std::unique_ptr<cuda::Device> device, cuda::Device::Open(info.id, &ledger));
  BELLHOP_TRY_ASSIGN(cuda::ReadProbe probe, cuda::ReadProbe::Create(device.get()));
  BELLHOP_TRY_ASSIGN(rates->hbm_gbps, MeasureHbm(device.get(), info.free_bytes, options.passes));
  BELLHOP_TRY(MeasureRing(device.get(), host.service_cpu, rates));
  auto memory = MakeHostMemory(device.get(), host.pool, std::min(options.max_buffer_bytes, kMostHostBytes));
  if (!memory.ok()) {  // the CPU lane is left
    notes->push_back(fmt::format("the GPU cannot read host memory: {}", memory.status().message()));
    return Status();
  }
  BELLHOP_TRY_ASSIGN(rates->pcie_gbps, probe.Measure(memory->bytes(), options.passes));
  return MeasureBoth(&probe, memory->bytes(), host.pool, host.memory, options.both_seconds, rates);
}

}  // namespace

Result<double> MeasureHbm(cuda::Device* device, uint64_t free_bytes, int passes) {
  const uint64_t bytes = std::clamp(free_bytes / kShareOfFree, kLeastDeviceBytes, kMostDeviceBytes);
  BELLHOP_TRY_ASSIGN(const cuda::DeviceBuffer buffer, cuda::DeviceBuffer::Create(device, bytes, MemoryTag::kOther));
  BELLHOP_TRY_ASSIGN(const cuda::Stream stream, cuda::Stream::Create(device));
  BELLHOP_TRY(cuda::FillZero(buffer.bytes(), stream));
  BELLHOP_TRY(stream.Synchronize());
  BELLHOP_TRY_ASSIGN(cuda::ReadProbe probe, cuda::ReadProbe::Create(device));
  return probe.Measure(DeviceSpan<const std::byte>(buffer.bytes()), passes);
}

Result<Calibration> Calibrate(const CalibrateOptions& options) {
  if (options.passes < 1 || !(options.both_seconds > 0)) {
    return InvalidArgument("a calibration of {} passes and {} seconds: both must be above 0", options.passes,
                           options.both_seconds);
  }
  const sys::Topology topology = sys::ReadTopology();
  Calibration calibration;
  BELLHOP_TRY_ASSIGN(sys::WorkerPool::Options workers,
                     ChooseWorkers(topology, options.threads, true, &calibration.notes));
  workers.spin_us = kWorkerSpinUs;
  BELLHOP_TRY_ASSIGN(const std::unique_ptr<sys::WorkerPool> pool, sys::WorkerPool::Create(workers));
  calibration.notes.insert(calibration.notes.end(), pool->notes().begin(), pool->notes().end());
  calibration.threads = pool->size();
  calibration.date = UtcTimestamp();

  const uint64_t bytes = sys::BandwidthBufferBytes(topology, options.max_buffer_bytes);
  BELLHOP_TRY_ASSIGN(const sys::AlignedBuffer buffer, sys::AlignedBuffer::Create(bytes, MemoryTag::kOther));
  sys::FillForReading(*pool, buffer.bytes());
  BELLHOP_TRY_ASSIGN(const sys::ReadBandwidth read, sys::MeasureReadBandwidth(*pool, buffer.bytes(), options.passes));
  calibration.rates.dram_gbps = read.gb_per_s;

  const auto devices = cuda::ListDevices();
  const cuda::DeviceInfo* const gpu = devices.ok() ? &devices->front() : nullptr;
  calibration.machine = IdentifyMachine(sys::ReadHostInfo(topology).cpu_model, topology.physical_cores, gpu);
  Status status = devices.status();
  if (gpu != nullptr) {
    plan::MachineConstants rates = calibration.rates;
    status = CalibrateGpu(*gpu, {*pool, workers.pin ? workers.cpus.front() : -1, buffer.bytes()}, options, &rates,
                          &calibration.notes);
    if (status.ok()) calibration.rates = rates;
  }
  if (!status.ok()) calibration.notes.push_back(fmt::format("no rates of a GPU: {}", status.message()));
  return calibration;
}

}  // namespace bellhop::engine
