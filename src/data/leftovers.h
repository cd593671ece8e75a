// Folders that prepare was filling when it was killed: found by their names, known by a lock file that no one holds.
#pragma once

#include <string>
#include <vector>

namespace mantissa {

// A lock file in a folder that is being filled (base/folder.h). release() removes it, before the folder takes its
// place.
class FillLock {
 public:
  explicit FillLock(std::string folder);  // Exit::kStorage when it cannot be made
  ~FillLock();
  FillLock(const FillLock&) = delete;
  FillLock& operator=(const FillLock&) = delete;
  void release();

 private:
  std::string folder_;
  int file_ = -1;
};

// Removes PLACE.tmp-NUMBER whose lock file no one holds. A line for each folder of such a name: what was done, or why
// it was left.
std::vector<std::string> remove_leftovers(const std::string& place);

}  // namespace mantissa
