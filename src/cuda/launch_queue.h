// Where kernels are launched, and what launches declare. Without Status, so that .cu files can include it: nvcc does
// not take fmt's headers.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace bellhop::cuda {

// Sums of what launches have declared, captured ones included. Of one engine thread.
struct LaunchTotals {
  uint64_t launches = 0, bytes = 0, flops = 0;
};

struct LaunchQueue {
  CUstream_st* stream = nullptr;
  LaunchTotals* totals = nullptr;
  // Whether kernels that can may start while the one before them ends. Not behind copies and other streams' events.
  bool overlap = true;
};

}  // namespace bellhop::cuda
