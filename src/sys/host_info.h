// The machine in words, for doctor, benchmark files and bug reports. Nothing that names its owner: no host name, no
// user, no address.
#pragma once

#include <cstdint>
#include <string>

#include "sys/topology.h"

namespace bellhop::sys {

struct HostInfo {
  std::string cpu_model;                // "unknown CPU" when it does not say
  std::string kernel;                   // "Linux 6.1.0-18-amd64"
  std::string machine;                  // "Intel(R) Xeon(R) 8480C, 16 cores, 1 NUMA node, 125 GiB"
  uint64_t last_level_cache_bytes = 0;  // 0 when it does not say
};

HostInfo ReadHostInfo(const Topology& topology, const std::string& root = "");

// Size of the largest cache that CPU 0 sees; 0 when the machine does not say.
uint64_t LastLevelCacheBytes(const std::string& root = "");

struct ProcessMemory {
  uint64_t resident_bytes = 0;   // pages of this process in memory now, mapped files included
  uint64_t anonymous_bytes = 0;  // of them those that no file backs
  uint64_t peak_resident_bytes = 0;
};

// Zeros when /proc cannot be read.
ProcessMemory ReadProcessMemory(const std::string& root = "");

}  // namespace bellhop::sys
