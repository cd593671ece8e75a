#include "data/leftovers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".mantissa-prepare";

// The lock file of a folder, held: its descriptor, or -1 with errno.
int take_lock(const std::string& folder, int flags) {
  const int file = ::open(join_path(folder, kLock).c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (file < 0) return -1;
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int error = errno;
  ::close(file);
  errno = error;
  return -1;
}

std::string remove_one(const std::string& folder) {
  const int held = take_lock(folder, 0);
  if (held < 0 && errno == EWOULDBLOCK) return folder + ": left, another prepare is writing it";
  if (held < 0) return folder + ": left, it holds no lock file of a prepare; remove it if it is one";
  std::error_code error;
  fs::remove_all(folder, error);
  ::close(held);
  return folder + (error ? ": what a prepare that was killed left there cannot be removed: " + error.message()
                         : ": removed, what a prepare that was killed left there");
}

}  // namespace

FillLock::FillLock(std::string folder) : folder_(std::move(folder)), file_(take_lock(folder_, O_CREAT | O_EXCL)) {
  if (file_ < 0) fail(Exit::kStorage, "{}: cannot lock the folder: {}", folder_, std::strerror(errno));
}

FillLock::~FillLock() {
  if (file_ >= 0) ::close(file_);
}

void FillLock::release() {
  if (::unlink(join_path(folder_, kLock).c_str()) != 0)
    fail(Exit::kStorage, "{}: cannot remove the lock file: {}", folder_, std::strerror(errno));
}

std::vector<std::string> remove_leftovers(const std::string& place) {
  fs::path path(place);
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const std::string start = path.filename().string() + ".tmp-";
  std::vector<std::string> lines;
  if (!is_directory(folder)) return lines;
  for (const FolderEntry& entry : list_folder(folder)) {
    const bool numbered = entry.name.size() > start.size() && entry.name.starts_with(start) &&
                          entry.name.find_first_not_of("0123456789", start.size()) == std::string::npos;
    const std::string found = join_path(folder, entry.name);
    std::error_code error;
    if (numbered && entry.kind == FolderEntry::Kind::kFolder && !fs::is_symlink(found, error))
      lines.push_back(remove_one(found));
  }
  return lines;
}

}  // namespace mantissa
