#include "sys/topology.h"

#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "sys/cgroup.h"
#include "sys/sysfs.h"
#include "sys/thread_affinity.h"

namespace bellhop::sys {
namespace {

using Notes = std::vector<std::string>;

std::string CpuFolder(const std::string& root, int cpu) {
  return fmt::format("{}/sys/devices/system/cpu/cpu{}", root, cpu);
}

// The text after "KEY:" in a file of such lines.
std::optional<std::string> ReadColonField(const std::string& path, std::string_view key) {
  const std::optional<std::string> text = ReadKernelText(path);
  if (!text) return std::nullopt;
  for (const std::string_view line : SplitLines(*text)) {
    if (line.substr(0, key.size()) == key && line.substr(key.size(), 1) == ":") {
      return std::string(line.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

std::vector<int> AllowedCpus(const std::string& root, const std::vector<int>& affinity, Notes* notes) {
  std::vector<int> allowed = affinity;
  if (allowed.empty() && root.empty()) {
    if (Result<std::vector<int>> mask = ReadThreadAffinity(); mask.ok()) allowed = std::move(mask).value();
  }
  if (allowed.empty()) {
    const std::optional<std::string> list = ReadColonField(root + "/proc/self/status", "Cpus_allowed_list");
    if (list) allowed = ParseCpuList(*list).value_or(std::vector<int>());
  }
  std::sort(allowed.begin(), allowed.end());
  allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
  const std::optional<std::vector<int>> online = ReadCpuList(root + "/sys/devices/system/cpu/online");
  if (!online || online->empty()) {
    notes->push_back("the list of online CPUs cannot be read; the affinity mask is used as it is");
  } else if (allowed.empty()) {
    notes->push_back("the affinity mask cannot be read; all online CPUs are assumed to be allowed");
    allowed = *online;
  } else {
    std::vector<int> both;
    std::set_intersection(allowed.begin(), allowed.end(), online->begin(), online->end(), std::back_inserter(both));
    if (both.empty()) {
      notes->push_back(fmt::format("no allowed CPU ({}) is listed as online ({}); the affinity mask is used as it is",
                                   FormatCpuList(allowed), FormatCpuList(*online)));
    } else {
      allowed = std::move(both);
    }
  }
  if (allowed.empty()) {
    notes->push_back("the number of CPUs cannot be read; one CPU is assumed");
    allowed = {0};
  }
  return allowed;
}

// A key that SMT siblings share: the lowest CPU number among them, or (package, core id). Null when neither is there.
std::optional<std::string> CoreKey(const std::string& root, int cpu) {
  const std::string folder = CpuFolder(root, cpu) + "/topology/";
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {
    const std::optional<std::vector<int>> siblings = ReadCpuList(folder + name);
    if (siblings && std::binary_search(siblings->begin(), siblings->end(), cpu)) {
      return fmt::format("siblings {}", siblings->front());
    }
  }
  const std::optional<int64_t> package = ReadKernelInt(folder + "physical_package_id");
  const std::optional<int64_t> core = ReadKernelInt(folder + "core_id");
  if (!core || *core < 0) return std::nullopt;
  return fmt::format("package {} core {}", package.value_or(0), *core);
}

void AssignCores(const std::string& root, Topology* topology) {
  std::map<std::string, int> numbers;
  int unknown = 0;
  for (CpuInfo& info : topology->cpus) {
    const std::optional<std::string> key = CoreKey(root, info.cpu);
    if (!key) ++unknown;
    const auto [it, fresh] =
        numbers.try_emplace(key.value_or(fmt::format("cpu {}", info.cpu)), static_cast<int>(numbers.size()));
    info.core = it->second;
  }
  topology->physical_cores = static_cast<int>(numbers.size());
  if (unknown > 0) {
    topology->notes.push_back(
        fmt::format("{} CPUs do not say which core they belong to; each counts as a core", unknown));
  }
}

// Hybrid CPUs: Intel lists the two kinds as two performance-counter devices, others differ in cpu_capacity.
void MarkEfficiencyCores(const std::string& root, Topology* topology) {
  const std::optional<std::vector<int>> atoms = ReadCpuList(root + "/sys/devices/cpu_atom/cpus");
  std::map<int, int64_t> capacity;
  int64_t largest = 0;
  for (const CpuInfo& info : topology->cpus) {
    capacity[info.cpu] = ReadKernelInt(CpuFolder(root, info.cpu) + "/cpu_capacity").value_or(0);
    largest = std::max(largest, capacity[info.cpu]);
  }
  for (CpuInfo& info : topology->cpus) {
    const bool atom = atoms && std::binary_search(atoms->begin(), atoms->end(), info.cpu);
    // Turbo bins make capacities differ by a few percent among equal cores; efficiency cores have 3/4 or less.
    const bool slow = capacity[info.cpu] > 0 && capacity[info.cpu] * 4 <= largest * 3;
    info.efficiency_core = atom || slow;
  }
  const bool all = std::all_of(topology->cpus.begin(), topology->cpus.end(),
                               [](const CpuInfo& info) { return info.efficiency_core; });
  if (!all) return;
  for (CpuInfo& info : topology->cpus) info.efficiency_core = false;  // only a difference matters
}

void AssignNodes(const std::string& root, Topology* topology) {
  Notes& notes = topology->notes;
  const std::string folder = root + "/sys/devices/system/node";
  std::optional<std::vector<int>> nodes = ReadCpuList(folder + "/online");
  if (!nodes || nodes->empty()) {
    notes.push_back("NUMA nodes are not listed; one node assumed");
    return;
  }
  std::map<int, int> node_of;
  for (const int node : *nodes) {
    const std::optional<std::vector<int>> cpus = ReadCpuList(fmt::format("{}/node{}/cpulist", folder, node));
    if (!cpus) {
      notes.push_back(fmt::format("the CPUs of NUMA node {} cannot be read; the node is ignored", node));
      continue;
    }
    for (const int cpu : *cpus) node_of.emplace(cpu, node);
  }
  std::set<int> used;
  std::vector<int> homeless;
  for (CpuInfo& info : topology->cpus) {
    const auto it = node_of.find(info.cpu);
    if (it == node_of.end()) homeless.push_back(info.cpu);
    info.numa_node = it == node_of.end() ? nodes->front() : it->second;
    used.insert(info.numa_node);
  }
  if (!homeless.empty()) {
    notes.push_back(
        fmt::format("CPUs {} belong to no NUMA node; node {} assumed", FormatCpuList(homeless), nodes->front()));
  }
  topology->numa_nodes = static_cast<int>(used.size());

  const std::optional<std::string> mems = ReadColonField(root + "/proc/self/status", "Mems_allowed_list");
  const std::optional<std::vector<int>> allowed_mems = mems ? ParseCpuList(*mems) : std::nullopt;
  for (const int node : used) {
    const std::optional<std::string> info = ReadKernelText(fmt::format("{}/node{}/meminfo", folder, node));
    for (const std::string_view line : SplitLines(info ? std::string_view(*info) : std::string_view())) {
      const std::vector<std::string_view> fields = SplitFields(line);  // "Node 0 MemTotal: 12544204 kB"
      if (fields.size() >= 4 && fields[2] == "MemTotal:" && ParseKernelInt(fields[3]) == 0) {
        notes.push_back(fmt::format("NUMA node {} has CPUs and no memory: its workers read from other nodes", node));
      }
    }
    if (allowed_mems && !std::binary_search(allowed_mems->begin(), allowed_mems->end(), node)) {
      notes.push_back(fmt::format("the cpuset allows CPUs of NUMA node {} and not its memory", node));
    }
  }
}

// "MemTotal:  12544204 kB"
uint64_t MeminfoBytes(const std::string& root, std::string_view key) {
  const std::optional<std::string> text = ReadColonField(root + "/proc/meminfo", key);
  if (!text) return 0;
  const std::vector<std::string_view> fields = SplitFields(*text);
  const std::optional<int64_t> kib = fields.empty() ? std::nullopt : ParseKernelInt(fields[0]);
  return kib && *kib > 0 ? static_cast<uint64_t>(*kib) * 1024 : 0;
}

uint64_t MemlockLimitBytes(const std::string& root, Notes* notes) {
  constexpr std::string_view kLabel = "Max locked memory";
  const std::string text = ReadKernelText(root + "/proc/self/limits").value_or("");
  for (const std::string_view line : SplitLines(text)) {
    if (line.substr(0, kLabel.size()) != kLabel) continue;
    const std::vector<std::string_view> fields = SplitFields(line.substr(kLabel.size()));
    if (!fields.empty() && fields[0] == "unlimited") return UINT64_MAX;
    if (const std::optional<int64_t> soft = fields.empty() ? std::nullopt : ParseKernelInt(fields[0])) {
      return static_cast<uint64_t>(std::max<int64_t>(*soft, 0));
    }
  }
  rlimit limit{};
  if (root.empty() && getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  }
  notes->push_back("the limit of locked memory cannot be read; 0 assumed");
  return 0;
}

void ReadMemory(const std::string& root, Topology* topology) {
  const CgroupLimits limits = ReadCgroupLimits(root, &topology->notes);
  topology->cpu_quota = limits.cpu_quota;
  topology->memory_limit_bytes = limits.memory_limit_bytes;
  topology->memory_total_bytes = MeminfoBytes(root, "MemTotal");
  topology->memory_available_bytes = MeminfoBytes(root, "MemAvailable");
  if (topology->memory_total_bytes == 0) topology->notes.push_back("the size of the memory cannot be read");
  if (topology->memory_available_bytes == 0) {
    topology->notes.push_back("the available memory cannot be read; all of it is assumed to be available");
    topology->memory_available_bytes = topology->memory_total_bytes;
  }
  topology->memory_available_bytes = std::min(topology->memory_available_bytes, limits.memory_room_bytes);
  topology->memlock_limit_bytes = MemlockLimitBytes(root, &topology->notes);
}

}  // namespace

Topology ReadTopology(const std::string& root, const std::vector<int>& affinity) {
  Topology topology;
  for (const int cpu : AllowedCpus(root, affinity, &topology.notes)) {
    CpuInfo info;
    info.cpu = cpu;
    topology.cpus.push_back(info);
  }
  AssignCores(root, &topology);
  MarkEfficiencyCores(root, &topology);
  AssignNodes(root, &topology);
  ReadMemory(root, &topology);
  return topology;
}

int PciNumaNode(const std::string& pci_id, std::vector<std::string>* notes, const std::string& root) {
  std::string name = pci_id;  // CUDA reports upper-case hexadecimal digits, sysfs has lower-case names
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool plain = name.find('/') == std::string::npos;
  const std::optional<int64_t> node =
      plain ? ReadKernelInt(root + "/sys/bus/pci/devices/" + name + "/numa_node") : std::nullopt;
  if (node && *node >= 0 && *node <= 65535) return static_cast<int>(*node);
  notes->push_back(fmt::format("PCI device {} does not say which NUMA node it is on; node 0 assumed", pci_id));
  return 0;
}

}  // namespace bellhop::sys
