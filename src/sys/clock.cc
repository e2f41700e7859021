#include "sys/clock.h"

#include <ctime>

namespace bellhop::sys {
namespace {

int64_t ReadNs(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t MonotonicNs() { return ReadNs(CLOCK_MONOTONIC); }
int64_t ProcessCpuNs() { return ReadNs(CLOCK_PROCESS_CPUTIME_ID); }
int64_t UnixSeconds() { return ReadNs(CLOCK_REALTIME) / 1'000'000'000; }

void SleepUs(int64_t us) {
  if (us <= 0) return;
  const timespec span{static_cast<time_t>(us / 1'000'000), static_cast<long>(us % 1'000'000 * 1000)};
  nanosleep(&span, nullptr);
}

}  // namespace bellhop::sys
