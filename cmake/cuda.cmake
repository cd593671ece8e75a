# mantissa_cuda.so: the CUDA backend, loaded at run time from the folder of the executable, so that one binary runs where
# no CUDA library is. Built where nvcc is.
set(MANTISSA_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (where nvcc is), ON, OFF")
set(MANTISSA_CUDA_ARCHS 90a 100a CACHE STRING "Compute capabilities to compile for")

if(MANTISSA_SANITIZE)
  message(STATUS "sanitizers: the CUDA backend is left out")
  return()
elseif(NOT MANTISSA_CUDA)
  message(STATUS "CUDA backend: switched off")
  return()
endif()

find_program(MANTISSA_NVCC nvcc PATHS /usr/local/cuda/bin)
if(NOT MANTISSA_NVCC)
  if(MANTISSA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MANTISSA_CUDA=ON and no nvcc found (MANTISSA_NVCC=path)")
  endif()
  message(STATUS "nvcc not found: the CUDA backend is not built")
  return()
endif()

# CMake 3.25 does not know that nvcc takes C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_COMPILER ${MANTISSA_NVCC})
set(CMAKE_CUDA_ARCHITECTURES OFF)
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tensor/cuda/*.cpp
  ${CMAKE_SOURCE_DIR}/src/ops/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/ops/cuda/*.cu)
add_library(mantissa_cuda MODULE ${cuda_sources})
set_target_properties(mantissa_cuda PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden CUDA_STANDARD 20 CUDA_RUNTIME_LIBRARY Static)
target_include_directories(mantissa_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(mantissa_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(mantissa_cuda PRIVATE mantissa_ops CUDA::cublasLt ${CMAKE_DL_LIBS})
# An op of the table that is not defined with its signature is an error here, not when the module is loaded.
target_link_options(mantissa_cuda PRIVATE LINKER:-z,defs)
# They round each operation as the CPU kernels do: the two agree in every bit.
file(GLOB exact_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cuda/quantize/*.cu)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cuda/adamw/adamw.cu ${CMAKE_SOURCE_DIR}/src/ops/cuda/delayed_scaling.cu
  ${exact_sources} PROPERTIES COMPILE_OPTIONS -fmad=false)
# fmt's compile-time format checks are the host compiler's business; nvcc's front end cannot run them.
set(gencodes "")
foreach(arch ${MANTISSA_CUDA_ARCHS})
  list(APPEND gencodes "-gencode=arch=compute_${arch},code=sm_${arch}")
endforeach()
target_compile_options(mantissa_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${gencodes} -O3 --expt-relaxed-constexpr
  --extended-lambda -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -lineinfo>)
if(MANTISSA_WARNINGS_AS_ERRORS)
  target_compile_options(mantissa_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
include(cudnn)  # optional: attention through cuDNN
add_dependencies(mantissa mantissa_cuda)  # so that building the program alone brings it
message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, sm_${MANTISSA_CUDA_ARCHS}")
