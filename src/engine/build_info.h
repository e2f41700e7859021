// What this library was built from and how.
#pragma once

#include <string_view>

namespace bellhop::engine {

struct BuildInfo {
  std::string_view version;     // "0.1.0"
  std::string_view commit;      // of the source tree, "-dirty" when it had changes; "unknown" without git
  std::string_view compiler;    // "12.2.0"
  std::string_view build_type;  // "Release"
  std::string_view sanitizers;  // "address,undefined"; empty: none
  bool cuda = false;
  bool static_libraries = false;  // no third-party shared library
};

const BuildInfo& GetBuildInfo();

}  // namespace bellhop::engine
