// Loss of a model over documents, read in sliding windows.
//
// A document is read in windows of `context` tokens that begin every `stride` tokens. Each token but the first is
// predicted once, by the first window that holds the token before it: behind at least context - stride tokens, or all
// there are. A token in front of the document (BOS) makes its first token a predicted one. Windows of several documents
// share a batch as segments, which changes no bit of their losses.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/tokenizer/tokenizer.h"
#include "train/engine.h"

namespace mantissa {

struct TextLoss {
  double loss = 0;     // sum over the predicted tokens, nats
  int64_t tokens = 0;  // predicted
  int64_t bytes = 0;   // that they stand for; special tokens stand for none
  int64_t documents = 0, windows = 0;
  int64_t batches = 0, padding = 0;  // run through the model; tokens that only fill them

  // NaN without a predicted token, bits_per_byte() without a byte.
  double per_token() const { return tokens > 0 ? loss / static_cast<double>(tokens) : NAN; }
  double perplexity() const { return std::exp(per_token()); }
  double bits_per_byte() const { return bytes > 0 ? loss / std::log(2.0) / static_cast<double>(bytes) : NAN; }
};

class TextEvaluator {
 public:
  // The engine is built, with at least `context` tokens a micro-batch and positions; `tokenizer` and engine must
  // outlive the evaluator. 1 <= stride <= context. A batch has `max_segments` segments at most, above
  // evaluation_tokens() / context.
  TextEvaluator(Engine& engine, const Tokenizer& tokenizer, int64_t context, int64_t stride,
                int64_t max_segments = INT64_MAX);

  // Tokens that are not learned are read and not counted.
  void add(const EncodedDocument& document);
  // Runs what is left and returns the sums. Exit::kNonFinite when they are not finite.
  const TextLoss& finish();
  const TextLoss& so_far() const { return result_; }

 private:
  void add_window(const EncodedDocument& document, int64_t begin, int64_t end, int64_t predicted);
  void run_batch();

  Engine& engine_;
  const Tokenizer& tokenizer_;
  int64_t context_, stride_, capacity_, max_windows_;
  std::vector<int32_t> ids_, labels_, positions_, segments_;
  TextLoss result_;
};

// Tokens of a micro-batch that suits windows of `context`.
int64_t evaluation_tokens(int64_t context);
// Segments of that micro-batch on a GPU, whose attention keeps room for each.
int64_t evaluation_segments(int64_t context);

}  // namespace mantissa
