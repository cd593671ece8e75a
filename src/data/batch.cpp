#include "data/batch.h"

#include <cstddef>

namespace mantissa {

void Batch::clear() {
  rows = valid_tokens = 0;
  for (auto* list : {&ids, &labels, &positions, &segments}) list->clear();
}

void Batch::reserve(int64_t rows_wanted, int64_t tokens_a_row) {
  const auto tokens = static_cast<size_t>(rows_wanted * tokens_a_row);
  for (auto* list : {&ids, &labels, &positions}) list->reserve(tokens);
  segments.reserve(tokens + 1);
}

}  // namespace mantissa
