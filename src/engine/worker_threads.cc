#include "engine/worker_threads.h"

#include <algorithm>

namespace bellhop::engine {

Result<sys::WorkerPool::Options> ChooseWorkers(const sys::Topology& topology, int32_t threads, bool pin,
                                               std::vector<std::string>* notes) {
  if (threads < 0 || threads > kMaxThreads) {
    return InvalidArgument("--threads {}: must be 0 (automatic) to {}", threads, kMaxThreads);
  }
  sys::WorkerPool::Options options;
  options.pin = pin;
  const auto allowed = static_cast<int32_t>(topology.cpus.size());
  BELLHOP_TRY_ASSIGN(options.cpus, sys::ChooseWorkerCpus(topology, std::min(threads, allowed)));
  if (threads > allowed) {
    for (size_t i = 0; options.cpus.size() < static_cast<size_t>(threads); ++i) options.cpus.push_back(options.cpus[i]);
    options.pin = false;
    notes->push_back(fmt::format("--threads {} on {} CPUs: workers share them unpinned; {} threads are faster", threads,
                                 allowed, allowed));
  }
  return options;
}

}  // namespace bellhop::engine
