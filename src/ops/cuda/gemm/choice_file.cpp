#include "ops/cuda/gemm/choice_file.h"

#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace mantissa::cuda {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
constexpr const char* kFormat = "mantissa gemm choices 1";

std::string file_name(const std::string& device, int sm, size_t library) {
  std::string name;
  for (const char c : device) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return fmt::format("gemm-{}-sm{}-cublaslt{}.json", name, sm, library);
}

}  // namespace

ChoiceFile::ChoiceFile(const std::string& folder, const std::string& device, int sm, size_t library) {
  if (folder.empty()) return;
  path_ = join_path(folder, file_name(device, sm, library));
  choices_ = read(/*say=*/true);
}

const std::string* ChoiceFile::find(const std::string& key) const {
  const auto at = choices_.find(key);
  return at == choices_.end() ? nullptr : &at->second;
}

ChoiceFile::Choices ChoiceFile::read(bool say) const {
  Choices choices;
  if (!exists(path_)) return choices;
  try {
    const Json json = read_json(path_, kMaxBytes);
    if (!json.is_object() || json.value("format", Json()) != kFormat)
      fail(Exit::kInput, "{}: not \"format\": \"{}\"", path_, kFormat);
    const Json& entries = member(json, "choices", path_);
    if (!entries.is_object()) fail(Exit::kInput, "{}: \"choices\" is no object", path_);
    for (const auto& [key, algorithm] : entries.items()) {
      if (!algorithm.is_string()) fail(Exit::kInput, "{}: the algorithm of \"{}\" is no text", path_, key);
      choices.emplace(key, algorithm.get<std::string>());
    }
  } catch (const Error& error) {
    choices.clear();
    if (say) fmt::print(stderr, "gemm: {}; it is ignored and written anew\n", error.what());
  }
  return choices;
}

void ChoiceFile::keep(const std::string& key, const std::string& algorithm) {
  choices_[key] = found_[key] = algorithm;
  if (path_.empty() || !writable_) return;
  Choices merged = read(/*say=*/false);
  for (const auto& [k, a] : found_) merged[k] = a;
  const Json json{{"format", kFormat}, {"choices", merged}};
  try {
    const size_t slash = path_.rfind('/');
    if (slash != std::string::npos && slash > 0) make_dirs(path_.substr(0, slash));
    write_atomic(path_, json.dump(1) + "\n");
  } catch (const Error& error) {
    writable_ = false;
    fmt::print(stderr, "gemm: {}; what searches find is not kept\n", error.what());
  }
}

}  // namespace mantissa::cuda
