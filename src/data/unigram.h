// Entropy of tokens by their frequencies alone: the loss of a model that knows nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/packed_rows.h"

namespace mantissa {

class UnigramCounts {
 public:
  explicit UnigramCounts(int64_t vocab_size) : counts_(static_cast<size_t>(vocab_size)) {}
  void add(std::span<const int32_t> ids);
  // Of labels: -100 is left out.
  void add_labels(std::span<const int32_t> labels);
  double entropy() const;  // -Σ p log p, nats; 0 of no tokens

 private:
  std::vector<int64_t> counts_;
  int64_t total_ = 0;
};

// Adds row `row`, which `batch` holds alone: its tokens but padding, or its labels where not all tokens are learned.
void count_row(const PackedRows& rows, int64_t row, const Batch& batch, UnigramCounts& counts);

double unigram_entropy(const PackedRows& rows);
// Of the labels of at most `most_tokens` tokens of evenly spread rows.
double sampled_entropy(const RowSource& rows, int64_t most_tokens = int64_t{1} << 22);

}  // namespace mantissa
