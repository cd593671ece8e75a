# mantissa_onednn.so: oneDNN's matmul as one more GEMM candidate, loaded at run time from the folder of the executable.
# Found by file: Debian's dnnl-config.cmake stops the whole configuration where OpenCL's headers are missing.
find_library(MANTISSA_DNNL_LIBRARY dnnl)
find_path(MANTISSA_DNNL_INCLUDE dnnl.hpp)
if(MANTISSA_SANITIZE)
  # The leak check at exit crashes on the threads and generated code of a loaded oneDNN.
  message(STATUS "sanitizers: the oneDNN module is left out")
elseif(MANTISSA_DNNL_LIBRARY AND MANTISSA_DNNL_INCLUDE)
  add_library(mantissa_onednn MODULE ${CMAKE_SOURCE_DIR}/src/modules/onednn/gemm_module.cpp)
  target_include_directories(mantissa_onednn SYSTEM PRIVATE ${MANTISSA_DNNL_INCLUDE})
  target_link_libraries(mantissa_onednn PRIVATE mantissa_options ${MANTISSA_DNNL_LIBRARY})
  set_target_properties(mantissa_onednn PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  add_dependencies(mantissa mantissa_onednn)  # so that building the program alone brings it
else()
  message(STATUS "oneDNN not found: its GEMM module is not built")
endif()
