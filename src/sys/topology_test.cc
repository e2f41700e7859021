#include "sys/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "sys/fake_machine_for_test.h"

namespace bellhop::sys {
namespace {

bool HasNote(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

std::string Joined(const std::vector<std::string>& notes) {
  return std::accumulate(notes.begin(), notes.end(), std::string(),
                         [](const std::string& a, const std::string& b) { return a + b + "\n"; });
}

TEST(TopologyTest, TwoSocketServerWithSmt) {
  FakeMachine machine;
  machine.AddServer(2, 24, 2);
  const Topology t = ReadTopology(machine.root());
  EXPECT_EQ(t.cpus.size(), 96u);
  EXPECT_EQ(t.physical_cores, 48);
  EXPECT_EQ(t.numa_nodes, 2);
  EXPECT_EQ(t.cpus[0].core, t.cpus[48].core);  // SMT siblings
  EXPECT_NE(t.cpus[0].core, t.cpus[24].core);  // same core id, other socket
  EXPECT_EQ(t.cpus[23].numa_node, 0);
  EXPECT_EQ(t.cpus[24].numa_node, 1);
  EXPECT_EQ(t.cpu_quota, 0);
  EXPECT_EQ(t.memory_limit_bytes, 0u);
  EXPECT_EQ(t.memory_total_bytes, 131072000ull * 1024);
  EXPECT_EQ(t.memory_available_bytes, 100000000ull * 1024);
  EXPECT_EQ(t.memlock_limit_bytes, 8388608u);
  EXPECT_TRUE(t.notes.empty()) << Joined(t.notes);
}

TEST(TopologyTest, PackageAndCoreIdsServeWithoutSiblingLists) {
  FakeMachine machine;
  machine.AddServer(2, 4, 1);
  for (int cpu = 0; cpu < 8; ++cpu) {
    machine.WriteCpu(cpu, "topology/thread_siblings_list", "?");
    machine.WriteCpu(cpu, "topology/core_id", fmt::format("{}", cpu % 4 / 2));  // two siblings per core
  }
  EXPECT_EQ(ReadTopology(machine.root()).physical_cores, 4);
}

TEST(TopologyTest, AffinityLimitsTheCpus) {
  FakeMachine machine;
  machine.AddServer(2, 8, 1);
  machine.WriteStatus("2-5,12", "0-1");
  EXPECT_EQ(ReadTopology(machine.root()).cpus.size(), 5u);
  const Topology given = ReadTopology(machine.root(), {3, 1, 3});
  ASSERT_EQ(given.cpus.size(), 2u);
  EXPECT_EQ(given.cpus[0].cpu, 1);
  EXPECT_EQ(given.cpus[1].cpu, 3);
}

TEST(TopologyTest, CpusetThatExcludesANode) {
  FakeMachine machine;
  machine.AddServer(2, 8, 1);
  machine.WriteStatus("8-15", "1");
  Topology t = ReadTopology(machine.root());
  EXPECT_EQ(t.cpus.size(), 8u);
  EXPECT_EQ(t.numa_nodes, 1);
  EXPECT_EQ(t.cpus[0].numa_node, 1);
  EXPECT_TRUE(t.notes.empty()) << Joined(t.notes);
  EXPECT_EQ(ChooseWorkerCpus(t, 8)->front(), 8);

  machine.WriteStatus("8-15", "0");  // CPUs of one node, memory of the other
  t = ReadTopology(machine.root());
  EXPECT_TRUE(HasNote(t.notes, "NUMA node 1 and not its memory")) << Joined(t.notes);
}

TEST(TopologyTest, NodeWithoutMemoryAndNodeWithoutCpus) {
  FakeMachine machine;
  machine.AddServer(2, 4, 1);
  machine.Write("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       0 kB");
  machine.Write("sys/devices/system/node/online", "0-2");
  machine.Write("sys/devices/system/node/node2/cpulist", "");  // memory only
  const Topology t = ReadTopology(machine.root());
  EXPECT_EQ(t.numa_nodes, 2);
  EXPECT_TRUE(HasNote(t.notes, "NUMA node 1 has CPUs and no memory"));
  EXPECT_EQ(t.notes.size(), 1u) << Joined(t.notes);
  EXPECT_TRUE(ChooseWorkerCpus(t, 8).ok());
}

TEST(TopologyTest, EightNodes) {
  FakeMachine machine;
  machine.AddServer(8, 8, 2);
  const Topology t = ReadTopology(machine.root());
  EXPECT_EQ(t.numa_nodes, 8);
  EXPECT_EQ(t.physical_cores, 64);
  EXPECT_EQ(t.cpus.size(), 128u);
}

TEST(TopologyTest, MachineThatSaysNothing) {
  FakeMachine machine;  // an empty folder
  const Topology t = ReadTopology(machine.root());
  ASSERT_EQ(t.cpus.size(), 1u);
  EXPECT_EQ(t.physical_cores, 1);
  EXPECT_EQ(t.numa_nodes, 1);
  for (const char* part : {"one CPU is assumed", "counts as a core", "one node assumed", "size of the memory",
                           "locked memory", "/proc/self/cgroup"}) {
    EXPECT_TRUE(HasNote(t.notes, part)) << part << "\n" << Joined(t.notes);
  }
  EXPECT_EQ(*ChooseWorkerCpus(t, 0), std::vector<int>{0});
}

TEST(TopologyTest, GarbageBecomesNotes) {
  FakeMachine machine;
  machine.AddServer(2, 2, 1);
  machine.Write("sys/devices/system/node/node1/cpulist", "2-");
  machine.Write("sys/devices/system/cpu/online", "0-99999999");
  machine.Write("proc/meminfo", "MemTotal: lots");
  machine.Write("sys/fs/cgroup/cpu.max", "12x 100000");
  machine.Write("sys/fs/cgroup/memory.max", "-5");
  const Topology t = ReadTopology(machine.root());
  EXPECT_EQ(t.cpus.size(), 4u);
  EXPECT_TRUE(HasNote(t.notes, "NUMA node 1 cannot be read"));
  EXPECT_TRUE(HasNote(t.notes, "CPUs 2-3 belong to no NUMA node")) << Joined(t.notes);
  EXPECT_TRUE(HasNote(t.notes, "/sys/fs/cgroup/cpu.max: '12x 100000'"));
  EXPECT_TRUE(HasNote(t.notes, "/sys/fs/cgroup/memory.max: '-5'"));
  EXPECT_EQ(t.cpu_quota, 0);
  EXPECT_EQ(t.memory_limit_bytes, 0u);
}

TEST(TopologyTest, HybridCores) {
  FakeMachine machine;
  machine.AddHybrid(6, 8);
  const Topology t = ReadTopology(machine.root());
  EXPECT_EQ(t.cpus.size(), 20u);
  EXPECT_EQ(t.physical_cores, 14);
  EXPECT_FALSE(t.cpus[11].efficiency_core);
  EXPECT_TRUE(t.cpus[12].efficiency_core);

  FakeMachine by_capacity;
  by_capacity.AddServer(1, 4, 1);
  for (const int cpu : {0, 1}) by_capacity.WriteCpu(cpu, "cpu_capacity", cpu == 0 ? "1024" : "980");
  for (const int cpu : {2, 3}) by_capacity.WriteCpu(cpu, "cpu_capacity", "446");
  const Topology c = ReadTopology(by_capacity.root());
  EXPECT_FALSE(c.cpus[0].efficiency_core || c.cpus[1].efficiency_core);
  EXPECT_TRUE(c.cpus[2].efficiency_core && c.cpus[3].efficiency_core);
}

TEST(TopologyTest, OnlyEfficiencyCoresAllowedAreOrdinaryCores) {
  FakeMachine machine;
  machine.AddHybrid(6, 8);
  for (const CpuInfo& info : ReadTopology(machine.root(), {12, 13, 14}).cpus) EXPECT_FALSE(info.efficiency_core);
}

TEST(TopologyTest, PciNode) {
  FakeMachine machine;
  machine.Write("sys/bus/pci/devices/0000:17:00.0/numa_node", "-1");
  machine.Write("sys/bus/pci/devices/0000:ab:00.0/numa_node", "1");
  std::vector<std::string> notes;
  EXPECT_EQ(PciNumaNode("0000:AB:00.0", &notes, machine.root()), 1);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(PciNumaNode("0000:17:00.0", &notes, machine.root()), 0);
  EXPECT_EQ(PciNumaNode("0000:99:00.0", &notes, machine.root()), 0);
  EXPECT_EQ(PciNumaNode("../../../etc", &notes, machine.root()), 0);
  EXPECT_EQ(notes.size(), 3u);
  EXPECT_TRUE(HasNote(notes, "0000:17:00.0"));
}

TEST(TopologyTest, ThisMachine) {
  const Topology t = ReadTopology();
  ASSERT_FALSE(t.cpus.empty());
  EXPECT_GE(t.physical_cores, 1);
  EXPECT_LE(t.physical_cores, static_cast<int>(t.cpus.size()));
  EXPECT_GT(t.memory_total_bytes, 0u);
  EXPECT_GT(t.memory_available_bytes, 0u);
  EXPECT_LE(t.memory_available_bytes, t.memory_total_bytes);
  EXPECT_TRUE(ChooseWorkerCpus(t, 0).ok());
}

TEST(SysfsTest, CpuLists) {
  EXPECT_EQ(ParseCpuList("0-3,8,10-11\n"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(ParseCpuList("3,1,1-2"), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(ParseCpuList(" \n"), std::vector<int>());
  for (const char* bad : {"a", "1-", "-1", "3-1", "0-70000", "1 2", "1,-2", "0x1"}) {
    EXPECT_FALSE(ParseCpuList(bad).has_value()) << bad;
  }
  EXPECT_EQ(FormatCpuList({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(FormatCpuList({}), "");
  EXPECT_FALSE(ReadKernelText("/sys").has_value());
}

}  // namespace
}  // namespace bellhop::sys
