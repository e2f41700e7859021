#include "sys/cgroup.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "sys/sysfs.h"

namespace bellhop::sys {
namespace {

// cgroup v1 reports "unlimited" as the largest page-aligned int64; no machine has 2^60 bytes.
constexpr uint64_t kUnlimitedBytes = uint64_t{1} << 60;

struct Mount {
  std::string root;   // path of the group that is mounted, "/" outside containers
  std::string point;  // where it is mounted
};

bool HasOption(std::string_view options, std::string_view wanted) {
  size_t begin = 0;
  while (begin <= options.size()) {
    const size_t end = std::min(options.find(',', begin), options.size());
    if (options.substr(begin, end - begin) == wanted) return true;
    begin = end + 1;
  }
  return false;
}

// mountinfo (proc(5)): "36 35 98:0 ROOT POINT options [tags] - FSTYPE source SUPER_OPTIONS".
// `controller` is empty for the version 2 hierarchy.
std::optional<Mount> FindMount(const std::string& mountinfo, std::string_view controller) {
  for (const std::string_view line : SplitLines(mountinfo)) {
    const std::vector<std::string_view> fields = SplitFields(line);
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 3) continue;
    const std::string_view type = dash[1];
    const std::string_view super_options = fields.end() - dash > 3 ? dash[3] : std::string_view();
    const bool match =
        controller.empty() ? type == "cgroup2" : type == "cgroup" && HasOption(super_options, controller);
    if (match) return Mount{std::string(fields[3]), std::string(fields[4])};
  }
  return std::nullopt;
}

// /proc/self/cgroup: "ID:CONTROLLERS:PATH", version 2 has no controllers.
std::optional<std::string> FindPath(const std::string& cgroup, std::string_view controller) {
  for (const std::string_view line : SplitLines(cgroup)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool match = controller.empty() ? controllers.empty() : HasOption(controllers, controller);
    if (match) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

// The process's group and all its parents up to the mount, innermost first. Groups that are not visible are left out:
// without a cgroup namespace a container reads its path on the host, but finds only its own group mounted.
std::vector<std::string> GroupFolders(const std::string& root, const Mount& mount, std::string path) {
  if (mount.root != "/" && path.compare(0, mount.root.size(), mount.root) == 0) path.erase(0, mount.root.size());
  // "/../.." leads above a namespace's root: nothing of it is visible.
  if (path.find("/..") != std::string::npos) path.clear();
  while (!path.empty() && path.back() == '/') path.pop_back();
  std::vector<std::string> out;
  while (!path.empty()) {
    out.push_back(root + mount.point + path);
    path.erase(path.find_last_of('/'));
  }
  out.push_back(root + mount.point);
  return out;
}

struct Reader {
  const std::string& root;
  std::vector<std::string>* notes;
  std::string mountinfo;
  std::string cgroup;

  std::vector<std::string> Folders(std::string_view controller, std::string_view default_point) const {
    std::optional<Mount> mount = FindMount(mountinfo, controller);
    if (!mount) mount = Mount{"/", std::string(default_point)};
    return GroupFolders(root, *mount, FindPath(cgroup, controller).value_or("/"));
  }

  void Malformed(const std::string& path, std::string_view text) const {
    notes->push_back(
        fmt::format("{}: '{}' is not understood; no limit assumed", path.substr(root.size()), text.substr(0, 60)));
  }

  std::optional<uint64_t> ReadLimit(const std::string& path) const {
    const std::optional<std::string> text = ReadKernelText(path);
    if (!text || *text == "max" || *text == "-1") return std::nullopt;
    const std::optional<int64_t> value = ParseKernelInt(*text);
    if (!value || *value < 0) {
      Malformed(path, *text);
      return std::nullopt;
    }
    const uint64_t bytes = static_cast<uint64_t>(*value);
    return bytes >= kUnlimitedBytes ? std::nullopt : std::optional(bytes);
  }

  // "QUOTA PERIOD" or "max PERIOD".
  double CpuMax(const std::string& path) const {
    const std::optional<std::string> text = ReadKernelText(path);
    if (!text) return 0;
    const std::vector<std::string_view> fields = SplitFields(*text);
    if (!fields.empty() && fields[0] == "max") return 0;
    const std::optional<int64_t> quota = fields.empty() ? std::nullopt : ParseKernelInt(fields[0]);
    const std::optional<int64_t> period =
        fields.size() < 2 ? std::optional<int64_t>(100'000) : ParseKernelInt(fields[1]);
    if (!quota || !period || *quota <= 0 || *period <= 0) {
      Malformed(path, *text);
      return 0;
    }
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }

  double CfsQuota(const std::string& folder) const {
    const std::optional<int64_t> quota = ReadKernelInt(folder + "/cpu.cfs_quota_us");
    const std::optional<int64_t> period = ReadKernelInt(folder + "/cpu.cfs_period_us");
    if (!quota || *quota <= 0 || !period || *period <= 0) return 0;  // -1: unlimited
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }

  uint64_t PageCacheBytes(const std::string& folder, std::string_view prefix) const {
    uint64_t bytes = 0;
    const std::string text = ReadKernelText(folder + "/memory.stat").value_or("");
    for (const std::string_view line : SplitLines(text)) {
      const std::vector<std::string_view> fields = SplitFields(line);
      if (fields.size() != 2 || fields[0].substr(0, prefix.size()) != prefix) continue;
      const std::string_view name = fields[0].substr(prefix.size());
      if (name != "inactive_file" && name != "active_file") continue;
      bytes += static_cast<uint64_t>(std::max<int64_t>(ParseKernelInt(fields[1]).value_or(0), 0));
    }
    return bytes;
  }
};

void Lower(double quota, CgroupLimits* limits) {
  if (quota > 0 && (limits->cpu_quota == 0 || quota < limits->cpu_quota)) limits->cpu_quota = quota;
}

void LowerMemory(uint64_t limit, uint64_t used, uint64_t page_cache, CgroupLimits* limits) {
  if (limits->memory_limit_bytes == 0 || limit < limits->memory_limit_bytes) limits->memory_limit_bytes = limit;
  const uint64_t held = used - std::min(used, page_cache);
  limits->memory_room_bytes = std::min(limits->memory_room_bytes, limit - std::min(limit, held));
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root, std::vector<std::string>* notes) {
  CgroupLimits limits;
  Reader reader{root, notes, ReadKernelText(root + "/proc/self/mountinfo").value_or(""), ""};
  std::optional<std::string> cgroup = ReadKernelText(root + "/proc/self/cgroup");
  if (!cgroup) {
    notes->push_back("/proc/self/cgroup cannot be read; limits are taken from the top of /sys/fs/cgroup");
  }
  reader.cgroup = cgroup.value_or("");

  const bool unified_at_top = ReadKernelText(root + "/sys/fs/cgroup/cgroup.controllers").has_value();
  for (const std::string& folder : reader.Folders("", unified_at_top ? "/sys/fs/cgroup" : "/sys/fs/cgroup/unified")) {
    Lower(reader.CpuMax(folder + "/cpu.max"), &limits);
    for (const char* name : {"/memory.max", "/memory.high"}) {
      if (const std::optional<uint64_t> limit = reader.ReadLimit(folder + name)) {
        LowerMemory(*limit, reader.ReadLimit(folder + "/memory.current").value_or(0), reader.PageCacheBytes(folder, ""),
                    &limits);
      }
    }
  }
  for (const std::string& folder : reader.Folders("cpu", "/sys/fs/cgroup/cpu")) Lower(reader.CfsQuota(folder), &limits);
  for (const std::string& folder : reader.Folders("memory", "/sys/fs/cgroup/memory")) {
    if (const std::optional<uint64_t> limit = reader.ReadLimit(folder + "/memory.limit_in_bytes")) {
      // total_: the group and its children, as the limit counts them.
      LowerMemory(*limit, reader.ReadLimit(folder + "/memory.usage_in_bytes").value_or(0),
                  reader.PageCacheBytes(folder, "total_"), &limits);
    }
  }
  return limits;
}

}  // namespace bellhop::sys
