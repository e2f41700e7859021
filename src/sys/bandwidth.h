// What this machine's memory and this pool deliver, measured. For doctor, bench and the planner's machine constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "sys/cpu_features.h"
#include "sys/topology.h"
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
// The same for this machine's caches: at most `max_bytes` and a quarter of the memory that is available.
uint64_t BandwidthBufferBytes(const Topology& topology, uint64_t max_bytes);

// Reads `buffer_bytes` of memory `passes` times with all workers, each its own contiguous part that it touched first.
// A buffer smaller than the last-level cache measures the cache. kInvalidArgument for less than a cache line per
// worker or no passes, kOutOfMemory. `isa` must be one that this CPU has; wider loads read faster.
Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, uint64_t buffer_bytes, int passes,
                                           Isa isa = DetectCpu().isa);

// The same of memory that the caller owns and has touched, such as the weights of a benchmark; the workers read equal
// contiguous parts of its whole cache lines. kInvalidArgument also for memory that does not begin on a cache line.
Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, HostSpan<const std::byte> memory, int passes,
                                           Isa isa = DetectCpu().isa);

// Each worker writes the part of the memory's whole cache lines that it reads above: untouched pages then lie on the
// worker's node.
void FillForReading(WorkerPool& pool, HostSpan<std::byte> memory);

// At `ns` of MonotonicNs, `bytes` had been read since the first point.
struct ReadPoint {
  int64_t ns = 0;
  uint64_t bytes = 0;
};

// Reads the memory over and over for at least `ns`, with a point at the start and after every pass: for rates while
// something else happens. Errors as above.
Result<std::vector<ReadPoint>> ReadMemoryFor(WorkerPool& pool, HostSpan<const std::byte> memory, int64_t ns,
                                             Isa isa = DetectCpu().isa);

// GB/s in [from_ns, to_ns), which the points enclose; between two of them the rate is even. 0 for an empty interval.
double RateWithin(const std::vector<ReadPoint>& points, int64_t from_ns, int64_t to_ns);

// Median time of one empty WorkerPool::Run, back to back, in nanoseconds: what a phase costs beyond its work.
double MeasureRoundTripNs(WorkerPool& pool, int runs);

}  // namespace bellhop::sys
