// Counts every operator new of the test binary that links counting_new_for_test.cc: tests of code that must not
// allocate compare two readings.
#pragma once

#include <cstdint>

namespace bellhop {

int64_t AllocationCount();

}  // namespace bellhop
