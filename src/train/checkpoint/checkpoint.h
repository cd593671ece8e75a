// A checkpoint: a folder of safetensors files and manifest.json (docs/run_checkpoints.md). It is written beside its
// place and takes its name when every file is durable; it is read with every byte checked.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/state.h"
#include "train/checkpoint/manifest.h"

namespace mantissa {

// One state tensor: a copy of its bytes, or where it lies, which then holds still.
struct SavedTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::span<const std::byte> bytes;
  std::optional<StateTensor> state = std::nullopt;  // read when its turn comes

  size_t size() const { return static_cast<size_t>(bytes_of(dtype, shape.count())); }
};

// Bytes of a file after which the next one begins.
inline constexpr int64_t kCheckpointFileBytes = int64_t{4} << 30;

// Writes the folder `place`: files, then the manifest, each durable before the folder takes its name. A checkpoint that
// stands there changes places with it, and goes. Exit::kStorage; what was written beside `place` is then gone or named
// on stderr.
void write_checkpoint(const std::string& place, int64_t step, const Json& run, std::span<const SavedTensor> tensors,
                      int64_t file_bytes = kCheckpointFileBytes);

// Removes a checkpoint's files and its folder, which loses its name first: nobody takes what is half removed for a
// checkpoint. Exit::kStorage; also for what is no file of a checkpoint, which stays.
void remove_checkpoint(const std::string& place);
// The same of one that has no name of a checkpoint any more, or not yet.
void remove_checkpoint_files(const std::string& folder);

class Checkpoint {
 public:
  // Reads the manifest and compares the files' sizes with it. Exit::kInput names what differs.
  static Checkpoint open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  int64_t step() const { return manifest_.step; }
  const Json& run() const { return manifest_.run; }
  const Manifest& manifest() const { return manifest_; }
  uint64_t bytes() const;  // of all files

  // Reads every byte. Exit::kInput names the file, and the tensor where the damage lies in one.
  void verify() const;

  // Fills the state that `visit` enumerates, each byte checked before it is used. Exit::kInput for damage, a tensor
  // that is missing, one that the state does not have, and another dtype or shape; what was filled until then stays
  // filled.
  void restore(const std::function<void(const StateVisitor&)>& visit) const;
  // The same of some tensors alone; bytes of others are not looked at.
  void fill(const std::function<void(const StateVisitor&)>& visit) const;

 private:
  // `f` is called once for each piece whose tensor `wanted` takes, with bytes that were checked.
  void read(const std::function<bool(const std::string&)>& wanted,
            const std::function<void(const CheckpointPiece&, std::span<const std::byte>)>& f) const;
  void take(const std::function<void(const StateVisitor&)>& visit, bool all) const;

  std::string folder_;
  Manifest manifest_;
};

}  // namespace mantissa
