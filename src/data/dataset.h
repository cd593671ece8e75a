// The training data in memory: documents split into training and validation, packed into rows, handed out as batches.
//
//   Dataset data = Dataset::load(config, seed);
//   data.batch(Split::kTrain, step * rows_per_step + micro * micro_rows, micro_rows, batch);
//
// Order: documents are laid end to end in an order drawn from the seed; sample k of training is row
// permutation(epoch = k / rows)[k % rows], so the cursor is the one number k, which a resume or another batch layout
// shares. Validation goes through its rows in order. The same config, files and seed give the same bytes on every
// machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/data_config.h"
#include "data/documents.h"
#include "data/rows.h"

namespace mantissa {

enum class Split { kTrain, kValidation };

struct SplitReport {
  int64_t documents = 0;
  int64_t rows = 0;
  int64_t tokens = 0;          // packed: rows * sequence_length
  int64_t dropped_tokens = 0;  // that fill no row
  int64_t padding = 0;         // tokens that only fill a row
  int64_t labels = 0;          // positions with a label
  int64_t segments = 0;
  int64_t most_segments = 0;  // in one row
  double segment_length = 0;  // Σ s² / Σ s over the segments, for the FLOP count of attention
};

struct DataReport {
  std::string format, tokenizer, name, version;  // name and version: of the package, "" when unknown
  std::vector<SourceFile> files;                 // every file read, with its SHA-256
  int64_t empty_documents = 0, short_documents = 0;
  SplitReport train, validation;
  double unigram_entropy = 0;  // of the training tokens, nats a token: the loss of a model that knows frequencies alone
};

class Dataset {
 public:
  // Exit::kUsage: no data.train. Exit::kInput: a bad file, or one that does not fill a row.
  static Dataset load(const DataConfig& config, uint64_t seed);

  int64_t vocab_size() const { return vocab_size_; }
  int64_t sequence_length() const { return sequence_length_; }
  int64_t rows(Split split) const { return source(split) == nullptr ? 0 : source(split)->rows(); }
  // Tokens of one pass, rows * sequence_length.
  int64_t tokens(Split split) const { return rows(split) * sequence_length_; }
  const DataReport& report() const { return report_; }

  // Fills `batch` with `count` samples from number `first` on. Training goes round for ever, each pass in a new order;
  // validation samples are rows and must be in range. Batches never allocate again once their vectors have grown.
  void batch(Split split, int64_t first, int64_t count, Batch& batch) const;

 private:
  Dataset(const DataConfig& config, uint64_t seed);
  const RowSource* source(Split split) const { return split == Split::kTrain ? train_.get() : validation_.get(); }

  uint64_t seed_;
  int64_t vocab_size_, sequence_length_;
  std::unique_ptr<const RowSource> train_, validation_;  // null: no rows
  DataReport report_;
};

}  // namespace mantissa
