#include "sys/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#include "base/units.h"

namespace bellhop::sys {
namespace {

// Above what any allocator can serve (a 47-bit address space is shared with everything else), so that an absurd size
// is refused here and not by an allocator that may abort.
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<AlignedBuffer> AlignedBuffer::Create(uint64_t bytes, MemoryTag tag) {
  AlignedBuffer buffer;
  buffer.tag_ = tag;
  if (bytes == 0) return buffer;
  // Large buffers start on a huge page: a walk over gigabytes then misses the TLB 512 times less often.
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  void* data = nullptr;
  if (bytes > kMaxBytes || posix_memalign(&data, alignment, bytes) != 0) {
    return OutOfMemory("cannot allocate {} of host memory for {}; lower the memory budget or free memory",
                       FormatBytes(bytes), MemoryTagName(tag));
  }
  if (alignment == kHugePage) (void)madvise(data, bytes, MADV_HUGEPAGE);  // advice: refused without transparent pages
  buffer.data_ = data;
  buffer.size_ = bytes;
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), tag_(other.tag_) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    std::free(data_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    tag_ = other.tag_;
  }
  return *this;
}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

}  // namespace bellhop::sys
