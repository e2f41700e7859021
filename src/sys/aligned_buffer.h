// An owner of aligned host memory that says what the memory is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/memory_tag.h"
#include "base/span.h"
#include "base/status.h"

namespace bellhop::sys {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line, and the widest vector register

  // Contents are indeterminate. Zero bytes give an empty buffer. kOutOfMemory names the tag and the size.
  static Result<AlignedBuffer> Create(uint64_t bytes, MemoryTag tag);

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  MemoryTag tag() const { return tag_; }
  size_t size() const { return size_; }
  HostSpan<std::byte> bytes() const { return {static_cast<std::byte*>(data_), size_}; }

  // The buffer as whole elements of T; a remainder shorter than one element is left out.
  template <typename T>
  HostSpan<T> as() const {
    static_assert(alignof(T) <= kAlignment && std::is_trivially_copyable_v<T>);
    return {static_cast<T*>(data_), size_ / sizeof(T)};
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  MemoryTag tag_ = MemoryTag::kOther;
};

}  // namespace bellhop::sys
