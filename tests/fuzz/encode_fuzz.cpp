// Text to ids and back: with a tokenizer that normalises nothing the text comes back whole.
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

}  // namespace

MANTISSA_FUZZ(input, {
  static const Tokenizer gpt2 = Tokenizer::open(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2");
  static const Tokenizer qwen = Tokenizer::open(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/qwen");
  if (round_trip(gpt2, input) != input) std::abort();
  round_trip(qwen, input);
})
