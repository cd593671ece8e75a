// Text to ids and back: with a tokenizer that normalises nothing the text comes back whole, but for the bytes that have
// no token.
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

namespace {

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  Tokenizer::Encoder encoder(tokenizer);
  std::vector<int32_t> ids;
  encoder.encode(text, SpecialTokens::kLeaveOut, ids);
  return tokenizer.decode(ids);
}

// The bytes that the fixture "sparse" has no token for (make_fixtures.py).
constexpr std::string_view kMissing("\x00\x01\x04\x7f\x98\x9f\xc3\xcc\xf0\xf4-9@", 13);

void encode_sparse(const Tokenizer& tokenizer, std::string_view text) {
  Tokenizer::Encoder encoder(tokenizer);
  std::vector<int32_t> ids;
  encoder.encode(text, SpecialTokens::kLeaveOut, ids);
  std::string found, expected;
  for (const int32_t id : ids) found += tokenizer.bytes_of(id);
  for (const char byte : text)
    if (kMissing.find(byte) == std::string_view::npos) expected += byte;
  if (found != expected) std::abort();
}

}  // namespace

MANTISSA_FUZZ(input, {
  static const Tokenizer gpt2 = Tokenizer::open(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2");
  static const Tokenizer qwen = Tokenizer::open(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/qwen");
  static const Tokenizer sparse = Tokenizer::open(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/sparse");
  static const Tokenizer unknown = Tokenizer::open(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/unknown");
  if (round_trip(gpt2, input) != input) std::abort();
  round_trip(qwen, input);
  encode_sparse(sparse, input);
  round_trip(unknown, input);
})
