#include "sys/huge_pages.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/units.h"
#include "sys/sysfs.h"

namespace bellhop::sys {
namespace {

constexpr const char* kModeFile = "/sys/kernel/mm/transparent_hugepage/enabled";
constexpr uint64_t kDefaultPageBytes = uint64_t{2} << 20;

// "always [madvise] never" -> "madvise".
std::string BracketedWord(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  return open == std::string::npos || close == std::string::npos || close < open
             ? std::string()
             : text.substr(open + 1, close - open - 1);
}

uint64_t ReadCount(const std::string& path) {
  return static_cast<uint64_t>(std::max<int64_t>(ReadKernelInt(path).value_or(0), 0));
}

// "hugepages-2048kB" -> bytes; 0 for other names.
uint64_t PageBytesOf(std::string_view name) {
  constexpr std::string_view kPrefix = "hugepages-", kSuffix = "kB";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return 0;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  const std::optional<int64_t> kib = ParseKernelInt(name);
  return kib && *kib > 0 ? static_cast<uint64_t>(*kib) * 1024 : 0;
}

}  // namespace

const HugePagePool* HugePageState::FindPool(uint64_t bytes) const {
  for (const HugePagePool& pool : pools) {
    if (pool.free > 0 && CeilDiv(static_cast<int64_t>(bytes), static_cast<int64_t>(pool.page_bytes)) <=
                             static_cast<int64_t>(pool.free)) {
      return &pool;
    }
  }
  return nullptr;
}

std::string HugePageState::WhyNot(uint64_t bytes) const {
  if (transparent_allowed() || FindPool(bytes) != nullptr) return {};
  const std::string mode = transparent.empty()
                               ? "this kernel has no transparent huge pages"
                               : fmt::format("transparent huge pages are off ({}: {})", kModeFile, transparent);
  const std::string turn_on =
      transparent.empty() ? std::string() : fmt::format("echo madvise | sudo tee {}, or set pages aside: ", kModeFile);
  return fmt::format("{}, and no pool of reserved huge pages has {} free; {}{}", mode, FormatBytes(bytes), turn_on,
                     ReserveHugePagesCommand(*this, bytes));
}

HugePageState ReadHugePageState(const std::string& root) {
  HugePageState state;
  state.transparent = BracketedWord(ReadKernelText(root + kModeFile).value_or(""));
  state.transparent_bytes = ReadCount(root + "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  std::error_code error;
  std::filesystem::directory_iterator entry(root + "/sys/kernel/mm/hugepages", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    HugePagePool pool;
    pool.page_bytes = PageBytesOf(entry->path().filename().string());
    if (pool.page_bytes == 0) continue;
    const std::string folder = entry->path().string();
    pool.total = ReadCount(folder + "/nr_hugepages");
    const uint64_t free = ReadCount(folder + "/free_hugepages"), promised = ReadCount(folder + "/resv_hugepages");
    pool.free = free - std::min(free, promised);
    state.pools.push_back(pool);
  }
  std::sort(state.pools.begin(), state.pools.end(),
            [](const HugePagePool& a, const HugePagePool& b) { return a.page_bytes < b.page_bytes; });
  return state;
}

std::string ReserveHugePagesCommand(const HugePageState& state, uint64_t bytes) {
  const uint64_t page = state.pools.empty() ? kDefaultPageBytes : state.pools.front().page_bytes;
  const uint64_t used = state.pools.empty() ? 0 : state.pools.front().total - state.pools.front().free;
  return fmt::format("sudo sysctl vm.nr_hugepages={}", used + (bytes + page - 1) / page);
}

}  // namespace bellhop::sys
