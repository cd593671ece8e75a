// The readers of documents, one file each. They append to `documents` and record the files read; errors are
// Exit::kInput.
#pragma once

#include <string>
#include <string_view>

#include "data/documents.h"

namespace mantissa {

// Text: documents parted by blank lines, by lines, or the whole file (data.document_separator). Spaces and line ends
// around a document go; CR LF becomes LF.
void read_text_file(const std::string& path, const DataConfig& config, Documents& documents);

// JSON lines: each line an object with the text under data.text_key; blank lines are skipped. A bad line names
// file:line.
void read_jsonl(const std::string& path, const DataConfig& config, Documents& documents);

// A DICT database (dictd(8)): NAME.index (headword, offset, length in its base64 digits) and NAME.dict or NAME.dict.dz.
// `path` is any of them. One entry is one document, in the order of the data; several headwords of one entry count
// once, and entries about the database itself (headwords from "00-" on) are left out.
void read_dictd(const std::string& path, const DataConfig& config, Documents& documents);

// An entry without layout: a paragraph to a line, runs of spaces as one.
std::string dictd_layout(std::string_view entry);
// A GCIDE entry as prose: pronunciation (\...\ and the bracket behind it), etymologies and sources in [...] and the
// braces of cross references go, accent codes as [=a] become plain letters, then dictd_layout.
std::string dictd_prose(std::string_view entry);

}  // namespace mantissa
