#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/permutation.h"

namespace mantissa {
namespace {

constexpr int64_t kByteVocabulary = 256;
constexpr int32_t kByteSeparator = 0;
enum Stream : uint32_t { kTrainDocuments, kValidationDocuments, kTrainRows };  // uses of the seed for orders

// Packs the documents order[0..) in this order.
void pack(const Documents& documents, std::span<const uint64_t> order, bool append_eos, PackedRows& rows) {
  int64_t total = 0;
  for (const uint64_t i : order) total += static_cast<int64_t>(documents[i].size()) + append_eos;
  rows.tokens().reserve(total);
  for (const uint64_t i : order) {
    const std::string_view text = documents[i];
    rows.begin_document();
    rows.tokens().append(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
    if (append_eos) rows.tokens().append(kByteSeparator);
  }
  rows.finish();
}

std::vector<uint64_t> seeded_order(size_t n, uint64_t seed, Stream stream) {
  std::vector<uint64_t> order(n);
  if (n == 0) return order;
  const Permutation permutation(n, seed, stream, 0);
  for (size_t i = 0; i < n; ++i) order[i] = permutation(i);
  return order;
}

SplitReport report_of(const PackedRows& rows, size_t documents, int64_t sequence_length) {
  SplitReport report;
  report.documents = static_cast<int64_t>(documents);
  report.rows = rows.rows();
  report.tokens = rows.rows() * sequence_length;
  report.dropped_tokens = rows.dropped_tokens();
  report.segments = rows.segments();
  report.most_segments = rows.most_segments();
  if (report.tokens > 0) report.segment_length = rows.squared_lengths() / static_cast<double>(report.tokens);
  return report;
}

double entropy_of(const TokenStore& tokens, int64_t vocab_size) {
  std::vector<int64_t> counts(static_cast<size_t>(vocab_size));
  for (int64_t i = 0; i < tokens.size(); ++i) ++counts[static_cast<size_t>(tokens[i])];
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(tokens.size());
    entropy -= share * std::log(share);
  }
  return entropy;
}

void refuse_short(const std::string& path, const char* key, const SplitReport& report, int64_t sequence_length) {
  if (report.rows > 0) return;
  fail(Exit::kInput, "{}: {}: {} documents give {} tokens, fewer than one row of {} (data.sequence_length)", path, key,
       report.documents, report.dropped_tokens, sequence_length);
}

}  // namespace

Dataset::Dataset(const DataConfig& config, uint64_t seed)
    : seed_(seed),
      vocab_size_(kByteVocabulary),
      sequence_length_(config.sequence_length),
      train_(vocab_size_, sequence_length_),
      validation_(vocab_size_, sequence_length_) {}

Dataset Dataset::load(const DataConfig& config, uint64_t seed) {
  if (config.train.empty())
    fail(Exit::kUsage, "data.train: no file given, expected one with the documents to train on");
  Dataset data(config, seed);
  const Documents documents = read_documents(config.train, config);
  const std::vector<uint64_t> order = seeded_order(documents.size(), seed, kTrainDocuments);

  const bool own_file = !config.validation.empty();
  size_t kept = 0;
  if (!own_file && config.validation_fraction > 0 && order.size() > 1) {
    const auto wanted =
        static_cast<size_t>(std::llround(config.validation_fraction * static_cast<double>(order.size())));
    kept = std::clamp<size_t>(wanted, 1, order.size() - 1);
  }
  pack(documents, std::span(order).subspan(kept), config.append_eos, data.train_);
  DataReport& report = data.report_;
  report.train = report_of(data.train_, order.size() - kept, data.sequence_length_);
  report.files = documents.files;
  report.format = documents.format, report.name = documents.name, report.version = documents.version;
  report.tokenizer = config.tokenizer;
  report.empty_documents = documents.empty, report.short_documents = documents.short_ones;
  refuse_short(config.train, "training", report.train, data.sequence_length_);

  if (own_file) {
    const Documents held_out = read_documents(config.validation, config);
    const std::vector<uint64_t> held_order = seeded_order(held_out.size(), seed, kValidationDocuments);
    pack(held_out, held_order, config.append_eos, data.validation_);
    report.validation = report_of(data.validation_, held_out.size(), data.sequence_length_);
    report.files.insert(report.files.end(), held_out.files.begin(), held_out.files.end());
    report.empty_documents += held_out.empty, report.short_documents += held_out.short_ones;
    refuse_short(config.validation, "validation", report.validation, data.sequence_length_);
  } else if (kept > 0) {
    pack(documents, std::span(order).first(kept), config.append_eos, data.validation_);
    report.validation = report_of(data.validation_, kept, data.sequence_length_);
    refuse_short(config.train, "validation (data.validation_fraction)", report.validation, data.sequence_length_);
  }
  report.unigram_entropy = entropy_of(data.train_.tokens(), data.vocab_size_);
  return data;
}

void Dataset::batch(Split split, int64_t first, int64_t count, Batch& batch) const {
  const PackedRows& source = packed(split);
  check(first >= 0 && count >= 0, "Dataset::batch: samples {} to {}", first, first + count);
  batch.clear();
  batch.sequence_length = sequence_length_;
  batch.reserve(count, sequence_length_);
  if (split == Split::kValidation) {
    check(first + count <= source.rows(), "Dataset::batch: validation rows {} to {} of {}", first, first + count,
          source.rows());
    for (int64_t row = first; row < first + count; ++row) source.append_row(row, batch);
    return;
  }
  for (int64_t sample = first; sample < first + count; ++sample) {
    const Permutation order(static_cast<uint64_t>(source.rows()), seed_, kTrainRows,
                            static_cast<uint32_t>(sample / source.rows()));
    source.append_row(static_cast<int64_t>(order(static_cast<uint64_t>(sample % source.rows()))), batch);
  }
}

}  // namespace mantissa
