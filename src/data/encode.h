// Records to tokens as the config says: documents of text, prompt and response, or the turns of a conversation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat.h"
#include "data/corpus.h"
#include "data/data_config.h"
#include "data/record.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa {

// What happened to the records; threads count apart and add up.
struct EncodeCounts {
  int64_t documents = 0;                                   // encoded
  int64_t empty = 0;                                       // left out: no text, no response
  int64_t short_ones = 0;                                  // left out: below data.min_document_bytes
  int64_t truncated = 0;                                   // examples of fine-tuning cut at sequence_length
  int64_t truncated_tokens = 0;                            // cut off
  int64_t without_response = 0;                            // left out: the prompt alone fills the row
  int64_t text_bytes = 0, tokens = 0, learned_tokens = 0;  // of the documents encoded

  EncodeCounts& operator+=(const EncodeCounts& other);
};

// Text: ids of the document with the post-processor's tokens (data.add_special_tokens), then EOS (data.append_eos);
// every token is learned. Prompt and response: tokenised apart, response and EOS learned; the post-processor's tokens
// stand around the pair. Messages, and prompt and response under a template: the template's bytes, tokenised apart
// where learned and other text meet, each assistant turn and the token that ends it learned, no EOS behind that. BOS
// stands there once: a template that writes it takes none from the post-processor. A record whose response would begin
// past sequence_length is left out; a longer one is cut at sequence_length; both are counted.
//
// EOS is data.eos_token, else eos_token_id (of a list the first) of config.json in data.model_folder, else the
// tokenizer's; for bytes it is byte 0.
class DocumentEncoder {
 public:
  // Exit::kUsage for keys that contradict each other, no EOS where one is asked for, or a template whose tokens the
  // tokenizer does not have. `tokenizer` must outlive the encoder.
  DocumentEncoder(const DataConfig& config, const Tokenizer& tokenizer);

  const RecordSpec& columns() const { return columns_; }
  bool fine_tuning() const { return fine_tuning_; }
  int32_t eos() const { return eos_; }                           // -1: none is appended
  const std::string& eos_origin() const { return eos_origin_; }  // "data.eos_token", "…/config.json", "tokenizer", ...

  // Encodes `record`; false when it is left out. `document` is overwritten. Errors are Exit::kInput and begin with
  // Record::where. Thread-safe with one `encoder` a thread.
  bool encode(Tokenizer::Encoder& encoder, const Record& record, EncodedDocument& document, EncodeCounts& counts) const;

 private:
  void choose_eos();
  void find_surrounding();
  void check_template() const;
  void add(Tokenizer::Encoder& encoder, std::string_view text, bool learned, EncodedDocument& document) const;
  void encode_pair(Tokenizer::Encoder& encoder, const Record& record, EncodedDocument& document) const;
  void encode_chat(Tokenizer::Encoder& encoder, const std::vector<Turn>& turns, EncodedDocument& document) const;
  bool cut(EncodedDocument& document, EncodeCounts& counts) const;

  const DataConfig config_;
  const Tokenizer& tokenizer_;
  RecordSpec columns_;
  ChatTemplate chat_ = ChatTemplate::kNone;
  bool fine_tuning_ = false;
  int32_t eos_ = -1;
  std::string eos_origin_;
  std::vector<int32_t> before_, behind_;  // what the post-processor puts around a text, then EOS
};

}  // namespace mantissa
