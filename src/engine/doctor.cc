#include "engine/doctor.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "config/config.h"
#include "engine/doctor_checks.h"
#include "engine/worker_threads.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/manifest_builder.h"
#include "kernels/dot.h"
#include "model/arch/registry.h"
#include "model/transformer.h"
#include "store/expert_store.h"
#include "sys/bandwidth.h"
#include "sys/sysfs.h"
#include "sys/worker_pool.h"

namespace bellhop::engine {
namespace {

constexpr int kBandwidthPasses = 3;
constexpr int kRoundTrips = 2000;
// The measuring buffer takes at most this, to keep its first touch short (some seconds per GiB in a virtual machine).
constexpr uint64_t kMaxBuffer = uint64_t{4} << 30;

bool ListsAmx(std::string_view cpuinfo) {
  for (const std::string_view line : sys::SplitLines(cpuinfo)) {
    const std::vector<std::string_view> fields = sys::SplitFields(line);
    if (fields.empty() || fields[0] != "flags") continue;
    return std::find(fields.begin(), fields.end(), "amx_tile") != fields.end();
  }
  return false;
}

Result<Measurements> Measure(const sys::WorkerPool::Options& workers, const MachineFacts& machine,
                             std::vector<std::string>* pool_notes) {
  BELLHOP_TRY_ASSIGN(const std::unique_ptr<sys::WorkerPool> pool, sys::WorkerPool::Create(workers));
  pool_notes->insert(pool_notes->end(), pool->notes().begin(), pool->notes().end());
  const uint64_t bytes = sys::BandwidthBufferBytes(machine.topology, kMaxBuffer);
  BELLHOP_TRY_ASSIGN(const sys::ReadBandwidth bandwidth, sys::MeasureReadBandwidth(*pool, bytes, kBandwidthPasses));
  return Measurements{
      .threads = pool->size(),
      .read_gb_per_s = bandwidth.gb_per_s,
      .round_trip_ns = sys::MeasureRoundTripNs(*pool, kRoundTrips),
  };
}

}  // namespace

MachineFacts GatherMachine(const std::string& root, const std::vector<int>& affinity) {
  MachineFacts facts;
  facts.topology = sys::ReadTopology(root, affinity);
  facts.host = sys::ReadHostInfo(facts.topology, root);
  facts.caps = sys::DetectCpu();
  const auto online = sys::ReadCpuList(root + "/sys/devices/system/cpu/online");
  if (online) facts.online_cpus = static_cast<int>(online->size());
  facts.cpu_lists_amx = ListsAmx(sys::ReadKernelText(root + "/proc/cpuinfo").value_or(""));
  facts.huge_pages = sys::ReadHugePageState(root);
  return facts;
}

GpuFacts GatherGpus() {
  GpuFacts facts;
  auto devices = cuda::ListDevices();
  facts.status = devices.status();
  if (!devices.ok()) return facts;
  facts.devices = std::move(devices).value();
  for (const cuda::DeviceInfo& device : facts.devices) facts.probes.push_back(cuda::ProbeDevice(device.id));
  return facts;
}

Result<ModelFacts> GatherModel(const std::string& path, const sys::CpuCaps& caps, int threads) {
  BELLHOP_TRY_ASSIGN(const formats::GgufModel model, formats::GgufModel::Open(path));
  ModelFacts facts;
  facts.path = path;
  std::set<std::string> slow;
  for (const manifest::Tensor& tensor : model.tensors()) {
    facts.weights += tensor.bytes;
    const kernels::DotKernel* kernel = kernels::SelectDot(tensor.format, caps);
    if (tensor.rows() > 1 && kernel != nullptr && kernel->isa == sys::Isa::kReference &&
        caps.isa != sys::Isa::kReference) {
      slow.emplace(quant::Traits(tensor.format).name);
    }
  }
  facts.slow_formats.assign(slow.begin(), slow.end());

  const auto check = [&]() -> Status {
    BELLHOP_TRY_ASSIGN(const manifest::Manifest manifest, formats::BuildManifest(model));
    BELLHOP_TRY_ASSIGN(const model::ModelSpec spec, model::BuildSpec(manifest));
    BELLHOP_TRY_ASSIGN(const auto experts, store::ExpertStore::Create(manifest));
    facts.expert_copy = store::CopyBytes(*experts);
    model::TransformerOptions options;
    const uint32_t trained = manifest.hparams.context_length;
    options.context_tokens = static_cast<int32_t>(trained > 0 ? std::min(trained, config::kDefaultContextTokens)
                                                              : config::kDefaultContextTokens);
    options.max_rows = std::min(options.max_rows, options.context_tokens);
    facts.context = options.context_tokens;
    facts.cache_and_buffers =
        model::Transformer::KvBytes(spec, options) + model::Transformer::WorkspaceBytes(spec, options, threads);
    return Status();
  };
  facts.supported = check();
  return facts;
}

Result<DoctorReport> Diagnose(const DoctorOptions& options) {
  const MachineFacts machine = GatherMachine();
  std::vector<std::string> pool_notes;
  BELLHOP_TRY_ASSIGN(const sys::WorkerPool::Options workers,
                     ChooseWorkers(machine.topology, options.threads, true, &pool_notes));
  std::optional<ModelFacts> model;
  if (!options.model_path.empty()) {
    BELLHOP_TRY_ASSIGN(model, GatherModel(options.model_path, machine.caps, static_cast<int>(workers.cpus.size())));
  }
  DoctorReport report;
  CheckCpu(machine, &report.lines);
  CheckMemory(machine, &report.lines);
  const GpuFacts gpus = GatherGpus();
  CheckLimits(machine, !gpus.devices.empty(), &report.lines);
  if (options.measure) {
    const Result<Measurements> measured = Measure(workers, machine, &pool_notes);
    if (measured.ok()) {
      report.read_gb_per_s = measured->read_gb_per_s;
      report.pool_round_trip_ns = measured->round_trip_ns;
    }
    CheckMeasurements(measured, pool_notes, &report.lines);
  }
  CheckGpus(gpus, &report.lines);
  const MachineIdentity identity = IdentifyMachine(machine.host.cpu_model, machine.topology.physical_cores,
                                                   gpus.devices.empty() ? nullptr : &gpus.devices.front());
  CheckCalibration(options.calibration, ReadCalibrationOf(options.calibration.path, identity), &report.lines);
  CheckBuild(GetBuildInfo(), &report.lines);
  if (model) CheckModel(*model, machine, &report.lines);
  return report;
}

}  // namespace bellhop::engine
