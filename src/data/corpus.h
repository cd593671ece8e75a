// Documents as tokens, end to end in the order they were read, and which tokens are learned. In memory, or (for what
// memory does not hold) in an unnamed file in a given folder that is mapped once it is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mantissa {

// A document behind the tokenizer.
struct EncodedDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;  // 1: the token is a label; empty: all are
};

class Corpus {
 public:
  // Tokens take 1, 2 or 4 bytes, as the vocabulary asks. `spill_folder` "": memory.
  explicit Corpus(int64_t vocab_size, const std::string& spill_folder = "");
  ~Corpus();
  Corpus(Corpus&&) noexcept;
  Corpus& operator=(Corpus&&) noexcept;

  // Exit::kInternal for a token outside the vocabulary, Exit::kStorage when the folder is full.
  void append(const EncodedDocument& document);
  // To be called once, behind the last document.
  void finish();

  int64_t vocab_size() const;
  int64_t documents() const;
  int64_t tokens() const;
  bool masked() const;                    // some document has tokens that are not learned
  int64_t begin(int64_t document) const;  // token offset; begin(documents()) is tokens()

  // Copies `out.size()` tokens from offset `begin` on.
  void read(int64_t begin, std::span<int32_t> out) const;
  bool learned(int64_t token) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mantissa
