// Which CPUs the workers get. Apart from topology.cc: this is a pure function of the topology.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "sys/topology.h"

namespace bellhop::sys {
namespace {

// The CPUs of one node: rank[0] has one CPU of every core, rank[1] the second SMT sibling of those that have one, ...
struct Node {
  std::vector<std::vector<int>> ranks;
  std::vector<int> chosen;
};

std::map<int, Node> GroupByNode(const Topology& topology) {
  std::vector<CpuInfo> cpus = topology.cpus;
  std::sort(cpus.begin(), cpus.end(), [](const CpuInfo& a, const CpuInfo& b) {
    return a.efficiency_core != b.efficiency_core ? b.efficiency_core : a.cpu < b.cpu;
  });
  std::map<int, Node> nodes;
  std::map<int, size_t> cpus_of_core;
  for (const CpuInfo& info : cpus) {
    const size_t rank = cpus_of_core[info.core]++;
    Node& node = nodes[info.numa_node];
    if (node.ranks.size() <= rank) node.ranks.resize(rank + 1);
    node.ranks[rank].push_back(info.cpu);
  }
  return nodes;
}

size_t FreeAt(const Node& node, size_t rank) { return rank < node.ranks.size() ? node.ranks[rank].size() : 0; }

int DefaultThreads(const Topology& topology) {
  int threads = std::max(topology.physical_cores, 1);
  if (topology.cpu_quota > 0 && topology.cpu_quota < threads) threads = static_cast<int>(std::ceil(topology.cpu_quota));
  return std::clamp(threads, 1, static_cast<int>(topology.cpus.size()));
}

}  // namespace

Result<std::vector<int>> ChooseWorkerCpus(const Topology& topology, int threads) {
  const int allowed = static_cast<int>(topology.cpus.size());
  if (allowed == 0) return InvalidArgument("no CPU is allowed for this process");
  if (threads < 0)
    return InvalidArgument("{} threads asked for; use a positive number, or 0 for one per core", threads);
  if (threads > allowed) {
    return InvalidArgument("{} threads asked for, but this process may use {} CPUs ({} cores); use at most {}", threads,
                           allowed, topology.physical_cores, allowed);
  }
  if (threads == 0) threads = DefaultThreads(topology);

  std::map<int, Node> nodes = GroupByNode(topology);
  size_t rank = 0;
  for (int i = 0; i < threads;) {
    Node* emptiest = nullptr;
    for (auto& [id, node] : nodes) {
      if (FreeAt(node, rank) == 0) continue;
      if (emptiest == nullptr || node.chosen.size() < emptiest->chosen.size()) emptiest = &node;
    }
    if (emptiest == nullptr) {  // every core of every node has rank + 1 workers
      ++rank;
      continue;
    }
    std::vector<int>& free = emptiest->ranks[rank];
    emptiest->chosen.push_back(free.front());
    free.erase(free.begin());
    ++i;
  }
  std::vector<int> out;
  for (const auto& [id, node] : nodes) out.insert(out.end(), node.chosen.begin(), node.chosen.end());
  return out;
}

std::vector<int> NodesOfCpus(const Topology& topology, const std::vector<int>& cpus) {
  std::vector<int> nodes;
  for (const int cpu : cpus) {
    const auto found = std::find_if(topology.cpus.begin(), topology.cpus.end(),
                                    [cpu](const CpuInfo& info) { return info.cpu == cpu; });
    nodes.push_back(found == topology.cpus.end() ? 0 : found->numa_node);
  }
  return nodes;
}

}  // namespace bellhop::sys
