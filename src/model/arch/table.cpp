#include "base/error.h"
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/arch/entries.h"

namespace mantissa {

const std::vector<ArchEntry>& arch_table() {
  static const std::vector<ArchEntry> table = {gpt2_arch::entry(), llama_arch::entry(), qwen2_arch::entry(),
                                               qwen3_arch::entry()};
  return table;
}

std::vector<std::string> arch_names() {
  std::vector<std::string> names;
  for (const ArchEntry& entry : arch_table()) names.emplace_back(entry.name);
  return names;
}

const ArchEntry& find_arch(const std::string& name) {
  for (const ArchEntry& entry : arch_table())
    if (name == entry.name) return entry;
  const std::string near = config::nearest(name, arch_names());
  fail(Exit::kUsage, "model type {}: not supported{}; supported: {}", name,
       near.empty() ? "" : ", did you mean " + near + "?", join(arch_names(), ", "));
}

std::string param_names::layer(int64_t index, const std::string& leaf) {
  return fmt::format("layers.{}.{}", index, leaf);
}

}  // namespace mantissa
