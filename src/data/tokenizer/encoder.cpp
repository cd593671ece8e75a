// Tokenizer::Encoder: added tokens, normalisation, pieces, BPE behind a cache of words.
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/impl.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/pretoken.h"
#include "data/tokenizer/utf8.h"
#include "data/tokenizer/word_cache.h"

namespace mantissa {

using namespace tokenizer;

struct Tokenizer::Encoder::State {
  explicit State(const Impl& tokenizer) : impl(tokenizer), model(tokenizer.model), bpe(tokenizer.model) {}

  void encode_text(std::string_view text, std::vector<int32_t>& ids);
  void encode_normalized(std::string_view text, std::vector<int32_t>& ids);
  void encode_plain(std::string_view text, std::vector<int32_t>& ids);
  template <Pattern kPattern>
  void encode_pieces(std::string_view text, std::vector<int32_t>& ids);
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids);

  const Impl& impl;
  const Model& model;
  BpeMerger bpe;
  WordCache<2, 4> words{15};       // 64 bytes a set: 2 MiB
  WordCache<5, 6> long_words{12};  // 128 bytes a set: 512 KiB
  std::vector<Piece> raw_pieces, normalized_pieces;
  std::string normalized, prefixed;
};

void Tokenizer::Encoder::State::encode_text(std::string_view text, std::vector<int32_t>& ids) {
  const size_t wrong = find_ill_formed(text);
  if (wrong < text.size()) {
    fail(Exit::kInput, "text: byte {} (0x{:02x}) is no well-formed UTF-8", wrong, static_cast<uint8_t>(text[wrong]));
  }
  if (model.raw_tokens.empty()) {
    encode_normalized(text, ids);
    return;
  }
  model.raw_tokens.split(text, raw_pieces);
  for (const Piece& piece : raw_pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_normalized(piece.text, ids);
    }
  }
}

void Tokenizer::Encoder::State::encode_normalized(std::string_view text, std::vector<int32_t>& ids) {
  if (model.steps.nfc && !surely_nfc(text)) {
    to_nfc(text, normalized);
    text = normalized;
  }
  if (model.normalized_tokens.empty()) {
    encode_plain(text, ids);
    return;
  }
  model.normalized_tokens.split(text, normalized_pieces);
  for (const Piece& piece : normalized_pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_plain(piece.text, ids);
    }
  }
}

void Tokenizer::Encoder::State::encode_plain(std::string_view text, std::vector<int32_t>& ids) {
  if (text.empty()) return;
  if (model.steps.add_prefix_space && text[0] != ' ') {
    prefixed.assign(1, ' ').append(text);
    text = prefixed;
  }
  switch (model.steps.pattern) {
    case Pattern::kGpt2:
      return encode_pieces<Pattern::kGpt2>(text, ids);
    case Pattern::kLlama3:
      return encode_pieces<Pattern::kLlama3>(text, ids);
    case Pattern::kQwen2:
      return encode_pieces<Pattern::kQwen2>(text, ids);
  }
}

template <Pattern kPattern>
void Tokenizer::Encoder::State::encode_pieces(std::string_view text, std::vector<int32_t>& ids) {
  const auto through = [&](auto& cache, const char* p, size_t size, size_t readable) {
    const auto key = cache.key_of(p, size, readable);
    if (const auto* entry = cache.find(key)) {
      ids.insert(ids.end(), entry->ids.begin(), entry->ids.begin() + entry->count());
      return;
    }
    const size_t before = ids.size();
    encode_piece({p, size}, ids);
    const size_t count = ids.size() - before;
    if (count > 0 && count <= static_cast<size_t>(cache.kMaxIds)) cache.put(key, ids.data() + before, count);
  };
  const char *p = text.data(), *const end = p + text.size();
  while (p < end) {
    const char* const next = pretoken_end<kPattern>(p, end);
    const size_t size = static_cast<size_t>(next - p), readable = static_cast<size_t>(end - p);
    if (size <= words.kMaxBytes) {
      through(words, p, size, readable);
    } else if (size <= long_words.kMaxBytes) {
      through(long_words, p, size, readable);
    } else {
      encode_piece({p, size}, ids);
    }
    p = next;
  }
}

void Tokenizer::Encoder::State::encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
  if (model.ignore_merges) {
    if (const int32_t id = model.vocab.find_bytes(piece); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  bpe.encode(piece, ids);
}

Tokenizer::Encoder::Encoder(const Tokenizer& tokenizer) : state_(std::make_unique<State>(*tokenizer.impl_)) {}
Tokenizer::Encoder::~Encoder() = default;
Tokenizer::Encoder::Encoder(Encoder&&) noexcept = default;

void Tokenizer::Encoder::encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) {
  if (state_->impl.bytes) {
    ids.reserve(ids.size() + text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return;
  }
  const Steps& steps = state_->model.steps;
  const size_t before = ids.size();
  if (special == SpecialTokens::kAdd) ids.insert(ids.end(), steps.before.begin(), steps.before.end());
  try {
    state_->encode_text(text, ids);
  } catch (...) {
    ids.resize(before);
    throw;
  }
  if (special == SpecialTokens::kAdd) ids.insert(ids.end(), steps.after.begin(), steps.after.end());
}

}  // namespace mantissa
