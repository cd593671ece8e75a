// Records to tokens as the config says: documents of text, prompt and response, or the turns of a conversation.
#pragma once

#include <cstdint>

#include "data/corpus.h"
#include "data/data_config.h"
#include "data/record.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa {

// What happened to the records; threads count apart and add up.
struct EncodeCounts {
  int64_t documents = 0;         // encoded
  int64_t empty = 0;             // left out: no text, no response
  int64_t short_ones = 0;        // left out: below data.min_document_bytes
  int64_t truncated = 0;         // examples of fine-tuning cut at sequence_length
  int64_t truncated_tokens = 0;  // cut off
  int64_t without_response = 0;  // left out: the prompt alone fills the row
  int64_t text_bytes = 0, tokens = 0, learned_tokens = 0;

  EncodeCounts& operator+=(const EncodeCounts& other);
};

// Text: ids of the document with the post-processor's tokens (data.add_special_tokens), then EOS (data.append_eos);
// every token is learned. Prompt and response: tokenised apart, response and EOS learned. Messages: the template's
// bytes, tokenised turn by turn, each assistant turn and what ends it learned; BOS never twice. A record whose response
// would begin past sequence_length is left out; a longer one is cut at sequence_length; both are counted.
class DocumentEncoder {
 public:
  // Exit::kUsage for keys that contradict each other or a template whose tokens the tokenizer does not have.
  DocumentEncoder(const DataConfig& config, const Tokenizer& tokenizer);

  const RecordSpec& columns() const { return columns_; }
  bool fine_tuning() const { return fine_tuning_; }
  int32_t eos() const { return eos_; }                           // -1: none is appended
  const std::string& eos_origin() const { return eos_origin_; }  // "data.eos_token", "…/config.json", ...

  // Encodes `record`; false when it is left out. `document` is overwritten.
  bool encode(Tokenizer::Encoder& encoder, const Record& record, EncodedDocument& document, EncodeCounts& counts) const;

 private:
  const DataConfig config_;
  const Tokenizer& tokenizer_;
  RecordSpec columns_;
  bool fine_tuning_ = false;
  int32_t eos_ = -1;
  std::string eos_origin_;
};

}  // namespace mantissa
