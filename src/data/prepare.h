// Data to packed rows on the disk: OUT/train and OUT/validation are folders of MDS shards that training maps as they
// lie (data/mds/writer.h). Tokens wait in unnamed files on OUT's file system, so memory holds the plan of the rows
// alone: some 16 bytes a document and piece.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace mantissa {

struct PrepareOptions {
  std::string out;     // a folder that is not there yet
  uint64_t seed = 42;  // draws split and order, as run.seed of a training run
  uint64_t shard_bytes = uint64_t{1} << 26;
  int zstd_level = 0;  // 0: not compressed, as training maps them
  ProgressHook reading;
  std::function<void(int64_t rows, int64_t of)> writing;  // called as often as `reading`
};

struct PrepareReport {
  DataReport data;
  int64_t vocab_size = 0, sequence_length = 0;
  int32_t eos = -1;
  std::vector<std::string> leftovers;  // folders of runs that were killed, removed, or left and why: a line each
  double read_seconds = 0, write_seconds = 0;  // reading, encoding and laying out; writing
  uint64_t bytes_written = 0;
};

// OUT appears whole, under its name, or not at all. Row r of OUT/train is row r of a Dataset of the same config and
// seed, so that training on OUT/train with that seed draws the same batches. Exit::kUsage when something stands at
// `out`, Exit::kStorage when the disk is full, Exit::kInterrupted when a stop signal was caught.
PrepareReport prepare(const DataConfig& config, const PrepareOptions& options);

}  // namespace mantissa
