# The CUDA language and its flags, for builds with BELLHOP_CUDA=ON. Included after BellhopOptions.
#
# Machine code for every supported generation and PTX for later ones. Kernels that use Hopper-only instructions set
# CUDA_ARCHITECTURES of their own target to BELLHOP_CUDA_ARCHITECTURES_SM90A. While working on one machine,
# -DBELLHOP_CUDA_ARCHITECTURES=90-real compiles one generation only.
set(BELLHOP_CUDA_ARCHITECTURES "80-real;86-real;89-real;90-real;100-real;120-real;120-virtual"
  CACHE STRING "GPU generations to compile for")
set(BELLHOP_CUDA_ARCHITECTURES_SM90A "90a-real" CACHE STRING "Architecture of the Hopper-only kernels")
set(CMAKE_CUDA_ARCHITECTURES "${BELLHOP_CUDA_ARCHITECTURES}")

# nvcc needs a host compiler that it knows; without CUDAHOSTCXX it would take the first g++ on PATH.
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(BELLHOP_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT BELLHOP_NVCC)
    message(FATAL_ERROR "BELLHOP_CUDA=ON needs nvcc 13: install the CUDA toolkit, put its bin folder on PATH, "
      "or configure with -DBELLHOP_CUDA=OFF")
  endif()
  set(CMAKE_CUDA_COMPILER "${BELLHOP_NVCC}")
endif()

enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}) is too old: CUDA 13 is needed")
endif()
find_package(CUDAToolkit 13.0 REQUIRED)

# CMake 3.25 knows no C++20 flag for nvcc, which has had one since 12.0.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
set(CMAKE_CUDA_FLAGS_DEBUG "-O1 -lineinfo")

# The options so far are written for gcc: nvcc gets its own.
get_directory_property(bellhop_host_options COMPILE_OPTIONS)
set(bellhop_wrapped_options "")
foreach(option IN LISTS bellhop_host_options)
  list(APPEND bellhop_wrapped_options "$<$<COMPILE_LANGUAGE:C,CXX>:${option}>")
endforeach()
set_directory_properties(PROPERTIES COMPILE_OPTIONS "${bellhop_wrapped_options}")

# -fmad=false: as on the host, a fused multiply-add happens where the code says so.
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-lineinfo;--expt-relaxed-constexpr;-Xcompiler=-Wall;-Xcompiler=-Wextra;-Xcompiler=-Wno-unused-parameter;-Xcompiler=-ffp-contract=off>")
if(BELLHOP_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>")
endif()
if(BELLHOP_CUDA_RESOURCE_USAGE)  # for tools/kernel_resources.py
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>")
endif()
