// What every call returns in a build without CUDA.
#pragma once

#include "base/status.h"

namespace bellhop::cuda {

inline Status NoCuda() {
  return Unsupported(
      "this binary was built without CUDA; use a build with -DBELLHOP_CUDA=ON, or run with --device cpu");
}

}  // namespace bellhop::cuda
