// Benchmarks of attention.h, a part of kernels_bench.
#pragma once

#include "sys/cpu_features.h"

namespace bellhop::kernels {
void RegisterAttentionBenchmarks(sys::Isa best);
}
