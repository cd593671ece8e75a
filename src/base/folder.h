// Folders: what stands in one, and a new one that takes its name when it is complete.
#pragma once

#include <string>
#include <vector>

namespace mantissa {

struct FolderEntry {
  enum class Kind { kFile, kFolder, kOther };
  std::string name;
  Kind kind = Kind::kOther;  // of what a link leads to; kOther: neither, or a link to nothing
};

// What stands in `folder`, by name. Exit::kInput when it cannot be listed to its end.
std::vector<FolderEntry> list_folder(const std::string& folder);

// A folder that is filled beside its place, as PLACE.tmp-PID. commit() puts it there, where nothing or an empty folder
// may stand; without commit() it goes, and what cannot be removed is said on stderr. Exit::kStorage.
class NewFolder {
 public:
  explicit NewFolder(std::string place);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& place() const { return place_; }  // without a slash at its end
  const std::string& path() const { return path_; }    // where it is filled
  void commit();
  // The same where a folder stands there already: the two change places, in one step where the file system can, and the
  // old one stands at path() behind it.
  void exchange();

 private:
  std::string place_, path_;
  bool committed_ = false;
};

}  // namespace mantissa
