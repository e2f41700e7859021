// Units of work [0, count) of a phase, shared over workers: each starts with a contiguous share, so that it streams its
// own memory, and takes single units from the others when its own are gone. Which worker computes a unit must not
// matter to the result. No lock, no allocation after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "sys/worker_pool.h"

namespace bellhop::sys {

class WorkRanges {
 public:
  explicit WorkRanges(int workers) : workers_(workers), shares_(new Share[static_cast<size_t>(workers)]) {}

  // Before a phase, by one thread; the pool's Run (or a barrier) orders it before Next.
  void Reset(int64_t count) {
    for (int w = 0; w < workers_; ++w) {
      const RowRange range = WorkerPool::Split(count, 1, w, workers_);
      Share& share = shares_[static_cast<size_t>(w)];
      share.next.store(range.begin, std::memory_order_relaxed);
      share.end = range.end;
    }
  }
  // The next unit for `worker`, -1 when none is left anywhere.
  int64_t Next(int worker) {
    for (int i = 0; i < workers_; ++i) {
      const int w = worker + i < workers_ ? worker + i : worker + i - workers_;
      Share& share = shares_[static_cast<size_t>(w)];
      // Looking first keeps finished shares from being written to by everyone.
      if (share.next.load(std::memory_order_relaxed) >= share.end) continue;
      const int64_t unit = share.next.fetch_add(1, std::memory_order_relaxed);
      if (unit < share.end) return unit;
    }
    return -1;
  }
  // The first unit of the worker's own share; -1: it has none.
  int64_t First(int worker) const {
    const Share& share = shares_[static_cast<size_t>(worker)];
    const int64_t first = share.next.load(std::memory_order_relaxed);
    return first < share.end ? first : -1;
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  int workers_;
  std::unique_ptr<Share[]> shares_;
};

}  // namespace bellhop::sys
