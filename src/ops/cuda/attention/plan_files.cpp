#include "ops/cuda/attention/plan_files.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"

namespace mantissa::cuda {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{16} << 20;

std::string_view text_of(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What stands before the plan: format, key, checksum.
std::string head_of(const std::string& key, std::string_view plan) {
  return fmt::format("mantissa cudnn plan 1\n{}\n{}\n", key, sha256(plan));
}

}  // namespace

std::string PlanFiles::path_of(const std::string& key) const {
  return join_path(folder_, fmt::format("cudnn-plan-{}", sha256(key).substr(0, 24)));
}

std::vector<uint8_t> PlanFiles::find(const std::string& key) const {
  if (folder_.empty() || !exists(path_of(key))) return {};
  try {
    const std::string text = read_text(path_of(key), kMaxBytes);
    const size_t head = head_of(key, "").size();
    const std::string_view plan = std::string_view(text).substr(std::min(head, text.size()));
    if (text.substr(0, std::min(head, text.size())) != head_of(key, plan))
      fail(Exit::kInput, "{}: not the plan of {}", path_of(key), key);
    return {plan.begin(), plan.end()};
  } catch (const Error& error) {
    fmt::print(stderr, "cuDNN: {}; it is ignored and written anew\n", error.what());
    return {};
  }
}

void PlanFiles::keep(const std::string& key, const std::vector<uint8_t>& plan) {
  if (folder_.empty()) return;
  try {
    make_dirs(folder_);
    write_atomic(path_of(key), head_of(key, text_of(plan)) + std::string(text_of(plan)));
  } catch (const Error& error) {
    fmt::print(stderr, "cuDNN: {}; its plans are not kept\n", error.what());
    folder_.clear();
  }
}

}  // namespace mantissa::cuda
