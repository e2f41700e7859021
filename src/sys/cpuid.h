// The raw registers behind DetectCpu, apart so that a test can describe a CPU, or an operating system that has not
// enabled a register file, that it does not run on.
#pragma once

#include <cstdint>
#include <string>

#include "sys/cpu_features.h"

namespace bellhop::sys {

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

struct CpuidSnapshot {
  uint32_t max_leaf = 0;     // highest basic leaf
  CpuidLeaf leaf1;           // feature bits
  CpuidLeaf leaf7;           // extended features, sub-leaf 0; zero when max_leaf < 7
  CpuidLeaf leaf7_1;         // sub-leaf 1; zero when sub-leaf 0 reports no further one
  uint64_t xcr0 = 0;         // register files the operating system saves; read only when leaf1 reports OSXSAVE
  bool amx_granted = false;  // the kernel granted this process the AMX tile state
  std::string model_name;    // brand string, trimmed
};

// Reads this CPU. Asks the kernel for the AMX tile permission when the CPU and XCR0 have it; the grant lasts for the
// process. On anything but x86-64 the snapshot is empty.
CpuidSnapshot ReadCpuid();

// What can be used: a feature counts when CPUID reports it and the operating system saves its registers.
CpuCaps CapsFromCpuid(const CpuidSnapshot& snapshot);

}  // namespace bellhop::sys
