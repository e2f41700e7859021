# cpp-httplib and prometheus-cpp from the source archives of their Debian 12 packages, for the static build.
include(FetchContent)
set(debian_pool "http://deb.debian.org/debian/pool/main")
FetchContent_Declare(httplib_source
  URL "${debian_pool}/c/cpp-httplib/cpp-httplib_0.11.4+ds.orig.tar.xz"
  URL_HASH SHA256=8b1a5df569003b6a4f24c68489bbda5c64aec94697bdc9ebba5d79408b2ae7eb)
FetchContent_Declare(prometheus_source
  URL "${debian_pool}/p/prometheus-cpp/prometheus-cpp_1.0.1.orig.tar.gz"
  URL_HASH SHA256=593e028d401d3298eada804d252bc38d8cab3ea1c9e88bcd72095281f85e6d16)
# Populate alone: their own builds are not used.
foreach(source httplib_source prometheus_source)
  FetchContent_GetProperties(${source})
  if(NOT ${source}_POPULATED)
    FetchContent_Populate(${source})
  endif()
endforeach()

target_include_directories(bellhop_httplib SYSTEM INTERFACE "${httplib_source_SOURCE_DIR}")

set(prometheus_core "${prometheus_source_SOURCE_DIR}/core")
file(GLOB prometheus_files "${prometheus_core}/src/*.cc" "${prometheus_core}/src/detail/*.cc")
set(prometheus_generated "${CMAKE_BINARY_DIR}/generated/prometheus")
file(WRITE "${prometheus_generated}/include/prometheus/detail/core_export.h"
  "#pragma once\n#define PROMETHEUS_CPP_CORE_EXPORT\n")
add_library(bellhop_prometheus_core STATIC ${prometheus_files})
target_include_directories(bellhop_prometheus_core SYSTEM PUBLIC
  "${prometheus_core}/include" "${prometheus_generated}/include")
target_compile_options(bellhop_prometheus_core PRIVATE -w)
target_link_libraries(bellhop_prometheus INTERFACE bellhop_prometheus_core)
