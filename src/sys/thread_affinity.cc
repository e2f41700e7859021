#include "sys/thread_affinity.h"

#include <sched.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace bellhop::sys {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

// Larger than any kernel is built for (CONFIG_NR_CPUS is at most 8192).
constexpr int kMaxCpus = 1 << 16;

}  // namespace

Result<std::vector<int>> ReadThreadAffinity() {
  // The kernel answers EINVAL when the set is smaller than its own, whatever CPUs there are: grow until it fits.
  for (int cpus = 1024; cpus <= kMaxCpus; cpus *= 2) {
    CpuSet set(CPU_ALLOC(static_cast<size_t>(cpus)));
    if (set == nullptr) return OutOfMemory("cannot allocate a CPU set");
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      std::vector<int> out;
      for (int cpu = 0; cpu < cpus; ++cpu) {
        if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) out.push_back(cpu);
      }
      return out;
    }
    if (errno != EINVAL) break;
  }
  return IoError("cannot read the CPU affinity: {}", std::generic_category().message(errno));
}

Status PinThisThread(int cpu) {
  if (cpu < 0 || cpu >= kMaxCpus) return InvalidArgument("cannot pin a thread to CPU {}: there is no such CPU", cpu);
  const int count = cpu < 1024 ? 1024 : kMaxCpus;
  CpuSet set(CPU_ALLOC(static_cast<size_t>(count)));
  if (set == nullptr) return OutOfMemory("cannot allocate a CPU set");
  const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(count));
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(static_cast<size_t>(cpu), bytes, set.get());
  if (sched_setaffinity(0, bytes, set.get()) != 0) {
    return InvalidArgument("cannot pin a thread to CPU {}: {}; the CPU is offline or outside this process's cpuset",
                           cpu, std::generic_category().message(errno));
  }
  return Status();
}

int CurrentCpu() { return sched_getcpu(); }

void MoveThisThread(int cpu) {
  cpu_set_t before[8];  // 8192 CPUs: the largest configuration of the kernel
  if (cpu < 0 || static_cast<size_t>(cpu) >= sizeof before * 8) return;
  if (sched_getaffinity(0, sizeof before, before) != 0) return;
  if (!CPU_ISSET_S(static_cast<size_t>(cpu), sizeof before, before)) return;
  cpu_set_t only[8];
  CPU_ZERO_S(sizeof only, only);
  CPU_SET_S(static_cast<size_t>(cpu), sizeof only, only);
  if (sched_setaffinity(0, sizeof only, only) == 0) (void)sched_setaffinity(0, sizeof before, before);
}

}  // namespace bellhop::sys
