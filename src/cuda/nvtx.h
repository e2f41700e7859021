// Named ranges on a profiler's time line. Nothing in builds without CUDA, and next to nothing without a profiler.
#pragma once

#include <cstdint>

namespace bellhop::cuda {

// For the life of the object; on one thread, ranges nest. `name` must outlive the program's use of it (a literal).
class NvtxRange {
 public:
  explicit NvtxRange(const char* name, uint64_t bytes = 0);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace bellhop::cuda
