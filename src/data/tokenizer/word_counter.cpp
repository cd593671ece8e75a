#include "data/tokenizer/word_counter.h"

#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

void count_word(WordCounts& words, std::string_view word, int64_t count) {
  const auto at = words.find(word);
  if (at != words.end())
    at->second += count;
  else
    words.emplace(word, count);
}

template <Pattern kPattern>
void count_text(WordCounts& words, std::string_view text) {
  const char *p = text.data(), *end = p + text.size();
  while (p < end) {
    const char* next = pretoken_end<kPattern>(p, end);
    count_word(words, {p, static_cast<size_t>(next - p)}, 1);
    p = next;
  }
}

void count_text(WordCounts& words, std::string_view text, Pattern pattern) {
  switch (pattern) {
    case Pattern::kGpt2:
      return count_text<Pattern::kGpt2>(words, text);
    case Pattern::kLlama3:
      return count_text<Pattern::kLlama3>(words, text);
    case Pattern::kQwen2:
      return count_text<Pattern::kQwen2>(words, text);
  }
}

}  // namespace

void WordCounter::add(std::span<const std::string> documents) {
  std::mutex mutex;
  std::optional<Error> error;  // the first by thread that found one
  parallel_for(static_cast<int64_t>(documents.size()), 1, [&](int64_t begin, int64_t end) {
    WordCounts words;
    std::string normal;
    for (int64_t i = begin; i < end; ++i) {
      const std::string& text = documents[static_cast<size_t>(i)];
      if (const size_t at = find_ill_formed(text); at < text.size()) {
        const std::lock_guard lock(mutex);
        if (!error) error.emplace(Exit::kInput, fmt::format("document {}: ill-formed UTF-8 at byte {}", i + 1, at));
        return;
      }
      const bool normalise = nfc_ && !surely_nfc(text);
      if (normalise) to_nfc(text, normal);
      count_text(words, normalise ? normal : text, pattern_);
    }
    const std::lock_guard lock(mutex);
    for (const auto& [word, count] : words) count_word(words_, word, count);
  });
  if (error) throw *error;
}

}  // namespace mantissa::tokenizer
