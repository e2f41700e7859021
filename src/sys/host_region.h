// Large anonymous memory on huge pages, for weights that are read for as long as the process lives. Smaller and
// short-lived buffers are AlignedBuffers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory_tag.h"
#include "base/span.h"
#include "base/status.h"
#include "sys/huge_pages.h"

namespace bellhop::sys {

class HostRegion {
 public:
  // Address space alone: a page gets memory when it is touched first, on the node of the thread that does (Populate).
  // Pages come from a reserved pool that holds all of them, else the kernel is asked for transparent huge pages, which
  // it grants one by one as it can: page_residency.h tells how many there are. kOutOfMemory names tag and size.
  static Result<HostRegion> Create(uint64_t bytes, const HugePageState& state, MemoryTag tag);

  HostRegion() = default;
  HostRegion(HostRegion&& other) noexcept;
  HostRegion& operator=(HostRegion&& other) noexcept;
  ~HostRegion();

  HostSpan<std::byte> bytes() const { return {data_, size_}; }
  uint64_t size() const { return size_; }
  // From the reserved pool.
  bool reserved() const { return reserved_; }
  // Memory comes in units of this many bytes, aligned to it: what first touch should keep together.
  uint64_t page_bytes() const { return page_bytes_; }

  // Gives the pages of [offset, offset + length) memory, zeros where there was none. From any thread.
  Status Populate(uint64_t offset, uint64_t length) const;
  // Asks the kernel to put what is still on small pages onto huge ones, which takes time where memory is fragmented.
  void Collapse() const;
  // From now on a write ends the process: nothing can change weights by mistake.
  void MakeReadOnly() const;

 private:
  void Unmap();

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  void* mapping_ = nullptr;  // with what surrounds the region
  uint64_t mapping_bytes_ = 0;
  uint64_t page_bytes_ = 0;
  bool reserved_ = false;
  MemoryTag tag_ = MemoryTag::kOther;
};

}  // namespace bellhop::sys
