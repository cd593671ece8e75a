#include "data/mds/writer.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "data/batch.h"
#include "data/mds/hashes.h"

namespace mantissa::mds {
namespace {

void put(std::string& out, const void* data, size_t bytes) { out.append(static_cast<const char*>(data), bytes); }
void put_u32(std::string& out, size_t value) {
  const auto word = static_cast<uint32_t>(value);
  put(out, &word, sizeof(word));
}

// Bytes of a dimension as MosaicML's writer chooses them: the fewest of 1, 2 and 4 that hold it.
size_t dimension_code(size_t size) { return size < 1u << 8 ? 0 : size < 1u << 16 ? 1 : 2; }
size_t array_bytes(size_t size) { return 1 + (size_t{1} << dimension_code(size)) + 4 * size; }

// ndarray:int32 of one dimension: u8 (1 << 2 | code), the dimension, the values.
void put_array(std::string& out, std::span<const int32_t> values) {
  const size_t code = dimension_code(values.size());
  out.push_back(static_cast<char>(1 << 2 | code));
  const auto size = static_cast<uint32_t>(values.size());
  put(out, &size, size_t{1} << code);
  put(out, values.data(), values.size_bytes());
}

std::string zstd(const std::string& raw, int level) {
  std::string out(ZSTD_compressBound(raw.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), level);
  check(!ZSTD_isError(size), "zstd: {}", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

}  // namespace

struct Writer::Impl {
  std::unique_ptr<NewFolder> folder;
  WriterOptions options;
  bool finished = false;
  nlohmann::json config;  // of a shard, as it stands inside it too
  std::string config_text;
  nlohmann::json shards = nlohmann::json::array();
  std::string samples;         // of the shard under way
  std::vector<uint32_t> ends;  // of its samples, from the first on
  RowStatistics statistics;
  int64_t rows = 0;
  uint64_t written = 0;

  uint64_t shard_bytes(size_t more_samples, size_t more_bytes) const {
    return 4 * (ends.size() + more_samples + 2) + config_text.size() + samples.size() + more_bytes;
  }
  nlohmann::json describe(const std::string& name, const std::string& bytes) const;
  void flush();
};

nlohmann::json Writer::Impl::describe(const std::string& name, const std::string& bytes) const {
  nlohmann::json hashes = nlohmann::json::object();
  for (const std::string& algorithm : options.hashes) hashes[algorithm] = hash_hex(algorithm, bytes);
  return {{"basename", name}, {"bytes", bytes.size()}, {"hashes", hashes}};
}

void Writer::Impl::flush() {
  if (ends.empty()) return;
  std::string raw;
  raw.reserve(shard_bytes(0, 0));
  const size_t begin = 4 * (ends.size() + 2) + config_text.size();
  put_u32(raw, ends.size());
  put_u32(raw, begin);
  for (const uint32_t end : ends) put_u32(raw, begin + end);
  raw += config_text;
  raw += samples;
  samples.clear();

  nlohmann::json shard = config;
  const std::string name = fmt::format("shard.{:05}.mds", shards.size());
  shard["samples"] = ends.size();
  shard["raw_data"] = describe(name, raw);
  shard["zip_data"] = nullptr;
  std::string file = name;
  if (options.zstd_level > 0) {
    raw = zstd(raw, options.zstd_level);
    file += ".zstd";
    shard["zip_data"] = describe(file, raw);
  }
  write_atomic(join_path(folder->path(), file), raw);
  written += raw.size();
  shards.push_back(std::move(shard));
  ends.clear();
}

Writer::Writer(const std::string& folder, const WriterOptions& options) : impl_(std::make_unique<Impl>()) {
  Impl& self = *impl_;
  self.options = options;
  check(options.sequence_length > 0 && options.sequence_length <= INT32_MAX / 64, "mds: rows of {} tokens",
        options.sequence_length);
  check(options.vocab_size > 0 && options.vocab_size <= INT32_MAX, "mds: vocabulary of {}", options.vocab_size);
  check(options.size_limit > 0 && options.size_limit < uint64_t{1} << 32, "mds: shards of {} bytes",
        options.size_limit);
  std::sort(self.options.hashes.begin(), self.options.hashes.end());  // as MosaicML demands
  for (const std::string& algorithm : options.hashes) check(known_hash(algorithm), "mds: hash {}", algorithm);
  if (exists(folder) && (!is_directory(folder) || !list_folder(folder).empty()))
    fail(Exit::kUsage, "{}: stands there already; take another folder, or remove it", folder);

  nlohmann::json names = {"document_lengths", "tokens"};
  if (options.labels) names = {"document_lengths", "labels", "tokens"};  // MosaicML sorts them
  self.config = {{"version", 2},
                 {"format", "mds"},
                 {"column_names", names},
                 {"column_encodings", std::vector<std::string>(names.size(), "ndarray:int32")},
                 {"column_sizes", std::vector<std::nullptr_t>(names.size())},
                 {"compression", nullptr},
                 {"hashes", self.options.hashes},
                 {"size_limit", options.size_limit}};
  if (options.zstd_level > 0) self.config["compression"] = fmt::format("zstd:{}", options.zstd_level);
  self.config_text = self.config.dump();

  self.folder = std::make_unique<NewFolder>(folder);
}

Writer::~Writer() = default;

int64_t Writer::rows() const { return impl_->rows; }
uint64_t Writer::bytes_written() const { return impl_->written; }

void Writer::add(std::span<const int32_t> ids, std::span<const int32_t> document_lengths,
                 std::span<const int32_t> labels) {
  Impl& self = *impl_;
  const int64_t length = self.options.sequence_length, vocab_size = self.options.vocab_size;
  check(static_cast<int64_t>(ids.size()) == length, "mds: a row of {} tokens, expected {}", ids.size(), length);
  for (const int32_t id : ids) check(id >= 0 && id < vocab_size, "mds: id {} of a vocabulary of {}", id, vocab_size);
  int64_t sum = 0;
  for (const int32_t each : document_lengths) {
    check(each > 0 && each <= length - sum, "mds: a document of {} tokens, expected 1 to {}", each, length - sum);
    sum += each;
    self.statistics.squared_lengths += static_cast<double>(each) * each;
  }
  check(sum == length, "mds: documents of {} tokens in a row of {}", sum, length);
  check(labels.size() == (self.options.labels ? ids.size() : 0), "mds: {} labels for {} tokens", labels.size(),
        ids.size());
  const auto segments = static_cast<int64_t>(document_lengths.size());
  self.statistics.segments += segments;
  self.statistics.most_segments = std::max(self.statistics.most_segments, segments);
  if (!self.options.labels) self.statistics.labels += length - segments;
  for (const int32_t label : labels) {
    check(label == kIgnoredLabel || (label >= 0 && label < vocab_size), "mds: label {} of a vocabulary of {}", label,
          vocab_size);
    self.statistics.labels += label != kIgnoredLabel;
  }

  std::vector<std::span<const int32_t>> columns = {document_lengths, ids};
  if (self.options.labels) columns = {document_lengths, labels, ids};
  size_t bytes = 0;
  for (const auto& column : columns) bytes += 4 + array_bytes(column.size());
  if (self.shard_bytes(1, bytes) > self.options.size_limit) self.flush();
  for (const auto& column : columns) put_u32(self.samples, array_bytes(column.size()));
  for (const auto& column : columns) put_array(self.samples, column);
  self.ends.push_back(static_cast<uint32_t>(self.samples.size()));
  ++self.rows;
}

void Writer::finish(Prepared prepared) {
  Impl& self = *impl_;
  check(!self.finished, "mds: {} is finished twice", self.folder->place());
  self.flush();
  check(self.rows > 0, "mds: {} has no row", self.folder->place());
  prepared.sequence_length = self.options.sequence_length;
  prepared.vocab_size = self.options.vocab_size;
  prepared.labels = self.options.labels;
  prepared.rows = self.rows;
  const int64_t padding = prepared.statistics.padding;
  prepared.statistics = self.statistics;
  prepared.statistics.padding = padding;
  prepared.tokens = self.rows * self.options.sequence_length - padding;
  write_atomic(join_path(self.folder->path(), kPreparedName), to_json(prepared));
  const nlohmann::json index = {{"version", 2}, {"shards", self.shards}};
  write_atomic(join_path(self.folder->path(), "index.json"), index.dump());
  self.folder->commit();
  self.finished = true;
}

}  // namespace mantissa::mds
