// Units of work [0, count) of a phase, shared over workers: each starts with a contiguous share, so that it streams its
// own memory, and takes units from the others when its own are gone. Which worker computes a unit must not matter to
// the result. No lock, no allocation after construction.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>

#include "sys/worker_pool.h"

namespace bellhop::sys {

class WorkRanges {
 public:
  // A phase of several steps has a set of units for each, which are handed out apart.
  static constexpr int kSets = 4;
  // Consecutive units out of one worker's share; begin == end: nothing is left.
  struct Run {
    int share = 0;
    int64_t begin = 0, end = 0;
  };

  explicit WorkRanges(int workers) : workers_(workers), shares_(new Share[static_cast<size_t>(workers)]) {}

  // Before a phase, by one thread; the pool's Run (or a barrier) orders it before Next. Shares are
  // WorkerPool::Split(count, grain, ...).
  void Reset(int64_t count, int64_t grain = 1, int set = 0) {
    assert(count <= INT32_MAX);
    for (int w = 0; w < workers_; ++w) {
      const RowRange range = WorkerPool::Split(count, grain, w, workers_);
      shares_[static_cast<size_t>(w)].left[set].store(Pack(range.begin, range.end), std::memory_order_relaxed);
    }
  }
  // The next units for `worker`. From the front of its own share come up to `most` of them, fewer towards the share's
  // end; from others a single one, of the share with most left, and from its back: its owner may have begun to fetch
  // what the front ones need.
  Run NextRun(int worker, int64_t most, int set = 0) {
    std::atomic<uint64_t>& own = shares_[static_cast<size_t>(worker)].left[set];
    // Looking first keeps finished shares from being written to.
    uint64_t left = own.load(std::memory_order_relaxed);
    if (Size(left) > 0) {
      const int64_t wanted = std::clamp<int64_t>(Size(left) / kRunsLeft, 1, most);
      left = own.fetch_add(static_cast<uint64_t>(wanted), std::memory_order_relaxed);
      if (Size(left) > 0) return {worker, Begin(left), std::min(Begin(left) + wanted, End(left))};
    }
    return Steal(worker, set);
  }
  // One unit, -1 when none is left anywhere.
  int64_t Next(int worker, int set = 0) {
    const Run run = NextRun(worker, 1, set);
    return run.begin < run.end ? run.begin : -1;
  }
  // The first unit of the worker's own share; -1: it has none.
  int64_t First(int worker, int set = 0) const {
    const uint64_t left = shares_[static_cast<size_t>(worker)].left[set].load(std::memory_order_relaxed);
    return Size(left) > 0 ? Begin(left) : -1;
  }

 private:
  // An owner takes the first of so many parts of what it has left, so that others find something until the end.
  static constexpr int64_t kRunsLeft = 2;

  // First and end of what is left, in one word: owner and thieves agree on every unit. The first may pass the end, by
  // owners that found nothing.
  struct alignas(64) Share {
    std::atomic<uint64_t> left[kSets] = {};
  };
  static constexpr uint64_t kOneOfTheEnd = uint64_t{1} << 32;
  static uint64_t Pack(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(begin);
  }
  static int64_t Begin(uint64_t left) { return static_cast<int64_t>(left & 0xFFFFFFFF); }
  static int64_t End(uint64_t left) { return static_cast<int64_t>(left >> 32); }
  static int64_t Size(uint64_t left) { return End(left) - Begin(left); }

  Run Steal(int worker, int set) {
    for (;;) {
      std::atomic<uint64_t>* from = nullptr;
      uint64_t most = 0;
      int share = 0;
      for (int i = 1; i < workers_; ++i) {
        const int w = worker + i < workers_ ? worker + i : worker + i - workers_;
        std::atomic<uint64_t>& candidate = shares_[static_cast<size_t>(w)].left[set];
        const uint64_t left = candidate.load(std::memory_order_relaxed);
        if (Size(left) <= (from == nullptr ? 0 : Size(most))) continue;
        from = &candidate;
        most = left;
        share = w;
      }
      if (from == nullptr) return {};
      const int64_t last = End(most) - 1;
      if (from->compare_exchange_strong(most, most - kOneOfTheEnd, std::memory_order_relaxed)) {
        return {share, last, last + 1};
      }
    }
  }

  int workers_;
  std::unique_ptr<Share[]> shares_;
};

}  // namespace bellhop::sys
