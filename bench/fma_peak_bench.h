// The most that a CPU can do of what the prompt-class kernels do, a part of kernels_bench.
#pragma once

#include "sys/cpu_features.h"

namespace bellhop::kernels {
void RegisterFmaPeakBenchmarks(sys::Isa best);
}
