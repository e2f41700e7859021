// Resource limits that control groups put on this process. Both versions, hybrid mounts, and the two views a container
// can have of its own path. Limits of a group hold for everything below it, so every level up to the mount counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bellhop::sys {

struct CgroupLimits {
  double cpu_quota = 0;             // CPUs, the smallest of all levels; 0: unlimited
  uint64_t memory_limit_bytes = 0;  // the smallest of all levels (v2: memory.max and memory.high); 0: unlimited
  // Smallest room left under a limit, page cache counted as free because the kernel drops it first; UINT64_MAX: no
  // limit.
  uint64_t memory_room_bytes = UINT64_MAX;
};

// `root` is prepended to /proc and /sys. Unreadable or malformed files add a line to `notes` and count as no limit.
CgroupLimits ReadCgroupLimits(const std::string& root, std::vector<std::string>* notes);

}  // namespace bellhop::sys
