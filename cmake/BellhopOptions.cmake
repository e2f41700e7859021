# Language level, warnings, sanitizers and the compiler cache, for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")

# No contraction: a fused multiply-add happens where the code says so, so that every ISA gives the same bits.
add_compile_options(-Wall -Wextra -Wshadow -Wno-unused-parameter -ffp-contract=off -fno-math-errno)
if(BELLHOP_WERROR)
  add_compile_options(-Werror)
endif()

if(BELLHOP_SANITIZE)
  add_compile_options(-fsanitize=${BELLHOP_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${BELLHOP_SANITIZE})
  if(BELLHOP_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  # GCC 12's flow analysis reports false positives through sanitizer instrumentation.
  add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
endif()

find_program(BELLHOP_CCACHE ccache)
if(BELLHOP_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${BELLHOP_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${BELLHOP_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${BELLHOP_CCACHE}")
endif()
