// The data of a run: read, split into training and validation, packed into rows, handed out as batches.
//
//   Dataset data = Dataset::load(config, seed);
//   data.batch(Split::kTrain, step * rows_per_step + micro * micro_rows, micro_rows, batch);
//
// Text becomes a corpus in memory, whose documents are laid into rows in an order drawn from the seed; files of tokens
// are mapped, and their rows are taken as they lie. Sample k of training is row permutation(epoch = k / rows)[k %
// rows], so the cursor is the one number k, which a resume or another batch layout shares. Validation goes through its
// rows in order. The same config, files and seed give the same bytes on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/data_config.h"
#include "data/rows.h"
#include "data/source_loader.h"

namespace mantissa {

enum class Split { kTrain, kValidation };

struct SplitReport {
  int64_t documents = 0;      // 0 where files of tokens do not say
  int64_t cut_documents = 0;  // that lie in several rows, or not whole
  int64_t rows = 0;
  int64_t tokens = 0;          // packed: rows * sequence_length
  int64_t dropped_tokens = 0;  // that fill no row, or stand alone behind a cut
  int64_t padding = 0;         // tokens that only fill a row
  int64_t labels = 0;          // positions with a label
  int64_t segments = 0;
  int64_t most_segments = 0;  // in one row
  double segment_length = 0;  // Σ s² / Σ s over the segments, for the FLOP count of attention
  bool sampled = false;       // padding, labels and segments are measured on some rows and scaled
};

struct DataReport {
  std::string format, name, version;        // name and version: of the package, "" when unknown
  std::string tokenizer, tokenizer_sha256;  // "" where files of tokens name none
  std::string eos_origin;                   // of Dataset::eos()
  std::vector<SourceFile> files;            // every file read, with its SHA-256
  EncodeCounts counts;                      // of text
  SplitReport train, validation;
  // Of the training tokens, nats a token: the loss of a model that knows frequencies alone. Of mapped rows without a
  // record of it: of a sample.
  double unigram_entropy = 0;
  bool entropy_sampled = false;
  std::vector<std::string> notes;  // what a user should be told
};

// What did not come into the rows and why, a line each: "12 empty documents", ...
std::vector<std::string> left_out(const DataReport& report);

class Dataset {
 public:
  // Exit::kUsage: no data.train, keys that do not go with the source. Exit::kInput: a bad file, or one that does not
  // fill a row. Exit::kInterrupted when a stop signal was caught.
  static Dataset load(const DataConfig& config, uint64_t seed, const LoadOptions& options = {});

  int64_t vocab_size() const { return vocab_size_; }
  int64_t sequence_length() const { return sequence_length_; }
  int64_t rows(Split split) const { return source(split) == nullptr ? 0 : source(split)->rows(); }
  // Tokens of one pass, rows * sequence_length.
  int64_t tokens(Split split) const { return rows(split) * sequence_length_; }
  const DataReport& report() const { return report_; }
  // What the tokens stand for; null where files of tokens do not say and data.tokenizer names none.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  int32_t eos() const { return eos_; }  // ends a document, -1: none
  // The rows of a split in their own order; null when it has none.
  const RowSource* source(Split split) const { return split == Split::kTrain ? train_.get() : validation_.get(); }

  // Fills `batch` with `count` samples from number `first` on. Training goes round for ever, each pass in a new order;
  // validation samples are rows and must be in range. Batches never allocate again once their vectors have grown.
  void batch(Split split, int64_t first, int64_t count, Batch& batch) const;

 private:
  Dataset(const DataConfig& config, uint64_t seed) : seed_(seed), sequence_length_(config.sequence_length) {}

  uint64_t seed_;
  int64_t vocab_size_ = 0, sequence_length_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t eos_ = -1;
  std::shared_ptr<const RowSource> train_, validation_;
  DataReport report_;
};

}  // namespace mantissa
