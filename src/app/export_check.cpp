#include "app/export_check.h"

#include <algorithm>
#include <cstring>

#include "base/machine.h"
#include "base/philox.h"
#include "base/units.h"

namespace mantissa {
namespace {

constexpr int64_t kRowTokens = 32;
constexpr uint64_t kSeed = 20;

PrecisionConfig full_precision() {
  PrecisionConfig precision;
  precision.recipe = plain_recipe(/*full_precision=*/true).name;
  return precision;
}

}  // namespace

ExportCheck::ExportCheck(const ModelConfig& model)
    : model_(model),
      tokens_(kRows * std::min(kRowTokens, model.max_position_embeddings)),
      engine_(model, full_precision(), {.tokens = tokens_, .sequence_length = tokens_ / kRows, .training = false}) {
  const int64_t needed = engine_.plan().total(), there = machine().memory_bytes;
  if (needed > there)
    fail(Exit::kMemory, "memory: the model in FP32 needs {}, this machine has {}",
         bytes_text(static_cast<double>(needed)), bytes_text(static_cast<double>(there)));
  engine_.build();
  const RandomKey key{kSeed, 0, 0, DrawForm::kInit};
  for (int64_t t = 0; t < tokens_; ++t) {
    const uint32_t random = draw(key, static_cast<uint64_t>(t)).x[0];
    ids_.push_back(static_cast<int32_t>(static_cast<int64_t>(random) % model.vocab_size));
    positions_.push_back(static_cast<int32_t>(t % row_tokens()));
  }
  labels_.assign(ids_.size(), -100);
  for (int64_t row = 0; row <= kRows; ++row) segments_.push_back(static_cast<int32_t>(row * row_tokens()));
}

void ExportCheck::load(const std::string& folder, DType round_to) {
  load_hf_weights(folder, model_, engine_.params(), round_to);
}

std::vector<float> ExportCheck::logits() {
  std::vector<float> out(static_cast<size_t>(tokens_ * model_.vocab_size));
  const auto view = [](std::vector<int32_t>& x) {
    return ConstTensor(x.data(), DType::kI32, {static_cast<int64_t>(x.size())});
  };
  engine_.logits({view(ids_), view(labels_), view(positions_), view(segments_)},
                 Tensor(out.data(), DType::kF32, {tokens_, model_.vocab_size}));
  return out;
}

void ExportCheck::expect_logits(const std::string& folder, const std::vector<float>& expected,
                                const std::string& source, DType round_to) {
  load(folder);
  const std::vector<float> found = logits();
  const bool same = std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0;
  // Some bits of a weight reach no logit of these rows; the tensors are compared all the same.
  const std::string tensor = first_different_tensor(source, model_, engine_.params(), round_to);
  if (same && tensor.empty()) return;
  if (tensor.empty())
    fail(Exit::kInternal, "{}: its logits differ from those of {} although every tensor agrees", folder, source);
  fail(Exit::kInternal, "{}: {} differs from {}; {}", folder, tensor, source,
       same ? "the logits of random rows agree" : "the logits of random rows differ too");
}

}  // namespace mantissa
