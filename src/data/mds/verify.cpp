#include "data/mds/verify.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/mds/checked.h"
#include "data/mds/hashes.h"
#include "data/mds/prepared.h"
#include "data/mds/row_layout.h"

namespace mantissa::mds {
namespace {

constexpr size_t kMaxProblems = 20;

// Offset of the first byte that is no UTF-8 (Unicode 15, table 3-7), or -1.
int64_t bad_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = byte(i);
    const size_t more = lead < 0x80 ? 0 : lead < 0xc2 ? 4 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : 4;
    if (more == 4) return static_cast<int64_t>(i);
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (size_t k = 1; k <= more; ++k)
      if (byte(i + k) < (k == 1 ? low : 0x80) || byte(i + k) > (k == 1 ? high : 0xbf)) return static_cast<int64_t>(i);
    i += more + 1;
  }
  return -1;
}

class Verifier {
 public:
  explicit Verifier(VerifyReport& report) : report_(report) {}

  void folder(const std::string& path) {
    const Folder folder = Folder::open(path);
    const bool described = read_prepared(path, prepared_);
    if (described && prepared_.rows != folder.samples())
      problem(fmt::format("{}: says {} rows, index.json {}", join_path(path, kPreparedName), prepared_.rows,
                          folder.samples()));
    std::unique_ptr<RowLayout> layout;
    if (described || folder.find("tokens") >= 0 || folder.find("input_ids") >= 0)
      layout = std::make_unique<RowLayout>(folder, TokenOptions{});
    sequence_length_ = described ? prepared_.sequence_length : 0;
    if (layout != nullptr) vocab_size_ = described ? prepared_.vocab_size : vocabulary_of(layout->ids_type());
    checked_ = std::make_unique<CheckedFiles>(folder);
    for (size_t s = 0; s < folder.shards().size() && report_.problems.size() < kMaxProblems; ++s)
      attempt([&] { shard(folder, s, layout.get()); });
    if (const std::string why = checked_->save(); !why.empty())
      note("that the checksums are right cannot be noted for training: " + why);
    if (described && report_.problems.empty()) compare_statistics(join_path(path, kPreparedName));
    if (layout != nullptr && report_.problems.empty())
      note(uneven_ ? "rows of different lengths"
                   : fmt::format("{} rows of {} tokens, segments by {}", folder.samples(), sequence_length_,
                                 layout->segments_by()));
    for (const Column& column : folder.columns())
      if (column.kind == Kind::kOther)
        note(fmt::format("column \"{}\": encoding \"{}\" is not known, its values are not checked",
                         printable(column.name), printable(column.encoding)));
    if (report_.hashes == 0) note("index.json gives no hash that is known here: damage inside a value goes unseen");
  }

  template <class Body>
  void attempt(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      problem(error.what());
    }
  }

 private:
  void problem(std::string text) { report_.problems.push_back(std::move(text)); }
  void note(std::string text) {
    if (said_.insert(text).second) report_.notes.push_back(std::move(text));
  }

  void check_hashes(const Folder& folder, const ShardEntry& shard, const FileEntry& file) {
    const FileState before = state_of(folder.path_of(file));
    const MappedFile mapped = MappedFile::open(folder.path_of(file), Links::kRefuse);
    const int64_t hashes = report_.hashes;
    for (const std::string& algorithm : shard.hashes)
      if (!file.hashes.contains(algorithm))
        fail(Exit::kInput, "{}: index.json names the hash {}, but gives none", mapped.path(), printable(algorithm));
    for (const auto& [algorithm, digits] : file.hashes) {
      if (!known_hash(algorithm)) {
        note(fmt::format("hash {} is not checked (known: {})", printable(algorithm), kKnownHashes));
        continue;
      }
      const std::string found = read_mapped(
          mapped, [&] { return hash_hex(algorithm, mapped.text()); }, [] { return "its hash"; });
      if (found != lower(digits))
        fail(Exit::kInput, "{}: {} is {}, index.json says {}", mapped.path(), algorithm, found, printable(digits));
      ++report_.hashes;
    }
    if (report_.hashes > hashes) checked_->add(file.basename, before);
  }

  void shard(const Folder& folder, size_t index, const RowLayout* layout) {
    const ShardEntry& entry = folder.shards()[index];
    const bool raw = entry.compression.empty() || exists(join_path(folder.path(), entry.raw.basename));
    const bool zip = !entry.compression.empty() && exists(join_path(folder.path(), entry.zip.basename));
    // Where both are there, both must be right: MosaicML keeps the unpacked one beside the other.
    const Shard shard = folder.open_shard(index);
    if (raw) check_hashes(folder, entry, entry.raw);
    if (zip) check_hashes(folder, entry, entry.zip);
    for (int64_t sample = 0; sample < shard.samples(); ++sample) {
      const auto values = [&] {
        for (size_t c = 0; c < folder.columns().size(); ++c)
          value(folder.columns()[c], shard, sample, static_cast<int>(c));
        if (layout != nullptr) row(*layout, shard, sample);
      };
      shard.read(values, [sample] { return fmt::format("sample {}", sample); });
    }
    ++report_.shards;
    report_.samples += shard.samples();
    report_.bytes += entry.raw.bytes;
  }

  void value(const Column& column, const Shard& shard, int64_t sample, int index) {
    switch (column.kind) {
      case Kind::kBytes:
      case Kind::kOther:
        shard.bytes(sample, index);
        return;
      case Kind::kScalar:
        shard.bytes(sample, index);
        return;
      case Kind::kArray:
      case Kind::kRawArray:
        shard.array(sample, index);
        return;
      case Kind::kText:
      case Kind::kNumeral:
        break;
    }
    const std::string_view text = shard.text(sample, index);
    if (const int64_t at = bad_utf8(text); at >= 0)
      fail(Exit::kInput, "{}: is no UTF-8 at byte {}", shard.where(sample, index), at);
    if (column.encoding == "json") parse_json(text, shard.where(sample, index));
    if (column.encoding == "str_int") shard.integer(sample, index);
    double number = 0;
    if (column.encoding == "str_float" && !parse_double(text, number))
      fail(Exit::kInput, "{}: \"{}\" is no number", shard.where(sample, index), printable(text, 40));
  }

  void row(const RowLayout& layout, const Shard& shard, int64_t sample) {
    const int64_t length = layout.length(shard, sample);
    if (sequence_length_ == 0) sequence_length_ = length;
    if (length != sequence_length_) {
      if (prepared_.sequence_length > 0)
        fail(Exit::kInput, "{}: sample {} has {} tokens, {} says {}", shard.name(), sample, length, kPreparedName,
             sequence_length_);
      uneven_ = true;
    }
    if (length == 0) fail(Exit::kInput, "{}: sample {} has no tokens", shard.name(), sample);
    batch_.clear();
    layout.append(shard, sample, length, vocab_size_, batch_);
    const auto segments = static_cast<int64_t>(batch_.segments.size()) - 1;
    statistics_.segments += segments;
    statistics_.most_segments = std::max(statistics_.most_segments, segments);
    statistics_.labels += batch_.valid_tokens;
    for (size_t s = 0; s + 1 < batch_.segments.size(); ++s) {
      const double size = batch_.segments[s + 1] - batch_.segments[s];
      statistics_.squared_lengths += size * size;
    }
  }

  void compare_statistics(const std::string& name) {
    const RowStatistics& said = prepared_.statistics;
    const auto differ = [&](const char* what, double found, double expected) {
      if (std::abs(found - expected) > 1e-9 * std::max(found, expected))
        problem(fmt::format("{}: statistics: {} is {}, the rows have {}", name, what, expected, found));
    };
    differ("segments", static_cast<double>(statistics_.segments), static_cast<double>(said.segments));
    differ("most_segments", static_cast<double>(statistics_.most_segments), static_cast<double>(said.most_segments));
    differ("squared_lengths", statistics_.squared_lengths, said.squared_lengths);
    differ("labels", static_cast<double>(statistics_.labels), static_cast<double>(said.labels));
    const int64_t tokens = prepared_.rows * prepared_.sequence_length - said.padding;
    if (tokens != prepared_.tokens)
      problem(fmt::format("{}: {} tokens, but rows less padding have {}", name, prepared_.tokens, tokens));
  }

  VerifyReport& report_;
  std::unique_ptr<CheckedFiles> checked_;
  Prepared prepared_;
  RowStatistics statistics_;
  int64_t sequence_length_ = 0, vocab_size_ = 0;
  bool uneven_ = false;
  std::set<std::string> said_;
  Batch batch_;
};

}  // namespace

VerifyReport verify(const std::string& folder) {
  VerifyReport report;
  Verifier verifier(report);
  verifier.attempt([&] { verifier.folder(folder); });
  return report;
}

}  // namespace mantissa::mds
