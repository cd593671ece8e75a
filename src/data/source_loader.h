// What a path of the config gives: documents in a corpus, read as text and encoded or taken from files of tokens, or
// rows of tokens as they lie on the disk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/data_config.h"
#include "data/encode.h"
#include "data/ingest.h"
#include "data/record.h"
#include "data/rows.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa {

struct LoadOptions {
  std::string spill_folder;  // tokens go into unnamed files on its file system; "" keeps them in memory
  bool repack = false;       // of files of tokens: their documents, not their rows
  bool preview = false;      // files are not read on to be hashed
  ProgressHook progress;
};

struct LoadedSource {
  std::shared_ptr<const Corpus> corpus;   // documents to be packed, or
  std::shared_ptr<const RowSource> rows;  // rows as they are
  int64_t vocab_size = 0;                 // ids are below it
  int64_t dropped_tokens = 0;             // of rows: the tail that fills none
  int64_t documents = 0;                  // of rows, where they are known
  double unigram_entropy = 0;             // of rows, where it is known
};

// Shares tokenizer and counts between the sources of training and validation.
class SourceLoader {
 public:
  SourceLoader(const DataConfig& config, const LoadOptions& options) : config_(config), options_(options) {}

  // `path` is a file or folder, `split` of a folder. Exit::kUsage: keys that do not go with the source.
  LoadedSource load(const std::string& path, const std::string& split);

  // The text's; of files of tokens that of data.tokenizer, or bytes where `prepare` wrote so; null: not known.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  int32_t eos() const { return eos_; }  // -1: none
  const std::string& eos_origin() const { return eos_origin_; }
  int32_t padding() const;  // what fills rows: EOS, else the tokenizer's padding token, else 0

  const std::string& format() const { return format_; }  // of the first source
  const SourcePackage& package() const { return package_; }
  const std::vector<SourceFile>& files() const { return files_; }
  const EncodeCounts& counts() const { return counts_; }  // of text
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  LoadedSource read_text(const Source& source, const std::string& path);
  LoadedSource read_documents(const Source& source, const std::string& path);
  LoadedSource map_rows(const Source& source);
  void refuse_bytes_for_tokens() const;
  void refuse_truncation() const;
  void refuse_keys_of_text(const std::string& path) const;
  void open_tokenizer(const Source& source);
  void choose_eos();

  DataConfig config_;
  LoadOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<DocumentEncoder> encoder_;
  int32_t eos_ = -1;
  std::string eos_origin_, format_;
  SourcePackage package_;
  std::vector<SourceFile> files_;
  EncodeCounts counts_;
  std::vector<std::string> notes_;
};

}  // namespace mantissa
