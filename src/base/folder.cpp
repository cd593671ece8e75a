#include "base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"

namespace mantissa {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

FolderEntry::Kind kind_of(const std::string& path, unsigned char type) {
  if (type == DT_REG) return FolderEntry::Kind::kFile;
  if (type == DT_DIR) return FolderEntry::Kind::kFolder;
  if (type != DT_LNK && type != DT_UNKNOWN) return FolderEntry::Kind::kOther;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return FolderEntry::Kind::kOther;
    fail(Exit::kInput, "{}: cannot be looked at: {}", path, std::strerror(errno));
  }
  if (S_ISREG(info.st_mode)) return FolderEntry::Kind::kFile;
  return S_ISDIR(info.st_mode) ? FolderEntry::Kind::kFolder : FolderEntry::Kind::kOther;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

std::vector<FolderEntry> list_folder(const std::string& folder) {
  const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
  if (open == nullptr) fail(Exit::kInput, "{}: cannot list the folder: {}", folder, std::strerror(errno));
  std::vector<FolderEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") entries.push_back({name, kind_of(join_path(folder, name), entry->d_type)});
  }
  if (errno != 0)
    fail(Exit::kInput, "{}: cannot list the folder beyond {} entries: {}", folder, entries.size(),
         std::strerror(errno));
  std::sort(entries.begin(), entries.end(), [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

NewFolder::NewFolder(std::string place) : place_(without_slash(std::move(place))) {
  make_dirs(parent_of(place_));
  const std::string path = fmt::format("{}.tmp-{}", place_, ::getpid());
  // One that stands there, of a process that had this number, is not filled a second time.
  if (::mkdir(path.c_str(), 0777) != 0)
    fail(Exit::kStorage, "{}: cannot make the folder: {}", path, std::strerror(errno));
  path_ = path;
}

NewFolder::~NewFolder() {
  if (committed_ || path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (error) fmt::print(stderr, "warning: {}: cannot be removed and stays: {}\n", path_, error.message());
}

void NewFolder::exchange() {
  sync_directory(path_);
  // renameat2(2): both names stand at any moment. File systems that cannot (NFS) say EINVAL.
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) != 0) {
    const std::string old = path_ + "-old";
    if ((errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) || ::rename(place_.c_str(), old.c_str()) != 0 ||
        ::rename(path_.c_str(), place_.c_str()) != 0 || ::rename(old.c_str(), path_.c_str()) != 0)
      fail(Exit::kStorage, "{}: cannot change places with the written folder: {}", place_, std::strerror(errno));
  }
  committed_ = true;
  sync_directory(parent_of(place_));
}

void NewFolder::commit() {
  sync_directory(path_);
  if (::rename(path_.c_str(), place_.c_str()) != 0)
    fail(Exit::kStorage, "{}: cannot put the written folder in place: {}", place_, std::strerror(errno));
  committed_ = true;
  sync_directory(parent_of(place_));
}

}  // namespace mantissa
