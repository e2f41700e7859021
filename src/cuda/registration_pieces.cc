#include <algorithm>

#include "cuda/memory.h"

namespace bellhop::cuda {

std::vector<AddressRange> RegistrationPieces(uintptr_t begin, uint64_t bytes, uint64_t piece_bytes,
                                             uint64_t page_bytes) {
  std::vector<AddressRange> pieces;
  if (bytes == 0) return pieces;
  const uintptr_t first = begin / page_bytes * page_bytes;
  const uintptr_t end = (begin + bytes - 1) / page_bytes * page_bytes + page_bytes;
  for (uintptr_t at = first; at < end;) {
    const uintptr_t next = at + std::min<uint64_t>(piece_bytes, end - at);
    pieces.push_back({at, next});
    at = next;
  }
  return pieces;
}

std::vector<AddressRange> MergedPages(std::vector<AddressRange> ranges, uint64_t page_bytes) {
  std::sort(ranges.begin(), ranges.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
  std::vector<AddressRange> merged;
  for (const AddressRange& range : ranges) {
    if (range.begin >= range.end) continue;
    const uintptr_t begin = range.begin / page_bytes * page_bytes;
    const uintptr_t end = (range.end - 1) / page_bytes * page_bytes + page_bytes;
    if (!merged.empty() && begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, end);
    } else {
      merged.push_back({begin, end});
    }
  }
  return merged;
}

}  // namespace bellhop::cuda
