#include "sys/host_region.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/units.h"

// Of Linux 5.14 and 6.1; the C library's headers may be older.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

namespace bellhop::sys {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 46;  // the address space of a process is 2^47
constexpr uint64_t kSmallPage = 4096;
constexpr uint64_t kDefaultHugePage = uint64_t{2} << 20;

Status CannotAllocate(uint64_t bytes, MemoryTag tag, int error) {
  return OutOfMemory("cannot allocate {} of host memory for {}: {}; lower the memory budget or free memory",
                     FormatBytes(bytes), MemoryTagName(tag), std::generic_category().message(error));
}

}  // namespace

Result<HostRegion> HostRegion::Create(uint64_t bytes, const HugePageState& state, MemoryTag tag) {
  HostRegion region;
  region.tag_ = tag;
  if (bytes == 0) return region;
  if (bytes > kMaxBytes) return CannotAllocate(bytes, tag, ENOMEM);
  region.size_ = bytes;
  if (const HugePagePool* pool = state.FindPool(bytes); pool != nullptr) {
    const uint64_t whole = RoundUp(bytes, pool->page_bytes);
    const int size_flag = std::countr_zero(pool->page_bytes) << MAP_HUGE_SHIFT;
    // Promises all pages at once: when others were faster, the map fails and transparent pages are next.
    void* data =
        mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | size_flag, -1, 0);
    if (data != MAP_FAILED) {
      region.mapping_ = data;
      region.mapping_bytes_ = whole;
      region.data_ = static_cast<std::byte*>(data);
      region.page_bytes_ = pool->page_bytes;
      region.reserved_ = true;
      return region;
    }
  }
  const uint64_t huge = state.transparent_bytes > 0 ? state.transparent_bytes : kDefaultHugePage;
  const uint64_t whole = RoundUp(bytes, huge);
  // Address space on both sides stays out of reach, so that the kernel joins the region with no other mapping: what it
  // says about the mapping is then about the region.
  const uint64_t surrounded = whole + 2 * huge;
  void* mapping = mmap(nullptr, surrounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return CannotAllocate(bytes, tag, errno);
  region.mapping_ = mapping;
  region.mapping_bytes_ = surrounded;
  const uint64_t begin = RoundUp(reinterpret_cast<uintptr_t>(mapping) + 1, huge);
  region.data_ = static_cast<std::byte*>(mapping) + (begin - reinterpret_cast<uintptr_t>(mapping));
  if (mprotect(region.data_, whole, PROT_READ | PROT_WRITE) != 0) return CannotAllocate(bytes, tag, errno);
  const bool huge_asked = state.transparent_allowed() && madvise(region.data_, whole, MADV_HUGEPAGE) == 0;
  region.page_bytes_ = huge_asked ? huge : kSmallPage;
  return region;
}

HostRegion::HostRegion(HostRegion&& other) noexcept { *this = std::move(other); }

HostRegion& HostRegion::operator=(HostRegion&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapping_ = std::exchange(other.mapping_, nullptr);
    mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
    page_bytes_ = other.page_bytes_;
    reserved_ = other.reserved_;
    tag_ = other.tag_;
  }
  return *this;
}

HostRegion::~HostRegion() { Unmap(); }

void HostRegion::Unmap() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  mapping_ = nullptr;
}

Status HostRegion::Populate(uint64_t offset, uint64_t length) const {
  if (length == 0 || offset >= size_) return Status();
  const uint64_t begin = offset / page_bytes_ * page_bytes_;
  const uint64_t end = RoundUp(std::min(offset + length, size_), page_bytes_);
  while (madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE) != 0) {
    switch (errno) {
      case EAGAIN:
      case EINTR: continue;
      case EINVAL:  // Linux before 5.14, or a sandbox that does not know the advice: a fault for each page
      case ENOSYS:
      case EPERM:
        for (uint64_t at = begin; at < std::min(end, size_); at += kSmallPage) {
          volatile std::byte* const byte = data_ + at;
          *byte = *byte;
        }
        return Status();
      default:
        // A pool that a control group limits (hugetlb.*.max) says EFAULT; writing would end the process with SIGBUS.
        return OutOfMemory("cannot get {} of memory for {}{}: {}; lower the memory budget, or use --hugepages off",
                           FormatBytes(size_), MemoryTagName(tag_), reserved_ ? " from the pool of huge pages" : "",
                           std::generic_category().message(errno));
    }
  }
  return Status();
}

void HostRegion::Collapse() const {
  if (data_ == nullptr || reserved_ || page_bytes_ == kSmallPage) return;
  (void)madvise(data_, RoundUp(size_, page_bytes_), MADV_COLLAPSE);  // advice
}

void HostRegion::MakeReadOnly() const {
  if (data_ != nullptr) (void)mprotect(data_, RoundUp(size_, page_bytes_), PROT_READ);
}

}  // namespace bellhop::sys
