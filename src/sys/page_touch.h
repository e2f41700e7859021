// Work on page runs by the pool, so that a page is touched first by a worker of the node that it belongs to: the kernel
// places it there.
#pragma once

#include <cstdint>
#include <functional>

#include "base/span.h"
#include "base/status.h"
#include "sys/numa_partition.h"
#include "sys/worker_pool.h"

namespace bellhop::sys {

struct PageTouchOptions {
  uint64_t chunk_bytes = uint64_t{8} << 20;  // the most that one call of the work gets; whole pages
  // CPU of the pool's caller (worker 0), which is not bound to it: moved there before each round when there is more
  // than one node. -1: it stays where it is.
  int caller_cpu = -1;
  // Called on the caller's thread about ten times a second with the bytes that are done and their total; false cancels.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

// Calls work(begin, end) for parts of the runs until all are done; the parts of a run's node are taken by its workers,
// in ascending order. The first failure ends it. kCancelled when progress says so. `partition` is of this pool's size.
Status TouchPages(WorkerPool& pool, const NodePartition& partition, HostSpan<const PageRun> runs,
                  const PageTouchOptions& options, const std::function<Status(uint64_t begin, uint64_t end)>& work);

}  // namespace bellhop::sys
