#include "moe/doorbell_counting_new_for_test.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> g_allocations{0};

void* Counted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return p;
}
void* CountedAligned(size_t size, std::align_val_t align) {
  const auto a = static_cast<size_t>(align);
  return Counted(std::aligned_alloc(a, (size + a - 1) / a * a));
}
}  // namespace

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t size) { return Counted(std::malloc(size)); }
void* operator new[](size_t size) { return Counted(std::malloc(size)); }
void* operator new(size_t size, std::align_val_t a) { return CountedAligned(size, a); }
void* operator new[](size_t size, std::align_val_t a) { return CountedAligned(size, a); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace bellhop::moe {
int64_t AllocationCount() { return g_allocations.load(std::memory_order_relaxed); }
}  // namespace bellhop::moe
