#include "train/checkpoint/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/file.h"
#include "base/folder.h"

namespace mantissa {
namespace {

constexpr std::string_view kPrefix = "step_", kLeft = ".tmp-";

// The number at the front of `text`, which is cut off; nothing where there is none, or one written another way.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0 || std::string_view(text.data(), end) != fmt::format("{}", number))
    return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// The step of "step_120".
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::optional<int64_t> step = take_number(name);
  return name.empty() ? step : std::nullopt;
}

// "step_120.tmp-4711", "step_120.tmp-4711-old".
bool is_leftover(std::string_view name) {
  const size_t mark = name.find(kLeft);
  if (mark == std::string_view::npos || !step_of(name.substr(0, mark))) return false;
  name.remove_prefix(mark + kLeft.size());
  return take_number(name) && (name.empty() || name == "-old");
}

bool is_plain_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

std::string CheckpointStore::place(int64_t step) const {
  return join_path(folder_, fmt::format("{}{}", kPrefix, step));
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> steps;
  if (!is_directory(folder_)) return steps;
  for (const FolderEntry& entry : list_folder(folder_))
    if (const auto step = step_of(entry.name); step && is_plain_folder(join_path(folder_, entry.name)))
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Checkpoint> CheckpointStore::newest(const std::function<void(const std::string&)>& rejected,
                                                  const std::function<void(const Checkpoint&)>& take) const {
  std::vector<int64_t> all = steps();
  for (; !all.empty(); all.pop_back()) {
    try {
      Checkpoint checkpoint = Checkpoint::open(place(all.back()));
      if (checkpoint.step() != all.back())
        fail(Exit::kInput, "{}: its manifest says step {}", place(all.back()), checkpoint.step());
      take(checkpoint);
      return checkpoint;
    } catch (const Error& error) {
      if (error.code() != Exit::kInput) throw;
      rejected(error.what());
    }
  }
  return std::nullopt;
}

void CheckpointStore::prune(int64_t step, const KeepRules& rules, std::optional<int64_t> best) const {
  const std::vector<int64_t> all = steps();
  const auto newest = std::upper_bound(all.begin(), all.end(), step);
  std::for_each(newest, all.end(), [this](int64_t later) { remove_checkpoint(place(later)); });
  const int64_t kept = std::max<int64_t>(1, rules.last);
  for (auto it = all.begin(); newest - it > kept; ++it) {
    const bool stays = (rules.every > 0 && *it % rules.every == 0) || best == *it;
    if (!stays) remove_checkpoint(place(*it));
  }
}

void CheckpointStore::remove_all() const {
  if (!is_directory(folder_)) return;
  remove_leftovers();
  std::vector<int64_t> all = steps();
  for (; !all.empty(); all.pop_back()) remove_checkpoint(place(all.back()));
  if (::rmdir(folder_.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST)
    fail(Exit::kStorage, "{}: cannot be removed: {}", folder_, std::strerror(errno));
}

void CheckpointStore::remove_leftovers() const {
  if (!is_directory(folder_)) return;
  for (const FolderEntry& entry : list_folder(folder_)) {
    const std::string path = join_path(folder_, entry.name);
    if (is_leftover(entry.name) && is_plain_folder(path)) remove_checkpoint_files(path);
  }
}

}  // namespace mantissa
