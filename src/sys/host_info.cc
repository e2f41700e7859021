#include "sys/host_info.h"

#include <sys/utsname.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "sys/cpu_features.h"
#include "sys/sysfs.h"

namespace bellhop::sys {
namespace {

// "32K", "480M"
uint64_t ParseCacheSize(std::string_view text) {
  if (text.empty()) return 0;
  const char unit = text.back();
  const int shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
  if (shift != 0) text.remove_suffix(1);
  const std::optional<int64_t> value = ParseKernelInt(text);
  return value && *value > 0 ? static_cast<uint64_t>(*value) << shift : 0;
}

std::string Counted(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

uint64_t LastLevelCacheBytes(const std::string& root) {
  uint64_t largest = 0;
  for (int index = 0; index < 16; ++index) {
    const std::optional<std::string> size =
        ReadKernelText(fmt::format("{}/sys/devices/system/cpu/cpu0/cache/index{}/size", root, index));
    if (!size) break;
    largest = std::max(largest, ParseCacheSize(*size));
  }
  return largest;
}

HostInfo ReadHostInfo(const Topology& topology, const std::string& root) {
  HostInfo info;
  info.cpu_model = DetectCpu().model_name;
  if (info.cpu_model.empty()) info.cpu_model = "unknown CPU";
  utsname names{};
  info.kernel = uname(&names) == 0 ? fmt::format("{} {}", names.sysname, names.release) : "unknown kernel";
  info.last_level_cache_bytes = LastLevelCacheBytes(root);
  const uint64_t gib = (topology.memory_total_bytes + (uint64_t{1} << 29)) >> 30;
  info.machine = fmt::format("{}, {}, {}, {} GiB", info.cpu_model, Counted(topology.physical_cores, "core"),
                             Counted(topology.numa_nodes, "NUMA node"), gib);
  return info;
}

ProcessMemory ReadProcessMemory(const std::string& root) {
  ProcessMemory memory;
  const std::string text = ReadKernelText(root + "/proc/self/status").value_or("");
  for (const std::string_view line : SplitLines(text)) {
    const std::vector<std::string_view> fields = SplitFields(line);  // "VmRSS:   12345 kB"
    if (fields.size() < 2) continue;
    uint64_t* target = fields[0] == "VmRSS:"     ? &memory.resident_bytes
                       : fields[0] == "VmHWM:"   ? &memory.peak_resident_bytes
                       : fields[0] == "RssAnon:" ? &memory.anonymous_bytes
                                                 : nullptr;
    const std::optional<int64_t> kib = target == nullptr ? std::nullopt : ParseKernelInt(fields[1]);
    if (kib && *kib > 0) *target = static_cast<uint64_t>(*kib) * 1024;
  }
  return memory;
}

}  // namespace bellhop::sys
