// Records as files hold them: the text columns of a document, or the turns of a conversation. Readers hand them out one
// by one, in the order of the files, in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/data_config.h"

namespace mantissa {

// One message of a conversation.
struct Turn {
  std::string role, content;  // role: system, user, assistant
  bool context = false;       // belongs to what is asked: not learned, whoever says it
};

struct Record {
  std::vector<std::string> texts;  // one for each of RecordSpec::columns; "" where a column holds turns
  std::vector<Turn> turns;         // of RecordSpec::messages, or of a prompt and a response that are lists of them
  std::string where;               // "articles.jsonl:17", for messages

  size_t text_bytes() const;  // of texts and of what turns say
};

// Which columns a record has: text columns by name, or one column of messages. A name with dots is a path through
// objects (JSON lines) or structs (Parquet): "meta.text".
struct RecordSpec {
  std::vector<std::string> columns;  // one of text; or prompt and response, both text or both lists of messages
  std::string messages;  // "" or the column with [{"role", "content"}, ...] or [{"from", "value"}, ...]; `columns` is
                         // empty then
  bool pair() const { return columns.size() == 2; }
};

// A file that was read, as its bytes lie on the disk.
struct SourceFile {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;
};

// What a SOURCE.json beside the first file says of the set; "" without one.
struct SourcePackage {
  std::string name, version;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // Fills `record` (its strings are reused) and returns true; false at the end. Every record comes, those without text
  // and null ones (as "") too: who reads counts and leaves out. Errors are Exit::kInput and name file and line, row or
  // entry.
  virtual bool next(Record& record) = 0;
  // Share of the bytes read, 0 to 1; any thread may ask while another one is in next().
  virtual double progress() const = 0;
  // Ends the reading, also before the last record: what was not read of an open file is hashed, files that were never
  // opened are left out. Idempotent; no next() may follow.
  virtual void finish() = 0;
  // Of the files that were read, once finish() has run.
  virtual const std::vector<SourceFile>& files() const = 0;
  virtual const SourcePackage& package() const = 0;
};

// What `path` is: a file; the files that a pattern with * or ? in its last part names; or a folder of files of one
// format, of which `split` takes those named SPLIT.*, SPLIT-* or lying in a folder SPLIT ("" takes all). Of a folder
// without data files its folder data/ is taken (a downloaded Hugging Face repository), else its folders with an
// index.json. Sorted by name. Exit::kInput when nothing is left or the formats differ.
struct Source {
  std::string format;              // text, jsonl, dictd, parquet, mds, nanogpt, llmc, megatron
  std::vector<std::string> files;  // dictd: one path of each database; mds: the folders with an index.json;
                                   // megatron: the .bin files, each with its .idx beside it
  bool tokens = false;             // holds token ids, not text
};
Source find_source(const std::string& path, const std::string& split, const DataConfig& config);

// A reader of text records over all files of `source` (text, jsonl, dictd, parquet, mds with a text column), one after
// the other. Memory: one piece of a file and one record, Parquet one batch of rows under a capped pool. Text that is no
// UTF-8 is refused, with data.tokenizer bytes only a byte 0. A file whose SHA-256 differs from that in a SOURCE.json
// beside it is refused once it has been read.
std::unique_ptr<RecordReader> open_records(const Source& source, const RecordSpec& spec, const DataConfig& config);

}  // namespace mantissa
