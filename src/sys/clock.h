// Clocks, as plain integers.
#pragma once

#include <cstdint>

namespace bellhop::sys {

// Nanoseconds since an arbitrary start; never goes back.
int64_t MonotonicNs();

// CPU time that all threads of this process have used, in nanoseconds.
int64_t ProcessCpuNs();

// Seconds since 1970-01-01 UTC.
int64_t UnixSeconds();

// Sleeps at least this long; a signal may end it early.
void SleepUs(int64_t us);

}  // namespace bellhop::sys
