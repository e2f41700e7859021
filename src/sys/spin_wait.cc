#include "sys/spin_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "sys/clock.h"

namespace bellhop::sys {
namespace {

// A pause takes 10 to 140 cycles depending on the core, so 16 of them keep the clock reads (25-50 ns each) rare while
// the budget stays accurate to about a microsecond.
constexpr int kPausesPerClockRead = 16;

uint32_t* FutexWord(const std::atomic<uint32_t>& word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  return const_cast<uint32_t*>(reinterpret_cast<const uint32_t*>(&word));
}

}  // namespace

bool SpinUntilChanged(const std::atomic<uint32_t>& word, uint32_t old, int64_t spin_ns) {
  if (word.load(std::memory_order_acquire) != old) return true;
  if (spin_ns <= 0) return false;
  const int64_t deadline = MonotonicNs() + spin_ns;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (word.load(std::memory_order_acquire) != old) return true;
      CpuRelax();
    }
  } while (MonotonicNs() < deadline);
  return word.load(std::memory_order_acquire) != old;
}

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, FutexWord(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void FutexWakeAll(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, FutexWord(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace bellhop::sys
