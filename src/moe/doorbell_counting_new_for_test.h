// Counts operator new in the test binary that links doorbell_counting_new_for_test.cc.
#pragma once

#include <cstdint>

namespace bellhop::moe {
int64_t AllocationCount();
}  // namespace bellhop::moe
