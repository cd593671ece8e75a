# Libraries that the project stands on; ./run installs them by name. Small ones link statically where the system has the
# archive, so that the binary travels.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)

# An imported static library, or the shared one where there is no archive.
function(mantissa_find_library target archive header)
  find_library(${target}_LIBRARY NAMES lib${archive}.a ${archive} REQUIRED)
  find_path(${target}_INCLUDE ${header} REQUIRED)
  add_library(${target} UNKNOWN IMPORTED)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${target}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${${target}_INCLUDE})
endfunction()
mantissa_find_library(mantissa_fmt fmt fmt/core.h)
mantissa_find_library(mantissa_yaml yaml-cpp yaml-cpp/yaml.h)
mantissa_find_library(mantissa_zstd zstd zstd.h)
mantissa_find_library(mantissa_zlib z zlib.h)
mantissa_find_library(mantissa_xxhash xxhash xxhash.h)
