// Plans that took cuDNN's compiler, kept from run to run, a file for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::cuda {

class PlanFiles {
 public:
  // In `folder`; "": nothing is kept.
  explicit PlanFiles(std::string folder) : folder_(std::move(folder)) {}

  // What keep() was given under the same key, whole; empty where there is none. The key is one line and names all that
  // a plan depends on. A file that is not as keep() wrote it is said on stderr, and none.
  std::vector<uint8_t> find(const std::string& key) const;
  // A folder that cannot be written is said once on stderr.
  void keep(const std::string& key, const std::vector<uint8_t>& plan);

 private:
  std::string path_of(const std::string& key) const;

  std::string folder_;
};

}  // namespace mantissa::cuda
