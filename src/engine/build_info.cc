#include "engine/build_info.h"

#include "cuda/device_info.h"

// Written at every build: defines BELLHOP_COMMIT.
#include <bellhop_commit.h>

namespace bellhop::engine {

const BuildInfo& GetBuildInfo() {
  static const BuildInfo info = {
      .version = BELLHOP_BUILD_VERSION,
      .commit = BELLHOP_COMMIT,
      .compiler = __VERSION__,
      .build_type = BELLHOP_BUILD_TYPE,
      .sanitizers = BELLHOP_BUILD_SANITIZERS,
      .cuda = cuda::BuiltWithCuda(),
      .static_libraries = BELLHOP_BUILD_STATIC != 0,
  };
  return info;
}

}  // namespace bellhop::engine
