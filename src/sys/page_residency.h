// Where pages are: what backs an address range of this process, and on which NUMA nodes. And the two wishes about pages
// of mapped files: to be there, and to be gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/span.h"
#include "base/status.h"

namespace bellhop::sys {

struct RangePages {
  uint64_t resident_bytes = 0;  // in memory and in the page table
  uint64_t huge_bytes = 0;      // of them on huge pages, transparent or reserved, anonymous or of a file
};

// From /proc/self/smaps, by mapping: a mapping that the range covers in part counts in proportion. Empty when /proc
// cannot be read. `root` is prepended, for tests.
std::optional<RangePages> ReadRangePages(HostSpan<const std::byte> range, const std::string& root = "");

// How many of the pages at `addresses` are on each node, index = node number; pages that are not in memory count
// nowhere. Empty when the kernel does not say.
std::optional<std::vector<uint64_t>> CountNodes(HostSpan<const std::byte* const> addresses);

// Reads a range of a mapped file into memory and into the page table, so that reading it later takes no fault. kIo with
// `what` in front when pages cannot be read: the file has become shorter, or its disk fails. From any thread.
Status PopulateForReading(HostSpan<const std::byte> range, std::string_view what);

// Takes whole pages inside the range of a mapped file out of the page table; they stay in the page cache, or, with
// drop_cache, leave it too where the kernel allows.
void ReleasePages(HostSpan<const std::byte> range, bool drop_cache);

}  // namespace bellhop::sys
