// What a Tokenizer holds. Internal to data/tokenizer/.
#pragma once

#include <string>

#include "data/tokenizer/model.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa {

struct Tokenizer::Impl {
  bool bytes = false;
  std::string name{}, folder{}, sha256{};
  int32_t bos = -1, eos = -1, pad = -1;
  tokenizer::Model model{};  // empty for bytes
};

}  // namespace mantissa
