// Where threads may run.
#pragma once

#include <vector>

#include "base/status.h"

namespace bellhop::sys {

// The CPUs that the calling thread may run on, ascending. kIo when the kernel does not say.
Result<std::vector<int>> ReadThreadAffinity();

// Binds the calling thread to one CPU. kInvalidArgument for a CPU that is not there or not allowed.
Status PinThisThread(int cpu);

}  // namespace bellhop::sys
