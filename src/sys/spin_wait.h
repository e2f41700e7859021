// Waiting for an atomic word to change: spin for a while, then sleep in the kernel. The two halves are apart because
// the waker pays a system call only when someone sleeps.
#pragma once

#include <atomic>
#include <cstdint>

namespace bellhop::sys {

// Tells the core that this is a spin loop: saves power and leaves the execution units to an SMT sibling.
inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until `word` differs from `old` (acquire), for about `spin_ns`. Returns whether it differed.
bool SpinUntilChanged(const std::atomic<uint32_t>& word, uint32_t old, int64_t spin_ns);

// Sleeps while `word` equals `expected`; may return early, so callers loop. WakeAll ends the sleep of every waiter.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected);
void FutexWakeAll(const std::atomic<uint32_t>& word);

}  // namespace bellhop::sys
