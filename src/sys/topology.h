// Which CPUs this process may use, where they are, and how much of them the container grants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace bellhop::sys {

struct CpuInfo {
  int cpu = 0;                   // logical CPU number
  int core = 0;                  // physical core (unique over sockets); SMT siblings share it
  int numa_node = 0;             // 0 when the machine does not say
  bool efficiency_core = false;  // the slower kind of a hybrid CPU
};

struct Topology {
  std::vector<CpuInfo> cpus;  // allowed by the affinity mask, ascending
  int physical_cores = 0;     // distinct cores among them
  int numa_nodes = 1;
  double cpu_quota = 0;             // cgroup v1/v2 quota in CPUs, 0: unlimited
  uint64_t memory_limit_bytes = 0;  // cgroup limit, 0: unlimited
  uint64_t memory_total_bytes = 0;
  uint64_t memory_available_bytes = 0;  // what can still be used, cgroup limits included
  uint64_t memlock_limit_bytes = 0;     // RLIMIT_MEMLOCK, UINT64_MAX: unlimited
  std::vector<std::string> notes;       // what could not be read and what was assumed instead
};

// `root` is prepended to /sys, /proc and /sys/fs/cgroup, so tests feed made-up machines. Never fails: what cannot be
// read becomes one node, one core per CPU, and a note. The affinity mask comes from `affinity` when it is not empty.
Topology ReadTopology(const std::string& root = "", const std::vector<int>& affinity = {});

// NUMA node of a PCI device such as "0000:17:00.0". A machine that does not say (it reads -1, or has no such entry)
// gives node 0 and a note.
int PciNumaNode(const std::string& pci_id, std::vector<std::string>* notes, const std::string& root = "");

// CPUs for `threads` workers: distinct physical cores first, spread over nodes so that nodes differ by at most one
// worker as long as each has a free core, SMT siblings only when cores run out; within a node fast cores before
// efficiency cores. The list is grouped by node, so that neighbouring workers share one.
// threads = 0: one per physical core, capped by the quota (rounded up, at least 1). kInvalidArgument when threads is
// negative or exceeds the CPUs allowed.
Result<std::vector<int>> ChooseWorkerCpus(const Topology& topology, int threads);

// The NUMA node of each CPU of a list; 0 for a CPU that the topology does not have.
std::vector<int> NodesOfCpus(const Topology& topology, const std::vector<int>& cpus);

}  // namespace bellhop::sys
