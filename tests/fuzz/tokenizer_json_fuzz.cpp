// tokenizer.json: what is accepted encodes and decodes any text without harm.
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

MANTISSA_FUZZ(input, {
  const Tokenizer tokenizer = Tokenizer::from_json(input, "input");
  Tokenizer::Encoder encoder(tokenizer);
  std::vector<int32_t> ids;
  encoder.encode("It's 12345  words\n\n <|endoftext|> \xc3\xa9\xcc\x81", SpecialTokens::kAdd, ids);
  tokenizer.decode(ids);
  tokenizer.decode(ids, true);
})
