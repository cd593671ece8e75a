// The algorithms that searches found, kept from run to run in one file for each device and version of cuBLASLt.
#pragma once

#include <map>
#include <string>

namespace mantissa::cuda {

class ChoiceFile {
 public:
  // The file in `folder` ("": none, nothing is kept). What of it cannot be read is said on stderr and written anew.
  ChoiceFile(const std::string& folder, const std::string& device, int sm, size_t library);

  const std::string& path() const { return path_; }
  // The algorithm's words for a key's; null where there are none.
  const std::string* find(const std::string& key) const;
  // Adds to the file, beside what other processes put there since it was read.
  void keep(const std::string& key, const std::string& algorithm);

 private:
  using Choices = std::map<std::string, std::string>;
  Choices read(bool say) const;

  std::string path_;
  Choices choices_, found_;
  bool writable_ = true;
};

}  // namespace mantissa::cuda
