// What every source of ready tokens is opened with, and what opening it gives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/record.h"
#include "data/rows.h"

namespace mantissa {

struct TokenOptions {
  int64_t sequence_length = 0;       // S
  int64_t vocab_size = 0;            // ids are below it; 0: as the files say, else as their element type allows
  int32_t eos = -1;                  // splits documents behind it where the file does not say where they end; -1: none
  std::string token_dtype = "auto";  // data.token_dtype
};

struct TokenSource {
  std::unique_ptr<RowSource> rows;
  // For run.json. MDS: index.json of each folder. Token files: every file, by fingerprint().
  std::vector<SourceFile> files;
  int64_t dropped_tokens = 0;      // the tail that fills no row
  std::string segments_by;         // what ends a segment: "document_lengths", "eos", "documents", "rows"
  std::vector<std::string> notes;  // what a user should be told
};

// Documents of ready tokens, one after the other, to be packed anew.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  // Overwrites `document`; false at the end. Exit::kInput names file and place.
  virtual bool next(EncodedDocument& document) = 0;
  virtual double progress() const = 0;     // 0 to 1
  virtual int64_t vocab_size() const = 0;  // ids are below it, checked
  virtual const std::vector<SourceFile>& files() const = 0;
};

// Exit::kUsage for an EOS that no id of the vocabulary can be.
void check_eos(int32_t eos, int64_t vocab_size);
// For TokenSource::notes: rows that an EOS should split hold none ("" otherwise).
std::string missing_eos(int32_t eos, const RowSource& rows);

// Size and SHA-256 of each file; when they have more than 256 MiB together, "sampled:" and the SHA-256 of the size
// (u64) and of 16 evenly spread blocks of 256 KiB, the first and the last among them.
std::vector<SourceFile> fingerprint(const std::vector<std::string>& paths);

}  // namespace mantissa
