#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/packed_rows.h"
#include "data/permutation.h"
#include "data/row_plan.h"

namespace mantissa {
namespace {

constexpr int64_t kByteVocabulary = 256;
constexpr int32_t kByteSeparator = 0;

std::shared_ptr<const Corpus> corpus_of(const Documents& documents, bool append_eos) {
  auto corpus = std::make_shared<Corpus>(kByteVocabulary);
  EncodedDocument document;
  for (size_t i = 0; i < documents.size(); ++i) {
    document.ids.clear();
    for (const char c : documents[i]) document.ids.push_back(static_cast<uint8_t>(c));
    if (append_eos) document.ids.push_back(kByteSeparator);
    corpus->append(document);
  }
  corpus->finish();
  return corpus;
}

std::unique_ptr<const RowSource> pack(std::shared_ptr<const Corpus> corpus, const DocumentOrder& order,
                                      const DataConfig& config, uint64_t seed, SplitReport& report) {
  RowPlan plan(*corpus, order, parse_packing(config.packing), config.sequence_length, seed);
  report.documents = plan.documents();
  report.rows = plan.rows();
  report.tokens = plan.rows() * config.sequence_length;
  report.dropped_tokens = plan.dropped_tokens();
  auto rows = std::make_unique<PackedRows>(std::move(corpus), std::move(plan), kByteSeparator);
  const RowStatistics& statistics = rows->statistics();
  report.segments = statistics.segments;
  report.most_segments = statistics.most_segments;
  report.padding = statistics.padding;
  report.labels = statistics.labels;
  if (report.tokens > 0) report.segment_length = statistics.squared_lengths / static_cast<double>(report.tokens);
  return rows;
}

double entropy_of(const RowSource& rows) {
  std::vector<int64_t> counts(static_cast<size_t>(rows.vocab_size()));
  int64_t total = 0;
  Batch batch;
  batch.reserve(1, rows.sequence_length());
  for (int64_t row = 0; row < rows.rows(); ++row) {
    batch.clear();
    rows.append_row(row, batch);
    for (const int32_t id : batch.ids) ++counts[static_cast<size_t>(id)];
    total += static_cast<int64_t>(batch.ids.size());
  }
  double entropy = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(total);
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
    : seed_(seed), vocab_size_(kByteVocabulary), sequence_length_(config.sequence_length) {}

Dataset Dataset::load(const DataConfig& config, uint64_t seed) {
  if (config.train.empty())
    fail(Exit::kUsage, "data.train: no file given, expected one with the documents to train on");
  Dataset data(config, seed);
  const Documents documents = read_documents(config.train, config);
  const auto all = static_cast<int64_t>(documents.size());
  const std::shared_ptr<const Corpus> corpus = corpus_of(documents, config.append_eos);

  const bool own_file = !config.validation.empty();
  int64_t kept = 0;
  if (!own_file && config.validation_fraction > 0 && all > 1)
    kept = std::clamp<int64_t>(std::llround(config.validation_fraction * static_cast<double>(all)), 1, all - 1);
  DataReport& report = data.report_;
  data.train_ = pack(corpus, DocumentOrder(all, seed, OrderStream::kTrainDocuments, kept, all - kept), config, seed,
                     report.train);
  report.files = documents.files;
  report.format = documents.format, report.name = documents.name, report.version = documents.version;
  report.tokenizer = config.tokenizer;
  report.empty_documents = documents.empty, report.short_documents = documents.short_ones;
  refuse_short(config.train, "training", report.train, data.sequence_length_);

  if (own_file) {
    const Documents held_out = read_documents(config.validation, config);
    const auto held = static_cast<int64_t>(held_out.size());
    data.validation_ =
        pack(corpus_of(held_out, config.append_eos),
             DocumentOrder(held, seed, OrderStream::kValidationDocuments, 0, held), config, seed, report.validation);
    report.files.insert(report.files.end(), held_out.files.begin(), held_out.files.end());
    report.empty_documents += held_out.empty, report.short_documents += held_out.short_ones;
    refuse_short(config.validation, "validation", report.validation, data.sequence_length_);
  } else if (kept > 0) {
    data.validation_ =
        pack(corpus, DocumentOrder(all, seed, OrderStream::kTrainDocuments, 0, kept), config, seed, report.validation);
    refuse_short(config.train, "validation (data.validation_fraction)", report.validation, data.sequence_length_);
  }
  report.unigram_entropy = entropy_of(*data.train_);
  return data;
}

void Dataset::batch(Split split, int64_t first, int64_t count, Batch& batch) const {
  const int64_t rows = this->rows(split);
  check(first >= 0 && count >= 0, "Dataset::batch: samples {} to {}", first, first + count);
  batch.clear();
  batch.sequence_length = sequence_length_;
  batch.reserve(count, sequence_length_);
  if (split == Split::kValidation) {
    check(first + count <= rows, "Dataset::batch: validation rows {} to {} of {}", first, first + count, rows);
    for (int64_t row = first; row < first + count; ++row) validation_->append_row(row, batch);
    return;
  }
  for (int64_t sample = first; sample < first + count; ++sample) {
    const Permutation order(static_cast<uint64_t>(rows), seed_, static_cast<uint32_t>(OrderStream::kTrainRows),
                            static_cast<uint32_t>(sample / rows));
    train_->append_row(static_cast<int64_t>(order(static_cast<uint64_t>(sample % rows))), batch);
  }
}

}  // namespace mantissa
