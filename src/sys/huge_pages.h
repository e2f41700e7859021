// What the kernel offers in large pages: the transparent kind, and pools that an administrator has set aside.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bellhop::sys {

struct HugePagePool {
  uint64_t page_bytes = 0;
  uint64_t total = 0;
  uint64_t free = 0;  // pages that are neither in use nor promised to a mapping

  uint64_t free_bytes() const { return page_bytes * free; }
};

struct HugePageState {
  std::string transparent;          // "always", "madvise" or "never"; empty: the machine does not say
  uint64_t transparent_bytes = 0;   // size of one; 0: the machine does not say
  std::vector<HugePagePool> pools;  // of every size that the CPU has, ascending

  bool transparent_allowed() const { return transparent == "always" || transparent == "madvise"; }
  // The pool with the smallest pages that holds `bytes`; null: none does.
  const HugePagePool* FindPool(uint64_t bytes) const;
  // What a copy of `bytes` onto huge pages needs that is not there, with the remedy; empty: nothing.
  std::string WhyNot(uint64_t bytes) const;
};

// `root` is prepended to /sys, so tests feed made-up machines.
HugePageState ReadHugePageState(const std::string& root = "");

// "sudo sysctl vm.nr_hugepages=8192": sets aside enough pages for `bytes`.
std::string ReserveHugePagesCommand(const HugePageState& state, uint64_t bytes);

}  // namespace bellhop::sys
