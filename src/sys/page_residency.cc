#include "sys/page_residency.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>

#include "sys/sysfs.h"

// Of Linux 5.14 and 5.4; the C library's headers may be older.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace bellhop::sys {
namespace {

uint64_t PageBytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }
uint64_t Address(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

// "7f12a000-7f12b000 r--p ...": the bounds of a mapping, or false for the lines that describe it.
bool ParseMappingLine(std::string_view line, uint64_t* begin, uint64_t* end) {
  const size_t dash = line.find('-'), space = line.find(' ');
  if (dash == std::string_view::npos || space == std::string_view::npos || dash > space) return false;
  const char* const text = line.data();
  const auto first = std::from_chars(text, text + dash, *begin, 16);
  const auto second = std::from_chars(text + dash + 1, text + space, *end, 16);
  return first.ec == std::errc() && first.ptr == text + dash && second.ec == std::errc() &&
         second.ptr == text + space && *begin < *end;
}

}  // namespace

std::optional<RangePages> ReadRangePages(HostSpan<const std::byte> range, const std::string& root) {
  std::ifstream file(root + "/proc/self/smaps");
  if (!file) return std::nullopt;
  const uint64_t begin = Address(range.data()), end = begin + range.size();
  double resident = 0, huge = 0;
  double share = 0;  // of the mapping at hand that lies in the range
  bool any = false;
  std::string line;
  while (std::getline(file, line)) {
    uint64_t low = 0, high = 0;
    if (ParseMappingLine(line, &low, &high)) {
      const uint64_t from = std::max(low, begin), to = std::min(high, end);
      share = from < to ? static_cast<double>(to - from) / static_cast<double>(high - low) : 0;
      any = any || share > 0;
      continue;
    }
    if (share == 0) continue;
    const std::vector<std::string_view> fields = SplitFields(line);
    if (fields.size() < 2) continue;
    const std::string_view key = fields[0];
    const bool reserved = key == "Private_Hugetlb:" || key == "Shared_Hugetlb:";
    const bool transparent = key == "AnonHugePages:" || key == "FilePmdMapped:" || key == "ShmemPmdMapped:";
    if (key != "Rss:" && !reserved && !transparent) continue;
    const double bytes =
        static_cast<double>(std::max<int64_t>(ParseKernelInt(fields[1]).value_or(0), 0)) * 1024 * share;
    if (key == "Rss:" || reserved) resident += bytes;  // Rss leaves pages of the reserved pool out
    if (reserved || transparent) huge += bytes;
  }
  if (!any) return std::nullopt;
  // A region ends inside its last page.
  const auto cap = static_cast<double>(range.size());
  return RangePages{static_cast<uint64_t>(std::min(resident, cap)), static_cast<uint64_t>(std::min(huge, cap))};
}

std::optional<std::vector<uint64_t>> CountNodes(HostSpan<const std::byte* const> addresses) {
  constexpr size_t kBatch = 4096;
  std::vector<uint64_t> nodes;
  std::vector<int> status(std::min(addresses.size(), kBatch));
  for (size_t at = 0; at < addresses.size(); at += kBatch) {
    const size_t count = std::min(kBatch, addresses.size() - at);
    // move_pages(2) without target nodes asks where pages are; a negative status: not in memory.
    if (syscall(SYS_move_pages, 0, count, addresses.data() + at, nullptr, status.data(), 0) != 0) return std::nullopt;
    for (size_t i = 0; i < count; ++i) {
      if (status[i] < 0) continue;
      const auto node = static_cast<size_t>(status[i]);
      if (node >= nodes.size()) nodes.resize(node + 1);
      ++nodes[node];
    }
  }
  return nodes;
}

Status PopulateForReading(HostSpan<const std::byte> range, std::string_view what) {
  if (range.empty()) return Status();
  const uint64_t page = PageBytes();
  const uint64_t skew = Address(range.data()) % page;
  std::byte* const begin = const_cast<std::byte*>(range.data()) - skew;
  const uint64_t length = range.size() + skew;
  while (madvise(begin, length, MADV_POPULATE_READ) != 0) {
    const int error = errno;
    if (error == EAGAIN || error == EINTR) continue;
    if (error == EINVAL || error == ENOSYS || error == EPERM) {
      // Linux before 5.14, or a sandbox that does not know the advice: read ahead, then fault page by page.
      (void)madvise(begin, length, MADV_WILLNEED);
      for (uint64_t at = 0; at < length; at += page) (void)*static_cast<volatile const std::byte*>(begin + at);
      return Status();
    }
    if (error == EFAULT || error == EHWPOISON || error == EIO) {
      return IoError(
          "{}: its pages cannot be read: the file has become shorter since it was opened, or its disk "
          "fails; replace files by renaming new ones over them, and check the disk (dmesg)",
          what);
    }
    return IoError("{}: cannot read its pages: {}", what, std::generic_category().message(error));
  }
  return Status();
}

void ReleasePages(HostSpan<const std::byte> range, bool drop_cache) {
  const uint64_t page = PageBytes();
  const uint64_t begin = (Address(range.data()) + page - 1) / page * page;
  const uint64_t end = (Address(range.data()) + range.size()) / page * page;
  if (begin >= end) return;
  void* const data = const_cast<std::byte*>(range.data()) + (begin - Address(range.data()));
  // Both are advice. Pages must be mapped for MADV_PAGEOUT to find them, so it comes first.
  if (drop_cache) (void)madvise(data, end - begin, MADV_PAGEOUT);
  (void)madvise(data, end - begin, MADV_DONTNEED);
}

}  // namespace bellhop::sys
