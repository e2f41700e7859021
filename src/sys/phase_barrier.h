// A barrier inside one phase of a WorkerPool: all workers of the phase meet, and what each wrote before is visible to
// all after. It spins, because what it waits for is at most the tail of a phase; a worker that cannot run (more workers
// than CPUs) gets the CPU by a yield. While a worker waits it may do idle work in small slices, such as prefetching.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace bellhop::sys {

class PhaseBarrier {
 public:
  explicit PhaseBarrier(int workers);

  // Called once by every worker 0 .. workers-1 for each meeting. `idle()` runs between looks at the barrier until it
  // returns false (no more idle work); a slice should take well under a microsecond.
  template <typename Idle>
  void Wait(int worker, Idle&& idle) {
    if (workers_ == 1) return;
    const uint32_t meeting = Arrive(worker);
    bool more = true;
    if (worker == 0) {
      for (int w = 1; w < workers_; ++w) {
        for (int spins = 0; !HasArrived(w, meeting);) more = more ? idle() : (Pause(&spins), false);
      }
      Release(meeting);
    } else {
      for (int spins = 0; !IsReleased(meeting);) more = more ? idle() : (Pause(&spins), false);
    }
  }
  void Wait(int worker) {
    Wait(worker, [] { return false; });
  }

 private:
  static constexpr int kCacheLine = 64;
  // A word for each worker, because workers arrive at about the same time and would take turns on one cache line.
  struct alignas(kCacheLine) Slot {
    std::atomic<uint32_t> meeting{0};  // the last one this worker came to; release; pairs with HasArrived
    uint32_t next = 0;                 // of this worker alone
  };

  uint32_t Arrive(int worker) {
    Slot& slot = slots_[static_cast<size_t>(worker)];
    slot.meeting.store(++slot.next, std::memory_order_release);
    return slot.next;
  }
  bool HasArrived(int worker, uint32_t meeting) const {
    return slots_[static_cast<size_t>(worker)].meeting.load(std::memory_order_acquire) == meeting;
  }
  void Release(uint32_t meeting) { released_->meeting.store(meeting, std::memory_order_release); }
  bool IsReleased(uint32_t meeting) const { return released_->meeting.load(std::memory_order_acquire) == meeting; }
  static void Pause(int* spins);

  int workers_;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Slot> released_;  // written by worker 0; pairs with IsReleased
};

}  // namespace bellhop::sys
