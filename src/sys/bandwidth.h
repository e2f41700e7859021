// What this machine's memory and this pool deliver, measured. For doctor, bench and the planner's machine constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/span.h"
#include "base/status.h"
#include "sys/cpu_features.h"
#include "sys/worker_pool.h"

namespace bellhop::sys {

struct ReadBandwidth {
  double gb_per_s = 0;      // median over the passes, 1 GB = 10^9 bytes
  double min_gb_per_s = 0;  // slowest and fastest pass
  double max_gb_per_s = 0;
  uint64_t buffer_bytes = 0;
  int passes = 0;
};

// A buffer that does not fit in the caches: four times the last-level cache, at least 256 MiB, at most `cap_bytes`.
uint64_t BandwidthBufferBytes(uint64_t last_level_cache_bytes, uint64_t cap_bytes);

// Reads `buffer_bytes` of memory `passes` times with all workers, each its own contiguous part that it touched first.
// A buffer smaller than the last-level cache measures the cache. kInvalidArgument for less than a cache line per
// worker or no passes, kOutOfMemory. `isa` must be one that this CPU has; wider loads read faster.
Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, uint64_t buffer_bytes, int passes,
                                           Isa isa = DetectCpu().isa);

// The same of memory that the caller owns and has touched, such as the weights of a benchmark; the workers read equal
// contiguous parts of its whole cache lines. kInvalidArgument also for memory that does not begin on a cache line.
Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, HostSpan<const std::byte> memory, int passes,
                                           Isa isa = DetectCpu().isa);

// Median time of one empty WorkerPool::Run, back to back, in nanoseconds: what a phase costs beyond its work.
double MeasureRoundTripNs(WorkerPool& pool, int runs);

}  // namespace bellhop::sys
