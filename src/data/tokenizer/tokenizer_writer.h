// tokenizer.json and tokenizer_config.json of a byte-level BPE, as Hugging Face `tokenizers` and transformers read
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/pretoken.h"

namespace mantissa::tokenizer {

// "gpt2", "llama3", "qwen"; Exit::kUsage for another name.
Pattern pattern_named(std::string_view name);

struct WrittenTokenizer {
  BpeModel model;
  Pattern pattern = Pattern::kGpt2;
  bool nfc = false;           // text is normalised first
  std::string bos, eos, pad;  // special tokens of the model, "" where there is none
  bool add_bos = false;       // the post-processor puts bos in front
};

// The texts of the two files. Exit::kUsage when bos, eos or pad is none of the special tokens.
std::string tokenizer_json(const WrittenTokenizer& file);
std::string tokenizer_config_json(const WrittenTokenizer& file);

// Writes both into `folder`, which is made; Exit::kStorage when that fails.
void write_tokenizer(const std::string& folder, const WrittenTokenizer& file);

// The `bytes` tokenizer: 256 tokens, id = byte, no merges. It names no EOS: an added token is found by its spelling,
// and that of byte 0 (U+0100) is a character of its own; config.json of a model says eos_token_id 0.
WrittenTokenizer bytes_tokenizer_file();

}  // namespace mantissa::tokenizer
