#include "base/module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

namespace mantissa {

void* module_function(const char* file, const char* symbol, std::string& absence) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  if (length <= 0) {
    absence = "the executable's folder is unknown";
    return nullptr;
  }
  std::string path(self, static_cast<size_t>(length));
  path.replace(path.rfind('/') + 1, std::string::npos, file);
  if (access(path.c_str(), F_OK) != 0) {
    absence = fmt::format("no {} beside the executable", file);
    return nullptr;
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    absence = fmt::format("{} does not load: {}", file, dlerror());
    return nullptr;
  }
  void* function = dlsym(module, symbol);
  if (function == nullptr) absence = fmt::format("{} is of another build", file);
  return function;
}

}  // namespace mantissa
