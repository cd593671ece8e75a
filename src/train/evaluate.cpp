#include "train/evaluate.h"

#include <algorithm>

#include "base/error.h"
#include "data/batch.h"

namespace mantissa {

int64_t evaluation_tokens(int64_t context) {
  constexpr int64_t kMultiple = 1024;
  return (2 * context + kMultiple - 1) / kMultiple * kMultiple;
}

int64_t evaluation_segments(int64_t context) {
  constexpr int64_t kWindows = 64;
  return kWindows + ceil_div(evaluation_tokens(context), context);
}

TextEvaluator::TextEvaluator(Engine& engine, const Tokenizer& tokenizer, int64_t context, int64_t stride,
                             int64_t max_segments)
    : engine_(engine),
      tokenizer_(tokenizer),
      context_(context),
      stride_(stride),
      capacity_(engine.decoder().tokens()),
      max_windows_(max_segments - ceil_div(capacity_, context)),  // what fills the batch are segments too
      segments_{0} {
  check(context >= 1 && context <= capacity_, "evaluation: context is {}, expected 1 to {}", context, capacity_);
  check(max_windows_ >= 1, "evaluation: {} segments do not hold {} tokens in windows of {}", max_segments, capacity_,
        context);
  check(stride >= 1 && stride <= context, "evaluation: stride is {}, expected 1 to {}", stride, context);
}

void TextEvaluator::add(const EncodedDocument& document) {
  ++result_.documents;
  const auto n = static_cast<int64_t>(document.ids.size());
  int64_t predicted = 0;  // the last token that a window before predicted; nothing predicts token 0
  for (int64_t begin = 0; predicted < n - 1; begin += stride_) {
    // The last token of the document is predicted and not read.
    const int64_t end = std::min(begin + context_, n - 1);
    add_window(document, begin, end, predicted);
    predicted = end;
  }
}

// Tokens [begin, end) are read; those behind `predicted` up to token `end` are labels.
void TextEvaluator::add_window(const EncodedDocument& document, int64_t begin, int64_t end, int64_t predicted) {
  const auto learned = [&](int64_t token) {
    return token > predicted && (document.learned.empty() || document.learned[static_cast<size_t>(token)] != 0);
  };
  bool any = false;
  for (int64_t i = begin; i < end && !any; ++i) any = learned(i + 1);
  if (!any) return;
  if (static_cast<int64_t>(ids_.size()) + end - begin > capacity_ ||
      static_cast<int64_t>(segments_.size()) > max_windows_)
    run_batch();
  for (int64_t i = begin; i < end; ++i) {
    const int32_t label = document.ids[static_cast<size_t>(i + 1)];
    ids_.push_back(document.ids[static_cast<size_t>(i)]);
    labels_.push_back(learned(i + 1) ? label : kIgnoredLabel);
    positions_.push_back(static_cast<int32_t>(i - begin));
    if (!learned(i + 1)) continue;
    ++result_.tokens;
    if (tokenizer_.known(label) && !tokenizer_.special(label))
      result_.bytes += static_cast<int64_t>(tokenizer_.bytes_of(label).size());
  }
  segments_.push_back(static_cast<int32_t>(ids_.size()));
  ++result_.windows;
}

void TextEvaluator::run_batch() {
  if (ids_.empty()) return;
  // Segments that no loss counts fill the batch.
  while (static_cast<int64_t>(ids_.size()) < capacity_) {
    const int64_t n = std::min(context_, capacity_ - static_cast<int64_t>(ids_.size()));
    for (int64_t i = 0; i < n; ++i) {
      ids_.push_back(0);
      labels_.push_back(kIgnoredLabel);
      positions_.push_back(static_cast<int32_t>(i));
    }
    segments_.push_back(static_cast<int32_t>(ids_.size()));
    result_.padding += n;
  }
  const Shape t{capacity_};
  LossSums sums;
  engine_.evaluate({.ids = {ids_.data(), DType::kI32, t},
                    .labels = {labels_.data(), DType::kI32, t},
                    .positions = {positions_.data(), DType::kI32, t},
                    .segments = {segments_.data(), DType::kI32, {static_cast<int64_t>(segments_.size())}}},
                   sums);
  result_.loss += sums.loss;
  ++result_.batches;
  ids_.clear(), labels_.clear(), positions_.clear();
  segments_.assign(1, 0);
}

const TextLoss& TextEvaluator::finish() {
  run_batch();
  if (!std::isfinite(result_.loss))
    fail(Exit::kNonFinite, "the loss over {} tokens is {}", result_.tokens, result_.loss);
  return result_;
}

}  // namespace mantissa
