# cuDNN's attention in mantissa_cuda.so: the headers of cuDNN and of cudnn-frontend, which has nothing but headers.
# cudnn-frontend is taken from MANTISSA_CUDNN_FRONTEND (a folder), from the system, from build/cudnn-frontend (where
# ./run puts the wheel) or from python3's packages. The library itself is loaded at run time. Without the headers the
# project's own attention runs.
set(MANTISSA_CUDNN_FRONTEND "" CACHE PATH "Folder with cudnn-frontend: cudnn_frontend.h stands in it or in its include")

execute_process(COMMAND python3 -c "import sysconfig; print(sysconfig.get_path('purelib'))"
  OUTPUT_VARIABLE python_packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(python_packages "")
endif()

unset(MANTISSA_CUDNN_FRONTEND_INCLUDE CACHE)  # looked for anew: a wheel may have come
if(MANTISSA_CUDNN_FRONTEND)
  find_path(MANTISSA_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h NO_DEFAULT_PATH
    PATHS "${MANTISSA_CUDNN_FRONTEND}" "${MANTISSA_CUDNN_FRONTEND}/include")
  if(NOT MANTISSA_CUDNN_FRONTEND_INCLUDE)
    message(FATAL_ERROR "MANTISSA_CUDNN_FRONTEND=${MANTISSA_CUDNN_FRONTEND} has neither cudnn_frontend.h nor include/cudnn_frontend.h")
  endif()
else()
  find_path(MANTISSA_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
    PATHS "${CMAKE_SOURCE_DIR}/build/cudnn-frontend/include" "${python_packages}/include")
endif()
find_path(MANTISSA_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS "${python_packages}/nvidia/cudnn/include")

if(NOT MANTISSA_CUDNN_FRONTEND_INCLUDE)
  message(STATUS "cudnn-frontend not found: attention runs on the project's own kernels "
    "(pip install --target build/cudnn-frontend nvidia-cudnn-frontend, then configure again)")
elseif(NOT MANTISSA_CUDNN_INCLUDE)
  message(STATUS "cudnn.h not found: attention runs on the project's own kernels (-DMANTISSA_CUDNN_INCLUDE=folder)")
else()
  message(STATUS "cuDNN attention: cudnn-frontend from ${MANTISSA_CUDNN_FRONTEND_INCLUDE}, cudnn.h from ${MANTISSA_CUDNN_INCLUDE}")
  # For the one file that includes them, which is all host calls: -O1 halves the minute that it takes.
  set(cudnn_source ${CMAKE_SOURCE_DIR}/src/ops/cuda/attention/cudnn.cpp)
  set_property(SOURCE ${cudnn_source} APPEND PROPERTY COMPILE_OPTIONS
    -O1 -isystem "${MANTISSA_CUDNN_FRONTEND_INCLUDE}" -isystem "${MANTISSA_CUDNN_INCLUDE}")
  set_property(SOURCE ${cudnn_source} APPEND PROPERTY COMPILE_DEFINITIONS
    MANTISSA_CUDNN_FRONTEND NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING CUDNN_FRONTEND_SKIP_JSON_LIB)
  # Where the library stands here, so that it loads without LD_LIBRARY_PATH.
  find_file(MANTISSA_CUDNN_LIBRARY libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} PATHS "${python_packages}/nvidia/cudnn/lib"
    /usr/lib/x86_64-linux-gnu)
  if(MANTISSA_CUDNN_LIBRARY)
    cmake_path(GET MANTISSA_CUDNN_LIBRARY PARENT_PATH cudnn_folder)
    set_property(TARGET mantissa_cuda APPEND PROPERTY BUILD_RPATH "${cudnn_folder}")
  endif()
endif()
