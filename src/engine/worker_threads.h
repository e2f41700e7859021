// Which CPUs the workers of a pool get.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sys/topology.h"
#include "sys/worker_pool.h"

namespace bellhop::engine {

inline constexpr int32_t kMaxThreads = 1024;
// How long a step's workers spin for the next phase. Longer than sampling and text handling between two steps (waking a
// sleeping worker costs 60-300 us a step), and short enough not to hurt others on a busy machine.
inline constexpr int kWorkerSpinUs = 200;
// Of a pool that answers the doorbell: layers without misses may lie between two rings.
inline constexpr int kDoorbellSpinUs = 2000;

// threads 0: sys::ChooseWorkerCpus decides. More threads than CPUs share them unpinned, which a note says.
// kInvalidArgument outside 0 .. kMaxThreads.
Result<sys::WorkerPool::Options> ChooseWorkers(const sys::Topology& topology, int32_t threads, bool pin,
                                               std::vector<std::string>* notes);

}  // namespace bellhop::engine
