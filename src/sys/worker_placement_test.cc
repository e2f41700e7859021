#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "sys/fake_machine_for_test.h"
#include "sys/numa_partition.h"
#include "sys/topology.h"

namespace bellhop::sys {
namespace {

// Nodes with the given numbers of cores; every core has `smt` CPUs, numbered core by core.
Topology Machine(const std::vector<int>& cores_per_node, int smt) {
  Topology t;
  int cpu = 0, core = 0;
  for (size_t node = 0; node < cores_per_node.size(); ++node) {
    for (int i = 0; i < cores_per_node[node]; ++i, ++core) {
      for (int s = 0; s < smt; ++s) t.cpus.push_back({cpu++, core, static_cast<int>(node), false});
    }
  }
  t.physical_cores = core;
  t.numa_nodes = static_cast<int>(cores_per_node.size());
  return t;
}

// 6 fast cores with two siblings, 8 efficiency cores.
Topology Hybrid() {
  Topology t = Machine({6}, 2);
  for (int i = 0; i < 8; ++i) t.cpus.push_back({12 + i, 6 + i, 0, true});
  t.physical_cores = 14;
  return t;
}

struct Load {
  std::map<int, int> per_node, per_core;
  std::set<int> cpus;
};

Load Count(const Topology& t, const std::vector<int>& chosen) {
  Load load;
  for (const CpuInfo& info : t.cpus) load.per_node[info.numa_node], load.per_core[info.core];
  for (const int cpu : chosen) {
    const auto it = std::find_if(t.cpus.begin(), t.cpus.end(), [&](const CpuInfo& info) { return info.cpu == cpu; });
    EXPECT_NE(it, t.cpus.end()) << "CPU " << cpu << " is not allowed";
    if (it == t.cpus.end()) continue;
    EXPECT_TRUE(load.cpus.insert(cpu).second) << "CPU " << cpu << " twice";
    ++load.per_node[it->numa_node];
    ++load.per_core[it->core];
  }
  return load;
}

int Spread(const std::map<int, int>& counts) {
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end(), less);
  return most->second - least->second;
}

TEST(WorkerPlacementTest, EveryCountOnSymmetricMachines) {
  const std::vector<std::vector<int>> machines = {{24, 24}, {18, 18, 18, 18}, std::vector<int>(8, 8), {16}, {1},
                                                  {1, 1}};
  for (const std::vector<int>& machine : machines) {
    for (const int smt : {1, 2}) {
      const Topology t = Machine(machine, smt);
      for (int threads = 1; threads <= static_cast<int>(t.cpus.size()); ++threads) {
        const Result<std::vector<int>> chosen = ChooseWorkerCpus(t, threads);
        ASSERT_TRUE(chosen.ok());
        ASSERT_EQ(chosen->size(), static_cast<size_t>(threads));
        const Load load = Count(t, *chosen);
        EXPECT_LE(Spread(load.per_node), 1) << machine.size() << " nodes, " << threads << " threads";
        EXPECT_LE(Spread(load.per_core), 1) << machine.size() << " nodes, " << threads << " threads";
      }
      EXPECT_FALSE(ChooseWorkerCpus(t, static_cast<int>(t.cpus.size()) + 1).ok());
    }
  }
}

TEST(WorkerPlacementTest, UnevenNodesFillEvenlyWhileTheyCan) {
  const Topology t = Machine({6, 2}, 2);
  for (int threads = 1; threads <= 16; ++threads) {
    const Load load = Count(t, *ChooseWorkerCpus(t, threads));
    EXPECT_LE(Spread(load.per_core), 1) << threads;  // no core doubles up while another is free
    if (threads <= 4) {
      EXPECT_LE(Spread(load.per_node), 1) << threads;
    }
  }
}

TEST(WorkerPlacementTest, HybridUsesFastCoresThenEfficiencyCoresThenSiblings) {
  const Topology t = Hybrid();
  for (int threads = 1; threads <= 20; ++threads) {
    const std::vector<int> chosen = *ChooseWorkerCpus(t, threads);
    const Load load = Count(t, chosen);
    const auto efficient = std::count_if(chosen.begin(), chosen.end(), [](int cpu) { return cpu >= 12; });
    EXPECT_EQ(efficient, std::clamp(threads - 6, 0, 8)) << threads;
    if (threads <= 14) {
      EXPECT_LE(Spread(load.per_core), 1) << threads;
    }
  }
  EXPECT_EQ(ChooseWorkerCpus(t, 0)->size(), 14u);
}

TEST(WorkerPlacementTest, NeighboursShareANode) {
  const Topology t = Machine({4, 4}, 1);
  EXPECT_EQ(*ChooseWorkerCpus(t, 4), (std::vector<int>{0, 1, 4, 5}));
}

TEST(WorkerPlacementTest, DefaultIsOnePerCoreWithinTheQuota) {
  Topology t = Machine({8}, 2);
  EXPECT_EQ(ChooseWorkerCpus(t, 0)->size(), 8u);
  t.cpu_quota = 1.5;
  EXPECT_EQ(ChooseWorkerCpus(t, 0)->size(), 2u);
  t.cpu_quota = 0.1;
  EXPECT_EQ(ChooseWorkerCpus(t, 0)->size(), 1u);
  t.cpu_quota = 8.0;
  EXPECT_EQ(ChooseWorkerCpus(t, 0)->size(), 8u);
  t.cpu_quota = 100;
  EXPECT_EQ(ChooseWorkerCpus(t, 0)->size(), 8u);
  t.cpu_quota = 1.5;
  EXPECT_EQ(ChooseWorkerCpus(t, 5)->size(), 5u);  // an explicit number wins over the quota
}

// From the files of a container to the CPUs: the quota counts cores, and nodes share them evenly.
TEST(WorkerPlacementTest, AContainersQuotaGivesCoresOfAllNodes) {
  const FakeMachine machine;
  machine.AddServer(2, 4, 2);
  machine.Write("sys/fs/cgroup/cpu.max", "300000 100000");
  const Topology t = ReadTopology(machine.root());
  EXPECT_EQ(t.cpu_quota, 3);
  const std::vector<int> chosen = *ChooseWorkerCpus(t, 0);
  EXPECT_EQ(chosen, (std::vector<int>{0, 1, 4}));  // siblings are 8 and up
  EXPECT_EQ(NodesOfCpus(t, chosen), (std::vector<int>{0, 0, 1}));
  machine.Write("sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(ChooseWorkerCpus(ReadTopology(machine.root()), 0)->size(), 1u);
}

TEST(WorkerPlacementTest, WorkersOfANodeAreNeighboursForEveryCount) {
  const Topology t = Machine({3, 8, 1, 4}, 2);
  for (int threads = 1; threads <= 32; ++threads) {
    const std::vector<int> nodes = NodesOfCpus(t, *ChooseWorkerCpus(t, threads));
    EXPECT_TRUE(std::is_sorted(nodes.begin(), nodes.end())) << threads;
    EXPECT_EQ(NodePartition(nodes).nodes(), std::min(threads, 4)) << threads;
  }
  EXPECT_EQ(NodesOfCpus(t, {12345}), std::vector<int>{0});
}

TEST(WorkerPlacementTest, SparseNumbers) {
  Topology t;  // what a cpuset leaves: siblings apart, node 3 only
  t.cpus = {{5, 40, 3, false}, {69, 40, 3, false}, {7, 42, 3, false}};
  t.physical_cores = 2;
  EXPECT_EQ(*ChooseWorkerCpus(t, 2), (std::vector<int>{5, 7}));
  EXPECT_EQ(*ChooseWorkerCpus(t, 3), (std::vector<int>{5, 7, 69}));
}

TEST(WorkerPlacementTest, BadRequests) {
  const Topology t = Machine({2}, 1);
  for (const int threads : {-1, 3, 1'000'000}) {
    const Result<std::vector<int>> chosen = ChooseWorkerCpus(t, threads);
    ASSERT_FALSE(chosen.ok()) << threads;
    EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_NE(ChooseWorkerCpus(t, 3).status().message().find("at most 2"), std::string::npos);
  EXPECT_FALSE(ChooseWorkerCpus(Topology{}, 0).ok());
}

}  // namespace
}  // namespace bellhop::sys
