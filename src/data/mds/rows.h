// Rows of MDS folders, ready to train on, and their documents, to be packed anew.
//
// tokens      column `tokens`, else `input_ids`: an array of whole numbers, or bytes of data.token_dtype (auto: int64)
// segments    column `document_lengths`; or `attention_mask` where it, `input_ids` and `position_ids` are raw uint32
//             arrays (then it holds document lengths); else behind each EOS; else the row is one segment
// labels      column `labels`, else the next token of the segment. Beside `tokens` a label stands at the position that
//             it is predicted from; beside `input_ids` it may also repeat its own token (Hugging Face's convention),
//             which the first rows show
// padding     column `attention_mask` of ones, then zeros: the zeros are a segment without labels
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/token_files/token_source.h"

namespace mantissa::mds {

// Compressed shards are unpacked into memory once, when all of them together have at most this many bytes; more are
// refused (`prepare` them first).
inline constexpr uint64_t kMaxUnpackedRows = uint64_t{1} << 30;

// Rows of the folders end to end. Exit::kUsage: rows of another length than options.sequence_length, a vocabulary of
// mantissa.json above options.vocab_size. Exit::kInput: malformed folders.
TokenSource open_rows(const std::vector<std::string>& folders, const TokenOptions& options);

// The segments of the rows, each a document; options.sequence_length 0 takes rows of any one length.
std::unique_ptr<DocumentSource> open_documents(const std::vector<std::string>& folders, const TokenOptions& options);

// The folder has a column of tokens (`tokens` or `input_ids`), so that it is no text.
bool has_tokens(const std::string& folder);

}  // namespace mantissa::mds
