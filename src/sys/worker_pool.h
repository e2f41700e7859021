// The pool of pinned workers that runs every CPU phase of a step. Workers spin briefly for the next phase and then
// sleep; a phase is one call of Run. No allocation and no lock in the steady state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/span.h"
#include "base/status.h"

namespace bellhop::sys {

class WorkerPool {
 public:
  struct Options {
    std::vector<int> cpus;  // one worker per entry; the caller of Run is worker 0
    // Pin worker i (i > 0) to cpus[i]; refused pinning becomes a note, not an error. The caller stays free, and is
    // moved to cpus[0] when it turns out to sit on a worker's CPU.
    bool pin = true;
    int spin_us = 50;  // how long an idle worker spins before it sleeps
  };

  static Result<std::unique_ptr<WorkerPool>> Create(const Options& options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const;
  const std::vector<std::string>& notes() const;
  // Workers asleep in the kernel at this moment: size() - 1 on a pool that has been idle for longer than spin_us.
  int sleeping_workers() const;
  // The spin time in force: Options::spin_us, or 0 when the workers outnumber the CPUs that they may use.
  int spin_us() const;

  // Calls fn(worker, size()) once on every worker, the caller included, and returns when all have finished. Everything
  // written before Run is visible to the workers, everything they wrote is visible after it. One caller at a time, from
  // any thread. fn must not throw and must not call Run.
  template <typename Fn>
  void Run(Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    RunErased([](void* ctx, int worker, int workers) { (*static_cast<F*>(ctx))(worker, workers); },
              const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Splits [0, count) into size() contiguous ranges whose bounds are multiples of `grain` and calls fn(RowRange) on
  // each worker that got a non-empty one. The split is a pure function of (count, grain, size()).
  template <typename Fn>
  void ParallelFor(int64_t count, int64_t grain, Fn&& fn) {
    if (count <= 0) return;
    if (size() == 1 || count <= grain) {
      fn(RowRange{0, count});
      return;
    }
    Run([&](int worker, int workers) {
      const RowRange range = Split(count, grain, worker, workers);
      if (range.size() > 0) fn(range);
    });
  }

  static RowRange Split(int64_t count, int64_t grain, int worker, int workers);

 private:
  using Erased = void (*)(void* ctx, int worker, int workers);
  WorkerPool();
  void RunErased(Erased fn, void* ctx);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bellhop::sys
