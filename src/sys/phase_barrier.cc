#include "sys/phase_barrier.h"

#include <sched.h>

#include "sys/spin_wait.h"

namespace bellhop::sys {
namespace {

// About 20 us of pauses: longer than any tail of a phase whose workers all run.
constexpr int kPausesBeforeYield = 512;

}  // namespace

PhaseBarrier::PhaseBarrier(int workers)
    : workers_(workers), slots_(new Slot[static_cast<size_t>(workers)]), released_(new Slot) {}

void PhaseBarrier::Pause(int* spins) {
  if (++*spins < kPausesBeforeYield) {
    CpuRelax();
  } else {
    sched_yield();
  }
}

}  // namespace bellhop::sys
