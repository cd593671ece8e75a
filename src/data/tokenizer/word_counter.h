// Words of documents and how often they stand there, for training a tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/pretoken.h"

namespace mantissa::tokenizer {

class WordCounter {
 public:
  // With `nfc` documents are normalised first.
  WordCounter(Pattern pattern, bool nfc) : pattern_(pattern), nfc_(nfc) {}

  // Counts the words of each document, threaded; no word spans two documents. Exit::kInput for ill-formed UTF-8, naming
  // the document by its number in the span and the byte.
  void add(std::span<const std::string> documents);
  const WordCounts& words() const { return words_; }

 private:
  Pattern pattern_;
  bool nfc_;
  WordCounts words_;
};

}  // namespace mantissa::tokenizer
