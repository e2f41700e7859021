// Where threads may run.
#pragma once

#include <vector>

#include "base/status.h"

namespace bellhop::sys {

// The CPUs that the calling thread may run on, ascending. kIo when the kernel does not say.
Result<std::vector<int>> ReadThreadAffinity();

// Binds the calling thread to one CPU. kInvalidArgument for a CPU that is not there or not allowed.
Status PinThisThread(int cpu);

// The CPU that the calling thread runs on at this moment; -1 when the system does not say.
int CurrentCpu();

// Moves the calling thread to `cpu` without binding it: the scheduler may move it again. Does nothing when the thread
// may not run there. Allocates nothing.
void MoveThisThread(int cpu);

}  // namespace bellhop::sys
