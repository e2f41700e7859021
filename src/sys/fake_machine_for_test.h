// Made-up /sys and /proc trees, for tests.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "sys/sysfs.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::sys {

class FakeMachine {
 public:
  const std::string& root() const { return dir_.path(); }
  void Write(const std::string& path, const std::string& content) const { dir_.Write(path, content + "\n"); }
  void WriteCpu(int cpu, const std::string& name, const std::string& content) const {
    Write(fmt::format("sys/devices/system/cpu/cpu{}/{}", cpu, name), content);
  }

  // `nodes` nodes of `cores` cores with `smt` siblings each, numbered as Linux does on servers: first siblings of all
  // nodes, then second siblings. One package per node; core ids repeat in each package.
  void AddServer(int nodes, int cores, int smt) const {
    const int first = nodes * cores;
    for (int node = 0; node < nodes; ++node) {
      std::vector<int> cpus;
      for (int s = 0; s < smt; ++s) {
        for (int core = 0; core < cores; ++core) {
          const int cpu = s * first + node * cores + core;
          cpus.push_back(cpu);
          WriteCpu(cpu, "topology/physical_package_id", fmt::format("{}", node));
          WriteCpu(cpu, "topology/core_id", fmt::format("{}", core));
          std::vector<int> siblings;
          for (int t = 0; t < smt; ++t) siblings.push_back(t * first + node * cores + core);
          WriteCpu(cpu, "topology/thread_siblings_list", FormatCpuList(siblings));
        }
      }
      const std::string folder = fmt::format("sys/devices/system/node/node{}/", node);
      Write(folder + "cpulist", FormatCpuList(cpus));
      Write(folder + "meminfo", fmt::format("Node {} MemTotal:       65536000 kB\nNode {} MemFree: 1 kB", node, node));
    }
    Write("sys/devices/system/node/online", nodes == 1 ? "0" : fmt::format("0-{}", nodes - 1));
    const int last = nodes * cores * smt - 1;
    const std::string all = last == 0 ? "0" : fmt::format("0-{}", last);
    Write("sys/devices/system/cpu/online", all);
    WriteStatus(all, nodes == 1 ? "0" : fmt::format("0-{}", nodes - 1));
    Write("proc/meminfo", "MemTotal:       131072000 kB\nMemFree:  1000 kB\nMemAvailable:   100000000 kB");
    Write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max locked memory         8388608              unlimited            bytes     ");
    Write("proc/self/cgroup", "0::/");
    Write("sys/fs/cgroup/cgroup.controllers", "cpu memory");
  }

  // A desktop with `performance` two-way SMT cores and `efficiency` cores without.
  void AddHybrid(int performance, int efficiency) const {
    AddServer(1, 2 * performance + efficiency, 1);
    for (int core = 0; core < performance; ++core) {
      for (const int cpu : {2 * core, 2 * core + 1}) {
        WriteCpu(cpu, "topology/thread_siblings_list", fmt::format("{}-{}", 2 * core, 2 * core + 1));
      }
    }
    Write("sys/devices/cpu_core/cpus", fmt::format("0-{}", 2 * performance - 1));
    Write("sys/devices/cpu_atom/cpus", fmt::format("{}-{}", 2 * performance, 2 * performance + efficiency - 1));
  }

  void WriteStatus(const std::string& cpus, const std::string& mems) const {
    Write("proc/self/status", "Name:\tbellhop\nCpus_allowed_list:\t" + cpus + "\nMems_allowed_list:\t" + mems);
  }

 private:
  TempDir dir_;
};

}  // namespace bellhop::sys
