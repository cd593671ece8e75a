#include "ops/onednn.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

namespace mantissa {
namespace {

OnednnModule load() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return {nullptr, "the executable's folder is unknown"};
  std::string file(path, static_cast<size_t>(length));
  file.replace(file.rfind('/') + 1, std::string::npos, kOnednnFile);
  if (access(file.c_str(), F_OK) != 0) return {nullptr, "no mantissa_onednn.so beside the executable"};
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) return {nullptr, "mantissa_onednn.so does not load; is oneDNN installed?"};
  auto* gemm = reinterpret_cast<OnednnGemm>(dlsym(module, kOnednnSymbol));
  if (!gemm) return {nullptr, "mantissa_onednn.so is of another build"};
  return {gemm, ""};
}

}  // namespace

const OnednnModule& onednn_module() {
  static const OnednnModule module = load();
  return module;
}

}  // namespace mantissa
