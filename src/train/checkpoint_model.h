// RUN@STEP: the model that a run had behind a step, out of its checkpoint, for whatever reads model folders.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "train/checkpoint/checkpoint.h"

namespace mantissa {

// Whether `path` means a checkpoint of a run: RUN@STEP or RUN@last, where no file has that very name.
bool names_checkpoint(const std::string& path);
// RUN of RUN@STEP, else the path itself.
std::string run_of(const std::string& path);
// The checkpoint that `path` names; of RUN@last the newest whose manifest can be read. Exit::kInput where it is not
// there, with the steps that are.
Checkpoint open_checkpoint(const std::string& path);

// A Hugging Face folder that `path` means (find_model_folder), for RUN@STEP a new one in the system's temporary folder,
// with every byte that it takes of the checkpoint checked, which goes with the object.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& path);
  const std::string& path() const { return path_; }

 private:
  struct Temporary;
  std::string path_;
  std::shared_ptr<const Temporary> temporary_;
};

}  // namespace mantissa
