#include "data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "data/tokenizer/byte_alphabet.h"

namespace mantissa::tokenizer {
namespace {

constexpr int64_t kMaxVocabulary = 1 << 24;
constexpr int64_t kProgressEvery = 64;  // merges

// Vocabulary as it grows: ids by spelling.
class Vocabulary {
 public:
  int32_t add(const std::string& token) {
    const auto [at, added] = ids_.try_emplace(token, static_cast<int32_t>(tokens_.size()));
    if (added) tokens_.push_back(token);
    return at->second;
  }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& operator[](int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
};

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& p) const {
    // Fibonacci hashing of both ids.
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(p.first)) << 32 | static_cast<uint32_t>(p.second);
    const uint64_t mixed = key * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(mixed ^ mixed >> 32);
  }
};

// A pair's count, and the words it came into since it was last queued.
struct PairState {
  int64_t count = 0;
  std::vector<uint32_t> words;
};

// A pair to merge, with the words that hold it. Its count may have sunk since; it is checked when it comes up.
struct Candidate {
  int64_t count;
  Pair pair;
  std::vector<uint32_t> words;
};

struct LessUrgent {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class Trainer {
 public:
  Trainer(const WordCounts& words, Vocabulary& vocabulary, const int32_t (&byte_ids)[256]) : vocabulary_(vocabulary) {
    size_t symbols = 0;
    for (const auto& [word, count] : words) symbols += word.size();
    symbols_.reserve(symbols);
    for (const auto& [word, count] : words) {
      if (word.size() < 2) {
        single_ += static_cast<int64_t>(word.size()) * count;
        continue;
      }
      begins_.push_back(symbols_.size());
      lengths_.push_back(static_cast<uint32_t>(word.size()));
      counts_.push_back(count);
      for (const char c : word) symbols_.push_back(byte_ids[static_cast<uint8_t>(c)]);
    }
    for (uint32_t w = 0; w < lengths_.size(); ++w) {
      const std::span<int32_t> word = symbols_of(w);
      for (size_t i = 1; i < word.size(); ++i) change({word[i - 1], word[i]}, +1, w);
    }
    queue_changed();
  }

  // Tokens of all words as they are merged so far.
  int64_t tokens() const {
    int64_t sum = single_;
    for (size_t w = 0; w < lengths_.size(); ++w) sum += lengths_[w] * counts_[w];
    return sum;
  }

  // The next merge; false when no pair is left.
  bool step(std::vector<Pair>& merges) {
    while (!queue_.empty()) {
      Candidate top = pop();
      const int64_t count = pairs_[top.pair].count;
      if (top.count != count) {
        top.count = count;
        push(std::move(top));
        continue;
      }
      if (count < 1) return false;
      const int32_t token = vocabulary_.add(vocabulary_[top.pair.first] + vocabulary_[top.pair.second]);
      merges.push_back(top.pair);
      for (const uint32_t word : top.words) merge(word, top.pair, token);
      queue_changed();
      return true;
    }
    return false;
  }

 private:
  std::span<int32_t> symbols_of(uint32_t word) { return {symbols_.data() + begins_[word], lengths_[word]}; }

  void push(Candidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end(), LessUrgent());
  }
  Candidate pop() {
    std::pop_heap(queue_.begin(), queue_.end(), LessUrgent());
    Candidate top = std::move(queue_.back());
    queue_.pop_back();
    return top;
  }

  void change(Pair pair, int sign, uint32_t word) {
    PairState& state = pairs_[pair];
    state.count += sign * counts_[word];
    if (sign < 0) return;
    if (state.words.empty()) changed_.push_back(pair);
    if (state.words.empty() || state.words.back() != word) state.words.push_back(word);
  }

  // Replaces the pair in the word, from the left, and counts the pairs that go and come. The merged pair's own count is
  // left: it comes up again only when a later merge makes one of its tokens anew, and then counts as in BpeTrainer.
  void merge(uint32_t index, Pair pair, int32_t token) {
    const std::span<int32_t> word = symbols_of(index);
    size_t out = 0;
    for (size_t i = 0; i < word.size(); ++i) {
      if (word[i] != pair.first || i + 1 == word.size() || word[i + 1] != pair.second) {
        word[out++] = word[i];
        continue;
      }
      if (out > 0) {
        change({word[out - 1], pair.first}, -1, index);
        change({word[out - 1], token}, +1, index);
      }
      ++i;
      if (i + 1 < word.size()) {
        change({pair.second, word[i + 1]}, -1, index);
        change({token, word[i + 1]}, +1, index);
      }
      word[out++] = token;
    }
    lengths_[index] = static_cast<uint32_t>(out);
  }

  void queue_changed() {
    for (const Pair& pair : changed_) {
      PairState& state = pairs_[pair];
      if (state.count > 0) push({state.count, pair, std::move(state.words)});
      state.words = {};
    }
    changed_.clear();
  }

  Vocabulary& vocabulary_;
  int64_t single_ = 0;            // words of one byte, counted
  std::vector<int32_t> symbols_;  // of all words, each in its place
  std::vector<size_t> begins_;
  std::vector<uint32_t> lengths_;  // shrink as pairs merge
  std::vector<int64_t> counts_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::vector<Pair> changed_;     // pairs that came into words
  std::vector<Candidate> queue_;  // a heap
};

}  // namespace

BpeModel train_bpe(const WordCounts& words, const BpeOptions& options,
                   const std::function<void(int64_t tokens)>& progress) {
  const auto special = static_cast<int64_t>(options.special.size());
  if (options.vocab_size < special + 256 || options.vocab_size > kMaxVocabulary)
    fail(Exit::kUsage, "vocabulary size: {}, expected {} (256 bytes and {} special tokens) to {}", options.vocab_size,
         special + 256, special, kMaxVocabulary);
  Vocabulary vocabulary;
  for (const std::string& token : options.special) {
    if (token.empty()) fail(Exit::kUsage, "special tokens: one is empty");
    const int64_t before = vocabulary.size();
    vocabulary.add(token);
    if (vocabulary.size() == before) fail(Exit::kUsage, "special tokens: '{}' is given twice", printable(token));
  }
  int bytes[256];
  std::iota(bytes, bytes + 256, 0);
  std::sort(bytes, bytes + 256,
            [](int a, int b) { return char_of_byte(static_cast<uint8_t>(a)) < char_of_byte(static_cast<uint8_t>(b)); });
  int32_t byte_ids[256];
  for (const int byte : bytes) {
    const char text = static_cast<char>(byte);
    byte_ids[byte] = vocabulary.add(spell({&text, 1}));
  }

  Trainer trainer(words, vocabulary, byte_ids);
  std::vector<Pair> merges;
  while (vocabulary.size() < options.vocab_size && trainer.step(merges))
    if (progress && static_cast<int64_t>(merges.size()) % kProgressEvery == 0) progress(vocabulary.size());
  return {vocabulary.take(), std::move(merges), trainer.tokens(), special};
}

}  // namespace mantissa::tokenizer
