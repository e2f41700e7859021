// Links a global operator new that counts: tests of code that must not allocate compare two readings.
#pragma once

#include <cstdint>

namespace bellhop::decode {

int64_t AllocationCount();

}  // namespace bellhop::decode
