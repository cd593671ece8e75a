// Files of token ids without text, memory-mapped. Byte layouts stand in docs/shards.md.
//
//   nanogpt   headerless ids, uint16 unless data.token_dtype says otherwise
//   llmc      256 int32 of header (20240520, 1, tokens: uint16; 20240801, 7, tokens: uint32), then the ids
//   megatron  NAME.bin with the ids and NAME.idx with the documents
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/token_files/token_source.h"

namespace mantissa {

// "llmc", "megatron" or "nanogpt", by an .idx beside the .bin and by the first bytes.
std::string token_file_format(const std::string& path);

// Rows of S tokens over the files end to end: row r is tokens [r S, (r + 1) S) of the stream, the tail that fills no
// row is dropped. A segment ends with its document (megatron), behind an EOS (TokenOptions::eos) and with the row.
// `files` are the .bin (megatron: .bin or .idx). Exit::kInput for malformed files and ones that fill no row.
TokenSource open_token_rows(const std::vector<std::string>& files, const std::string& format,
                            const TokenOptions& options);

// Documents of the files: megatron's own, else what an EOS ends (with the EOS; a file's end ends one too). Longer ones
// come in pieces of kMaxPieceTokens.
inline constexpr int64_t kMaxPieceTokens = int64_t{1} << 22;
std::unique_ptr<DocumentSource> open_token_documents(const std::vector<std::string>& files, const std::string& format,
                                                     const TokenOptions& options);

}  // namespace mantissa
