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

}  // namespace bellhop::cuda
