// The readers of text records, one file each. Errors are Exit::kInput and name file and line, row or entry.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/record.h"

namespace mantissa {

inline constexpr size_t kMaxLineBytes = size_t{64} << 20;
inline constexpr size_t kMaxDocumentBytes = size_t{128} << 20;  // of text
inline constexpr size_t kMaxTurns = size_t{1} << 16;            // of a conversation

// The records of one file (dictd: of one database, mds: of one folder).
class FileRecords {
 public:
  virtual ~FileRecords() = default;
  virtual bool next(Record& record) = 0;
  // How much of it was read, 0 to 1; any thread may ask.
  virtual double share() const = 0;
  // Reads what is left for its hash and appends the file or files. No next() may follow.
  virtual void finish(std::vector<SourceFile>& files) = 0;
};

// Text: documents parted by blank lines, by lines, or the whole file (data.document_separator). Spaces and line ends
// around a document go; CR LF becomes LF. A document has at most kMaxDocumentBytes.
std::unique_ptr<FileRecords> open_text(const std::string& path, const DataConfig& config);

// JSON lines: each line an object with the columns of `spec`; blank lines are skipped. A file that begins with "[" is
// one array of such objects, on any number of lines. Null is no text.
std::unique_ptr<FileRecords> open_jsonl(const std::string& path, const RecordSpec& spec, const DataConfig& config);

// A DICT database (dictd(8)): NAME.index (headword, offset, length in its base64 digits) and NAME.dict or NAME.dict.dz.
// `path` is any of them. One entry is one document, in the order of the data; several headwords of one entry count
// once, and entries about the database itself (headwords from "00-" on) are left out. Read as a whole.
std::unique_ptr<FileRecords> open_dictd(const std::string& path, const DataConfig& config);
// The two files of the database that `path` names.
std::vector<std::string> dictd_files(const std::string& path);

// Apache Parquet: the columns of `spec` as strings (binary and dictionary-encoded too), messages as a list of structs
// with role and content. Null is no text. By the run-time module of data/readers/parquet_module.h.
std::unique_ptr<FileRecords> open_parquet(const std::string& path, const RecordSpec& spec, const DataConfig& config);

// The text columns of a folder of MDS shards.
std::unique_ptr<FileRecords> open_mds_text(const std::string& folder, const RecordSpec& spec, const DataConfig& config);

// An entry without layout: a paragraph to a line, runs of spaces as one.
std::string dictd_layout(std::string_view entry);
// A GCIDE entry as prose: pronunciation (\...\ and the bracket behind it), etymologies and sources in [...] and the
// braces of cross references go, accent codes as [=a] become plain letters, then dictd_layout.
std::string dictd_prose(std::string_view entry);

// Refuses text that the tokenizer cannot take: no UTF-8, or with data.tokenizer bytes a byte 0.
void check_text(std::string_view text, const DataConfig& config, const std::string& where);
// Roles of ShareGPT, human and gpt, by the names that templates know; others stay.
void name_role(std::string& role);
// Refuses a byte 0, which separates documents of bytes and in other text means that it is UTF-16.
void check_no_zero(std::string_view text, const std::string& where);
// "path:number" without allocating when `where` has room.
void set_where(std::string& where, std::string_view path, int64_t number);
// A column that a line or file does not have; `found` are the columns that it has.
[[noreturn]] void no_column(const std::string& where, const std::string& column, const DataConfig& config,
                            std::vector<std::string> found);

}  // namespace mantissa
