#include "engine/doctor_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace bellhop::engine {
namespace {

// Below this much free memory even a small model will not load.
constexpr uint64_t kLittleMemory = uint64_t{1} << 30;
// One phase of a step on an idle machine takes 1 to 5 us; beyond this the workers do not have their CPUs to themselves.
constexpr double kSlowRoundTripNs = 50e3;

class Group {
 public:
  Group(std::string name, std::vector<DoctorLine>* lines) : name_(std::move(name)), lines_(lines) {}

  void Ok(std::string name, std::string value) { Add(CheckLevel::kOk, std::move(name), std::move(value), {}); }
  void Note(std::string name, std::string value, std::string remedy) {
    Add(CheckLevel::kNote, std::move(name), std::move(value), std::move(remedy));
  }
  void Problem(std::string name, std::string value, std::string remedy) {
    Add(CheckLevel::kProblem, std::move(name), std::move(value), std::move(remedy));
  }

 private:
  void Add(CheckLevel level, std::string name, std::string value, std::string remedy) {
    lines_->push_back({name_, std::move(name), std::move(value), level, std::move(remedy)});
  }

  std::string name_;
  std::vector<DoctorLine>* lines_;
};

std::string Plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void CheckInstructionSets(const sys::CpuCaps& caps, Group* cpu) {
  std::string value(sys::IsaName(caps.isa));
  if (caps.isa == sys::Isa::kAmx) value += " (also avx512, avx2, reference)";
  if (caps.isa == sys::Isa::kAvx512) value += " (also avx2, reference)";
  if (caps.isa == sys::Isa::kAvx2) value += " (also reference)";
  const std::pair<bool, const char*> features[] = {
      {caps.avx512_vnni, "VNNI"}, {caps.avx512_bf16, "BF16"}, {caps.avx512_fp16, "FP16"}, {caps.avx512_vbmi, "VBMI"}};
  for (const auto& [there, name] : features) {
    if (there) value += fmt::format(" {}", name);
  }
  if (caps.isa == sys::Isa::kReference) {
    cpu->Problem("instruction sets", value,
                 "no AVX2 with FMA and F16C: everything runs on the slow reference kernels; in a virtual machine, "
                 "expose the host's CPU model");
  } else {
    cpu->Ok("instruction sets", value);
  }
}

void CheckAmx(const MachineFacts& machine, Group* cpu) {
  const sys::CpuCaps& caps = machine.caps;
  if (caps.amx_bf16 || caps.amx_int8) {
    cpu->Ok("AMX", fmt::format("usable:{}{}", caps.amx_bf16 ? " bf16" : "", caps.amx_int8 ? " int8" : ""));
  } else if (machine.cpu_lists_amx) {
    cpu->Note("AMX", "the CPU has it, but this process may not use it",
              "use Linux 5.16 or later, and a container profile that lets arch_prctl(ARCH_REQ_XCOMP_PERM) through");
  } else {
    cpu->Ok("AMX", "not on this CPU");
  }
}

// The two kinds of huge pages, and what each is good for: only --hugepages and large buffers use them.
void CheckHugePages(const MachineFacts& machine, Group* memory) {
  const sys::HugePageState& pages = machine.huge_pages;
  if (pages.transparent_allowed()) {
    memory->Ok("transparent huge pages",
               fmt::format("{}: --hugepages can copy experts to them{}", pages.transparent,
                           machine.topology.numa_nodes > 1
                               ? ", though parts of a matrix smaller than one cannot be split over NUMA nodes"
                               : ""));
  } else if (pages.transparent.empty()) {
    memory->Ok("transparent huge pages", "unknown");
  } else {
    memory->Note("transparent huge pages", pages.transparent,
                 "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled: fewer TLB misses in large "
                 "buffers, and --hugepages without a pool");
  }
  uint64_t reserved = 0;
  std::string pools;
  for (const sys::HugePagePool& pool : pages.pools) {
    if (pool.total == 0) continue;
    reserved += pool.total * pool.page_bytes;
    pools += fmt::format("{}{} of {}, {} free", pools.empty() ? "" : "; ", pool.total, FormatBytes(pool.page_bytes),
                         pool.free);
  }
  memory->Ok("reserved huge pages",
             pools.empty() ? std::string("none (none are needed)") : pools + ": --hugepages takes them first");
  if (reserved > machine.topology.memory_total_bytes / 2) {
    memory->Note("huge page share",
                 fmt::format("{} are set aside, of use to experts with --hugepages and to nothing else of a model",
                             FormatBytes(reserved)),
                 "lower vm.nr_hugepages to what the experts need");
  }
}

std::string DescribeGpu(const cuda::DeviceInfo& device) {
  const std::string free = device.free_bytes > 0 ? FormatBytes(device.free_bytes) + " free" : "free memory unknown";
  return fmt::format("{}, sm_{}{}, {} SMs, {} ({}), PCI {}, driver for CUDA {}, runtime {}", device.name,
                     device.compute_major, device.compute_minor, device.sm_count, FormatBytes(device.total_bytes), free,
                     device.pci_id, cuda::FormatCudaVersion(device.driver_version),
                     cuda::FormatCudaVersion(device.runtime_version));
}

}  // namespace

bool DoctorReport::problems() const {
  return std::any_of(lines.begin(), lines.end(),
                     [](const DoctorLine& line) { return line.level == CheckLevel::kProblem; });
}

void CheckCpu(const MachineFacts& machine, std::vector<DoctorLine>* lines) {
  Group cpu("CPU", lines);
  const sys::Topology& topology = machine.topology;
  const auto allowed = static_cast<int>(topology.cpus.size());
  cpu.Ok("model", machine.host.cpu_model);
  const bool smt = allowed > topology.physical_cores;
  cpu.Ok("cores",
         fmt::format("{}, {} ({})", Plural(topology.physical_cores, "core"), Plural(allowed, "hardware thread"),
                     smt ? "SMT siblings are left idle unless --threads asks for them" : "no SMT in use"));
  const auto efficiency = std::count_if(topology.cpus.begin(), topology.cpus.end(),
                                        [](const sys::CpuInfo& c) { return c.efficiency_core; });
  if (efficiency > 0) cpu.Ok("efficiency cores", fmt::format("{} of {} hardware threads", efficiency, allowed));
  if (machine.online_cpus > allowed) {
    cpu.Note("affinity", fmt::format("{} of {} CPUs may be used", allowed, machine.online_cpus),
             "widen the affinity mask: taskset, the cpuset of the container, or the batch system's CPU count");
  } else {
    cpu.Ok("affinity", "all CPUs may be used");
  }
  cpu.Ok("NUMA nodes",
         topology.numa_nodes > 1
             ? fmt::format("{}: workers are spread over them, and weights lie on the node that reads them",
                           topology.numa_nodes)
             : std::string("1"));
  CheckInstructionSets(machine.caps, &cpu);
  CheckAmx(machine, &cpu);
}

void CheckMemory(const MachineFacts& machine, std::vector<DoctorLine>* lines) {
  Group memory("Memory", lines);
  const sys::Topology& topology = machine.topology;
  memory.Ok("total", topology.memory_total_bytes > 0 ? FormatBytes(topology.memory_total_bytes) : "unknown");
  const std::string available = FormatBytes(topology.memory_available_bytes);
  if (topology.memory_available_bytes == 0) {
    memory.Note("available", "unknown", "mount /proc: without it, plans cannot check whether a model fits");
  } else if (topology.memory_available_bytes < kLittleMemory) {
    memory.Problem("available", available, "end other programs, or raise the memory limit of the container");
  } else {
    memory.Ok("available", available);
  }
  CheckHugePages(machine, &memory);
}

void CheckLimits(const MachineFacts& machine, bool has_gpu, std::vector<DoctorLine>* lines) {
  Group limits("Limits", lines);
  const sys::Topology& topology = machine.topology;
  if (topology.cpu_quota <= 0) {
    limits.Ok("CPU quota", "none");
  } else if (std::ceil(topology.cpu_quota) < topology.physical_cores) {
    limits.Note("CPU quota", fmt::format("{:g} CPUs of {} cores", topology.cpu_quota, topology.physical_cores),
                "raise cpu.max of the control group (docker: --cpus; Kubernetes: limits.cpu); the default number of "
                "threads follows the quota");
  } else {
    limits.Ok("CPU quota", fmt::format("{:g} CPUs", topology.cpu_quota));
  }
  if (topology.memory_limit_bytes == 0) {
    limits.Ok("memory limit", "none");
  } else if (topology.memory_limit_bytes < topology.memory_total_bytes) {
    limits.Note(
        "memory limit",
        fmt::format("{} of {}", FormatBytes(topology.memory_limit_bytes), FormatBytes(topology.memory_total_bytes)),
        "raise memory.max of the control group (docker: --memory; Kubernetes: limits.memory) for models that "
        "do not fit");
  } else {
    limits.Ok("memory limit", FormatBytes(topology.memory_limit_bytes));
  }
  if (topology.memlock_limit_bytes == UINT64_MAX) {
    limits.Ok("locked memory", "unlimited");
  } else if (has_gpu) {
    limits.Note("locked memory", FormatBytes(topology.memlock_limit_bytes),
                "ulimit -l unlimited (docker: --ulimit memlock=-1) where the driver refuses to pin host memory");
  } else {
    limits.Ok("locked memory", fmt::format("{} (no GPU needs it)", FormatBytes(topology.memlock_limit_bytes)));
  }
  for (const std::string& note : topology.notes) {
    limits.Note("assumption", note, "make /proc and /sys readable; until then the assumption holds");
  }
}

void CheckMeasurements(const Result<Measurements>& measured, const std::vector<std::string>& pool_notes,
                       std::vector<DoctorLine>* lines) {
  Group measurements("Measured", lines);
  if (!measured.ok()) {
    measurements.Problem(
        "measurement", std::string(measured.status().message()),
        "raise the limits on threads and memory (ulimit -u, the control group), or pass fewer --threads");
    return;
  }
  const std::string threads = Plural(measured->threads, "thread");
  measurements.Ok("memory read bandwidth", fmt::format("{:.1f} GB/s ({})", measured->read_gb_per_s, threads));
  const std::string round_trip = fmt::format("{:.1f} us ({})", measured->round_trip_ns / 1e3, threads);
  if (measured->round_trip_ns > kSlowRoundTripNs) {
    measurements.Note("worker round trip", round_trip,
                      "the workers share their CPUs with other work or are throttled: end it, or lower --threads");
  } else {
    measurements.Ok("worker round trip", round_trip);
  }
  for (const std::string& note : pool_notes) {
    measurements.Note("worker pool", note, "leave --threads to the program, and let it call sched_setaffinity");
  }
}

void CheckGpus(const GpuFacts& gpus, std::vector<DoctorLine>* lines) {
  Group gpu("GPU", lines);
  if (!gpus.status.ok()) {
    const std::string reason(gpus.status.message());
    switch (gpus.status.code()) {
      case StatusCode::kUnsupported:
        gpu.Note("devices", reason, "build with -DBELLHOP_CUDA=ON (preset `cuda`) to look for GPUs");
        return;
      case StatusCode::kNotFound:
        gpu.Note("devices", reason,
                 "fine on a machine without a GPU; else install the NVIDIA driver, pass the GPU into the container "
                 "(docker: --gpus all) and check CUDA_VISIBLE_DEVICES");
        return;
      default: gpu.Problem("devices", reason, "run nvidia-smi: the driver and the GPU must work there first"); return;
    }
  }
  for (size_t i = 0; i < gpus.devices.size(); ++i) {
    const cuda::DeviceInfo& device = gpus.devices[i];
    const std::string name = fmt::format("GPU {}", device.id.value);
    if (device.note.empty()) {
      gpu.Ok(name, DescribeGpu(device));
    } else {
      gpu.Note(name, fmt::format("{}; {}", DescribeGpu(device), device.note),
               "end the process that holds the GPU, or choose another with CUDA_VISIBLE_DEVICES");
    }
    if (i >= gpus.probes.size()) continue;
    const Result<cuda::ProbeResult>& probe = gpus.probes[i];
    const std::string probe_name = name + " kernel";
    if (probe.ok()) {
      gpu.Ok(probe_name, fmt::format("runs, compiled for sm_{}", probe->kernel_arch / 10));
    } else if (probe.status().code() == StatusCode::kUnsupported) {
      gpu.Problem(probe_name, std::string(probe.status().message()),
                  fmt::format("build with -DBELLHOP_CUDA_ARCHITECTURES including {}{}-real", device.compute_major,
                              device.compute_minor));
    } else {
      gpu.Problem(probe_name, std::string(probe.status().message()),
                  "update the driver, and check dmesg for GPU errors (Xid)");
    }
  }
}

void CheckCalibration(const config::CalibrationConfig& where, const Result<Calibration>& stored,
                      std::vector<DoctorLine>* lines) {
  Group group("Calibration", lines);
  constexpr const char* kRemedy = "bellhop doctor --calibrate; until then plans for the GPU go by estimates";
  if (!stored.ok()) {
    const bool none = stored.status().code() == StatusCode::kNotFound && !where.is_explicit;
    group.Note("stored", none ? std::string("none") : fmt::format("cannot be used: {}", stored.status().message()),
               kRemedy);
    return;
  }
  // The default path names the user.
  group.Ok("stored", fmt::format("{}measured {} with {}", where.is_explicit ? where.path + ", " : "", stored->date,
                                 Plural(stored->threads, "thread")));
  for (const CalibrationLine& line : DescribeRates(*stored)) group.Ok(line.name, line.value);
  for (const std::string& note : stored->notes) {
    if (stored->machine.gpu.empty()) {
      group.Ok("when measured", note);
    } else {
      group.Note("when measured", note, kRemedy);
    }
  }
}

void CheckBuild(const BuildInfo& build, std::vector<DoctorLine>* lines) {
  Group group("Build", lines);
  group.Ok("version", std::string(build.version));
  group.Ok("commit", std::string(build.commit));
  group.Ok("compiler", std::string(build.compiler));
  if (!build.sanitizers.empty()) {
    group.Note("type", fmt::format("{}, sanitizers: {}", build.build_type, build.sanitizers),
               "many times slower than the `release` preset: for tests alone");
  } else if (build.build_type == "Debug") {
    group.Note("type", "Debug", "several times slower than the `release` preset");
  } else {
    group.Ok("type", std::string(build.build_type));
  }
  group.Ok("CUDA backend", build.cuda ? "yes" : "no");
  group.Ok("third-party libraries", build.static_libraries ? "static" : "shared");
}

void CheckModel(const ModelFacts& model, const MachineFacts& machine, std::vector<DoctorLine>* lines) {
  const sys::Topology& topology = machine.topology;
  Group group("Model", lines);
  group.Ok("file", model.path);
  if (!model.supported.ok()) {
    group.Problem("supported", std::string(model.supported.message()),
                  "`bellhop inspect` shows what the file holds; convert a model of a supported architecture");
  } else {
    group.Ok("supported", "yes");
  }
  const uint64_t needed = model.weights + model.cache_and_buffers;
  std::string sizes = fmt::format("weights {}", FormatBytes(model.weights));
  if (model.cache_and_buffers > 0) {
    sizes +=
        fmt::format(" + KV cache and buffers {} (context {})", FormatBytes(model.cache_and_buffers), model.context);
  }
  const uint64_t limit = topology.memory_limit_bytes == 0
                             ? topology.memory_total_bytes
                             : std::min(topology.memory_limit_bytes, topology.memory_total_bytes);
  if (topology.memory_available_bytes == 0) {
    group.Note("memory", fmt::format("{}; how much is available is unknown", sizes), "mount /proc");
  } else if (needed <= topology.memory_available_bytes) {
    group.Ok("memory", fmt::format("{}: fits into {}", sizes, FormatBytes(topology.memory_available_bytes)));
  } else if (needed <= limit) {
    group.Note("memory", fmt::format("{}; available now are {}", sizes, FormatBytes(topology.memory_available_bytes)),
               fmt::format("end other programs: with all of {} it fits", FormatBytes(limit)));
  } else {
    group.Problem("memory", fmt::format("{}; this machine grants {}", sizes, FormatBytes(limit)),
                  "weights will be read from the disk again and again: use a smaller format (`bellhop quantize`), a "
                  "smaller --ctx-size, or more memory");
  }
  if (model.expert_copy > 0) {
    const bool pool = machine.huge_pages.FindPool(model.expert_copy) != nullptr;
    const bool fits = needed <= topology.memory_available_bytes;
    const std::string copy = fmt::format("a copy of the experts, {},", FormatBytes(model.expert_copy));
    const std::string why_not = machine.huge_pages.WhyNot(model.expert_copy);
    if (!why_not.empty()) {
      group.Ok("--hugepages", "not possible: " + why_not);
    } else if (pool || fits) {
      group.Ok("--hugepages", fmt::format("{} fits{}", copy, pool ? " into the reserved pool" : ""));
    } else {
      group.Ok("--hugepages", copy + " does not fit");
    }
  }
  for (const std::string& format : model.slow_formats) {
    group.Note("format " + format, "has no SIMD kernel on this CPU: runs on the slow reference kernel",
               "re-quantize these matrices, for example to Q4_K or Q8_0");
  }
}

}  // namespace bellhop::engine
