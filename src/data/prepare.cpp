#include "data/prepare.h"

#include <chrono>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/signal.h"
#include "data/leftovers.h"
#include "data/mds/writer.h"
#include "data/packed_rows.h"
#include "data/unigram.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void check_place(const std::string& out) {
  if (out.find_first_not_of('/') == std::string::npos) fail(Exit::kUsage, "--out: no folder given");
  if (exists(out)) fail(Exit::kUsage, "{}: stands there already; give another --out, or remove it", out);
}

mds::Prepared describe(const Dataset& data, const DataConfig& config, const SplitReport& split, double entropy) {
  const DataReport& report = data.report();
  const EncodeCounts& counts = report.counts;
  mds::Prepared prepared{.tokenizer = report.tokenizer,
                         .tokenizer_sha256 = report.tokenizer_sha256,
                         .eos = data.eos(),
                         .eos_origin = report.eos_origin,
                         .packing = config.packing,
                         .documents = split.documents,
                         .unigram_entropy = entropy,
                         .sources = report.files};
  prepared.statistics.padding = split.padding;
  prepared.counts = {{"cut_documents", split.cut_documents},
                     {"dropped_tokens", split.dropped_tokens},
                     {"empty", counts.empty},
                     {"short", counts.short_ones},
                     {"truncated", counts.truncated},
                     {"truncated_tokens", counts.truncated_tokens},
                     {"without_response", counts.without_response}};
  return prepared;
}

// Writes the rows of a split; gives the bytes on the disk.
uint64_t write_rows(const Dataset& data, Split split, const DataConfig& config, const PrepareOptions& options,
                    const std::string& folder) {
  const auto& rows = dynamic_cast<const PackedRows&>(*data.source(split));
  const bool labels = rows.corpus().masked() || config.packing != "truncate";
  mds::Writer writer(folder, {.sequence_length = rows.sequence_length(),
                              .vocab_size = data.vocab_size(),
                              .labels = labels,
                              .size_limit = options.shard_bytes,
                              .zstd_level = options.zstd_level});
  UnigramCounts counts(data.vocab_size());
  std::vector<int32_t> lengths;
  Batch batch;
  batch.reserve(1, rows.sequence_length());
  auto told = Clock::now();
  for (int64_t row = 0; row < rows.rows(); ++row) {
    if (row % 64 == 0) throw_if_stopped("writing " + options.out);
    batch.clear();
    rows.append_row(row, batch);
    lengths.clear();
    for (size_t s = 0; s + 1 < batch.segments.size(); ++s) lengths.push_back(batch.segments[s + 1] - batch.segments[s]);
    writer.add(batch.ids, lengths, labels ? std::span<const int32_t>(batch.labels) : std::span<const int32_t>());
    count_row(rows, row, batch, counts);
    if (options.writing && (Clock::now() - told > kProgressInterval || row + 1 == rows.rows())) {
      told = Clock::now();
      options.writing(row + 1, rows.rows());
    }
  }
  const SplitReport& report = split == Split::kTrain ? data.report().train : data.report().validation;
  writer.finish(describe(data, config, report, counts.entropy()));
  return writer.bytes_written();
}

}  // namespace

PrepareReport prepare(const DataConfig& config, const PrepareOptions& options) {
  check_place(options.out);
  std::vector<std::string> leftovers = remove_leftovers(options.out);
  NewFolder folder(options.out);
  FillLock lock(folder.path());
  const auto begin = Clock::now();
  const Dataset data =
      Dataset::load(config, options.seed, {.spill_folder = folder.path(), .repack = true, .progress = options.reading});
  PrepareReport report{.data = data.report(),
                       .vocab_size = data.vocab_size(),
                       .sequence_length = data.sequence_length(),
                       .eos = data.eos(),
                       .leftovers = std::move(leftovers),
                       .read_seconds = since(begin)};
  const auto writing = Clock::now();
  report.bytes_written = write_rows(data, Split::kTrain, config, options, join_path(folder.path(), "train"));
  if (data.rows(Split::kValidation) > 0)
    report.bytes_written +=
        write_rows(data, Split::kValidation, config, options, join_path(folder.path(), "validation"));
  lock.release();
  folder.commit();
  report.write_seconds = since(writing);
  return report;
}

}  // namespace mantissa
