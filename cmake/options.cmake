# Flags that every target shares.
add_library(mantissa_options INTERFACE)
target_include_directories(mantissa_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# Numerics are exact: no contraction into fma but where the code says so, no fast-math.
# CUDA sources have their own (cuda.cmake).
target_compile_options(mantissa_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-math-errno
  -fno-trapping-math -Wall -Wextra -Wshadow -Wpointer-arith -Wno-unknown-pragmas -Wno-missing-field-initializers
  -Wno-restrict>)
if(MANTISSA_WARNINGS_AS_ERRORS)
  target_compile_options(mantissa_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(MANTISSA_SANITIZE)
  target_compile_options(mantissa_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(mantissa_options INTERFACE -fsanitize=address,undefined)
endif()
if(MANTISSA_FUZZ)
  target_compile_options(mantissa_options INTERFACE -fsanitize=fuzzer-no-link -Wno-unknown-warning-option)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(MANTISSA_X86 ON)
  target_compile_definitions(mantissa_options INTERFACE MANTISSA_X86)
endif()
