// manifest.json of a checkpoint: which files it consists of, where each piece of state lies in them, checksums of every
// byte, and what a run keeps besides tensors. The format stands in docs/run_checkpoints.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"

namespace mantissa {

struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  std::string header;  // checksum of its safetensors header, the eight bytes of length included
};

// Elements [first, first + count) of a state tensor, flattened: one entry of one file, under the tensor's name.
struct CheckpointPiece {
  std::string tensor, dtype;   // dtype as safetensors names it
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0, count = 0;
  size_t file = 0;       // index into files
  std::string checksum;  // of its bytes
};

struct Manifest {
  static constexpr const char* kName = "manifest.json";
  static constexpr int kFormat = 1;

  int64_t step = 0;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointPiece> pieces;
  Json run;  // progress and identity, as the trainer gave them

  // The file's text: keys in order, the checksum of all the rest among them.
  std::string text() const;
};

// What text() wrote, to the byte; `path` begins each message. Exit::kInput: damage, a format of another version, names
// that leave the folder, pieces without a file, that overlap or leave a gap.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace mantissa
