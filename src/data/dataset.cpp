#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "data/packed_rows.h"
#include "data/permutation.h"
#include "data/row_plan.h"
#include "data/split_rows.h"
#include "data/unigram.h"

namespace mantissa {
namespace {

// How many of `all` are held back for validation: at least one, and not all.
int64_t held_back(double fraction, int64_t all) {
  if (fraction <= 0 || all < 2) return 0;
  return std::clamp<int64_t>(std::llround(fraction * static_cast<double>(all)), 1, all - 1);
}

void describe(const RowSource& rows, SplitReport& report) {
  const RowStatistics& statistics = rows.statistics();
  report.rows = rows.rows();
  report.tokens = rows.rows() * rows.sequence_length();
  report.padding = statistics.padding;
  report.labels = statistics.labels;
  report.segments = statistics.segments;
  report.most_segments = statistics.most_segments;
  report.sampled = statistics.sampled;
  if (report.tokens > 0) report.segment_length = statistics.squared_lengths / static_cast<double>(report.tokens);
}

// Makes the rows of a split from parts [first, first + count) of a drawn order: of documents, or of rows.
class Packer {
 public:
  Packer(const DataConfig& config, uint64_t seed, int32_t padding) : config_(config), seed_(seed), padding_(padding) {}

  std::shared_ptr<const RowSource> pack(const LoadedSource& from, OrderStream stream, int64_t first, int64_t count,
                                        SplitReport& report) const {
    if (from.corpus == nullptr) return take_rows(from, first, count, report);
    const DocumentOrder order(from.corpus->documents(), seed_, stream, first, count);
    RowPlan plan(*from.corpus, order, parse_packing(config_.packing), config_.sequence_length, seed_);
    report.documents = plan.documents();
    report.cut_documents = plan.cut_documents();
    report.dropped_tokens = plan.dropped_tokens();
    auto rows = std::make_shared<PackedRows>(from.corpus, std::move(plan), padding_);
    describe(*rows, report);
    return rows;
  }

 private:
  std::shared_ptr<const RowSource> take_rows(const LoadedSource& from, int64_t first, int64_t count,
                                             SplitReport& report) const {
    const bool all = count == from.rows->rows();
    std::shared_ptr<const RowSource> rows = from.rows;
    if (!all) rows = std::make_shared<SplitRows>(from.rows, seed_, first, count);
    report.documents = all ? from.documents : 0;
    report.dropped_tokens = from.dropped_tokens;
    describe(*rows, report);
    return rows;
  }

  const DataConfig& config_;
  uint64_t seed_;
  int32_t padding_;
};

int64_t parts_of(const LoadedSource& source) {
  return source.corpus != nullptr ? source.corpus->documents() : source.rows->rows();
}

void refuse_short(const std::string& path, const char* key, const SplitReport& report, int64_t sequence_length,
                  const char* remedy = "") {
  if (report.rows > 0) return;
  fail(Exit::kInput, "{}: {}: {} documents give {} tokens, fewer than one row of {} (data.sequence_length){}", path,
       key, report.documents, report.dropped_tokens, sequence_length, remedy);
}

// Why a share for validation gives none.
std::string none_held_back(const DataConfig& config, const std::string& format, bool documents) {
  return fmt::format(
      "no validation rows, so no evaluation: a share (data.validation_fraction {}) of one {} cannot be "
      "kept; give data.validation{}",
      config.validation_fraction, documents ? "document" : "row",
      format == "text" ? ", or part the text into documents (data.document_separator)" : "");
}

}  // namespace

std::vector<std::string> left_out(const DataReport& report) {
  const EncodeCounts& counts = report.counts;
  std::vector<std::string> lines;
  const auto add = [&lines](int64_t count, const char* what) {
    if (count > 0) lines.push_back(grouped(count) + what);
  };
  add(counts.empty, " empty documents");
  add(counts.short_ones, " documents below data.min_document_bytes");
  add(counts.without_response, " examples whose response would begin past data.sequence_length");
  if (counts.truncated > 0)
    lines.push_back(fmt::format("{} tokens of {} examples cut at data.sequence_length",
                                grouped(counts.truncated_tokens), grouped(counts.truncated)));
  add(report.train.dropped_tokens, " training tokens that fill no row");
  add(report.validation.dropped_tokens, " validation tokens that fill no row");
  return lines;
}

Dataset Dataset::load(const DataConfig& config, uint64_t seed, const LoadOptions& options) {
  if (config.train.empty())
    fail(Exit::kUsage, "data.train: no file given, expected one with the documents to train on");
  Dataset data(config, seed);
  DataReport& report = data.report_;
  SourceLoader loader(config, options);
  const LoadedSource loaded = loader.load(config.train, config.split);
  const Packer packer(config, seed, loader.padding());

  const bool own = !config.validation.empty() || !config.validation_split.empty();
  const int64_t all = parts_of(loaded), kept = own ? 0 : held_back(config.validation_fraction, all);
  data.vocab_size_ = loaded.vocab_size;
  data.train_ = packer.pack(loaded, OrderStream::kTrainDocuments, kept, all - kept, report.train);
  refuse_short(config.train, "training", report.train, data.sequence_length_);
  if (own) {
    const std::string& path = config.validation.empty() ? config.train : config.validation;
    const LoadedSource held = loader.load(path, config.validation_split);
    data.validation_ = packer.pack(held, OrderStream::kValidationDocuments, 0, parts_of(held), report.validation);
    data.vocab_size_ = std::max(data.vocab_size_, held.vocab_size);
    refuse_short(path, "validation", report.validation, data.sequence_length_);
  } else if (kept > 0) {
    data.validation_ = packer.pack(loaded, OrderStream::kTrainDocuments, 0, kept, report.validation);
    refuse_short(config.train, "validation (data.validation_fraction)", report.validation, data.sequence_length_,
                 "; a larger fraction, a smaller data.sequence_length or data.validation gives rows, 0 goes without");
  }

  data.tokenizer_ = loader.tokenizer(), data.eos_ = loader.eos();
  report.format = loader.format(), report.name = loader.package().name, report.version = loader.package().version;
  if (data.tokenizer_ != nullptr)
    report.tokenizer = data.tokenizer_->name(), report.tokenizer_sha256 = data.tokenizer_->sha256();
  report.eos_origin = loader.eos_origin();
  report.files = loader.files(), report.counts = loader.counts(), report.notes = loader.notes();
  if (data.tokenizer_ != nullptr && report.counts.text_bytes > 0 && !data.tokenizer_->unspelled().empty())
    report.notes.push_back("tokenizer: " + data.tokenizer_->unspelled());
  if (!own && kept == 0 && config.validation_fraction > 0)
    report.notes.push_back(none_held_back(config, report.format, loaded.corpus != nullptr));
  if (!options.spill_folder.empty()) return data;
  if (const auto* packed = dynamic_cast<const PackedRows*>(data.train_.get())) {
    report.unigram_entropy = unigram_entropy(*packed);
  } else {
    report.unigram_entropy = kept == 0 ? loaded.unigram_entropy : 0;
    report.entropy_sampled = report.unigram_entropy == 0;
    if (report.entropy_sampled) report.unigram_entropy = sampled_entropy(*data.train_);
  }
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
