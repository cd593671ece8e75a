#include "data/ingest.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "base/file.h"
#include "base/signal.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;

// Hands out given texts; fails at one record where it is told to.
class GivenRecords final : public RecordReader {
 public:
  explicit GivenRecords(std::vector<std::string> texts, size_t fail_at = SIZE_MAX)
      : texts_(std::move(texts)), fail_at_(fail_at) {}
  bool next(Record& record) override {
    if (at_ == fail_at_) fail(Exit::kInput, "record {} is broken", at_);
    if (at_ == texts_.size()) return false;
    record.texts = {texts_[at_]};
    record.where = fmt::format("given:{}", at_);
    ++at_;
    return true;
  }
  double progress() const override { return static_cast<double>(at_) / static_cast<double>(texts_.size()); }
  void finish() override {}
  const std::vector<SourceFile>& files() const override { return files_; }
  const SourcePackage& package() const override { return package_; }
  size_t handed_out() const { return at_; }

 private:
  std::vector<std::string> texts_;
  size_t fail_at_, at_ = 0;
  std::vector<SourceFile> files_;
  SourcePackage package_;
};

// Many chunks of records: short, empty, and some larger than a chunk.
std::vector<std::string> many_texts(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::string> texts;
  for (int i = 0; i < 6000; ++i) {
    const size_t length = i % 17 == 0 ? 0 : i % 1500 == 7 ? 700'000 : 1 + random() % 400;
    texts.push_back(std::string(length, static_cast<char>('a' + i % 26)));
    if (length > 0) texts.back() += std::to_string(i);
  }
  return texts;
}

struct Ingested {
  std::vector<int32_t> tokens;
  std::vector<int64_t> begins;
  EncodeCounts counts;
};

Ingested run(RecordReader& reader, const DataConfig& config, ProgressHook progress = {}) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  const DocumentEncoder encoder(config, tokenizer);
  Corpus corpus(256);
  Ingested result;
  result.counts =
      ingest(reader, encoder, tokenizer,
             {.max_documents = config.max_documents, .what = "given", .progress = std::move(progress)}, corpus);
  corpus.finish();
  result.tokens.resize(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, result.tokens);
  for (int64_t d = 0; d <= corpus.documents(); ++d) result.begins.push_back(corpus.begin(d));
  return result;
}

// What one thread without chunks gives.
Ingested expected(const std::vector<std::string>& texts, int64_t min_bytes, int64_t most) {
  Ingested result;
  for (const std::string& text : texts) {
    if (most > 0 && result.counts.documents == most) break;
    if (text.empty()) {
      ++result.counts.empty;
    } else if (static_cast<int64_t>(text.size()) < min_bytes) {
      ++result.counts.short_ones;
    } else {
      result.begins.push_back(static_cast<int64_t>(result.tokens.size()));
      for (const char c : text) result.tokens.push_back(static_cast<uint8_t>(c));
      result.tokens.push_back(0);
      ++result.counts.documents;
      result.counts.text_bytes += static_cast<int64_t>(text.size());
    }
  }
  result.begins.push_back(static_cast<int64_t>(result.tokens.size()));
  result.counts.tokens = static_cast<int64_t>(result.tokens.size());
  return result;
}

void expect_same(const Ingested& got, const Ingested& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.begins, want.begins);
  EXPECT_EQ(got.counts.documents, want.counts.documents);
  EXPECT_EQ(got.counts.empty, want.counts.empty);
  EXPECT_EQ(got.counts.short_ones, want.counts.short_ones);
  EXPECT_EQ(got.counts.text_bytes, want.counts.text_bytes);
  EXPECT_EQ(got.counts.tokens, want.counts.tokens);
}

TEST(Ingest, KeepsTheOrderOfTheRecords) {
  const std::vector<std::string> texts = many_texts(1);
  DataConfig config;
  config.min_document_bytes = 20;
  for (int trial = 0; trial < 3; ++trial) {
    GivenRecords reader(texts);
    expect_same(run(reader, config), expected(texts, 20, 0));
  }
}

TEST(Ingest, TakesExactlyTheFirstDocuments) {
  const std::vector<std::string> texts = many_texts(2);
  for (const int64_t most : {1, 2, 963, 964, 965, 3000, 5646, 5647, 9000}) {
    SCOPED_TRACE(most);
    DataConfig config;
    config.max_documents = most;
    GivenRecords reader(texts);
    expect_same(run(reader, config), expected(texts, 0, most));
  }
  // What is not wanted is not read to the end.
  DataConfig config;
  config.max_documents = 10;
  GivenRecords reader(std::vector<std::string>(200'000, "words"));
  run(reader, config);
  EXPECT_LT(reader.handed_out(), 150'000u);
}

TEST(Ingest, NoRecordsNoDocuments) {
  GivenRecords reader({});
  expect_same(run(reader, {}), expected({}, 0, 0));
}

// The first bad record in their order, though threads meet them in any order.
TEST(Ingest, ThrowsTheFirstError) {
  std::vector<std::string> texts = many_texts(3);
  for (int trial = 0; trial < 5; ++trial) {
    GivenRecords broken(texts, 4321);
    EXPECT_EQ(error_of(Exit::kInput, [&] { run(broken, {}); }), "record 4321 is broken");
  }
  texts[2000] = std::string("a\0b", 3);
  texts[3000] = std::string("\0", 1);
  for (int trial = 0; trial < 5; ++trial) {
    GivenRecords broken(texts, 4321);
    const std::string message = error_of(Exit::kInput, [&] { run(broken, {}); });
    EXPECT_TRUE(message.starts_with("given:2000: ")) << message;
  }
  // Behind the last one that is wanted nothing is looked at.
  DataConfig config;
  config.max_documents = 1000;
  GivenRecords enough(texts, 4321);
  EXPECT_EQ(run(enough, config).counts.documents, 1000);
}

TEST(Ingest, TellsHowFarItIs) {
  GivenRecords reader(std::vector<std::string>(60, std::string(600'000, 'x')));
  double last = 0;
  run(reader, {}, [&](const IngestProgress& p) {
    EXPECT_EQ(p.what, "given");
    EXPECT_GE(p.share, last);
    EXPECT_LE(p.share, 1);
    EXPECT_GT(p.documents, 0);
    EXPECT_EQ(p.text_bytes, p.documents * 600'000);
    last = p.share;
  });
}

TEST(Ingest, StopsAtASignal) {
  catch_stop_signals();
  GivenRecords reader(many_texts(4));
  ASSERT_EQ(raise(SIGTERM), 0);
  const std::string message = error_of(Exit::kInterrupted, [&] { run(reader, {}); });
  clear_stop_signal();
  EXPECT_NE(message.find("stopped by SIGTERM while reading given"), std::string::npos) << message;
}

// Millions of empty lines are one call of next(): how far it is shows all the same, and a stop signal ends it.
TEST(Ingest, ProgressAndStopWhereARecordTakesLong) {
  mantissa::testing::TempFolder folder;
  {
    // 80 MB of line ends in 0.2 MB.
    const std::string lines(size_t{1} << 20, '\n');
    std::string frame(ZSTD_compressBound(lines.size()), '\0'), all;
    frame.resize(ZSTD_compress(frame.data(), frame.size(), lines.data(), lines.size(), 1));
    // A frame that is skipped (RFC 8878, 3.1.2) behind each makes the file large enough for what it holds.
    const uint32_t skipped[2] = {0x184D2A50, 2000};
    for (int i = 0; i < 80; ++i)
      all.append(frame).append(reinterpret_cast<const char*>(skipped), sizeof(skipped)).append(skipped[1], 'x');
    write_atomic(folder / "empty.txt.zst", all);
  }
  DataConfig config;
  const Source source = find_source(folder / "empty.txt.zst", "", config);
  const auto reader = open_records(source, {.columns = {"text"}, .messages = ""}, config);
  std::vector<double> shares;
  run(*reader, config, [&](const IngestProgress& p) { shares.push_back(p.share); });
  ASSERT_GE(shares.size(), 1u);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares.back(), 0.05);

  catch_stop_signals();
  const auto again = open_records(source, {.columns = {"text"}, .messages = ""}, config);
  Record record;
  ASSERT_EQ(raise(SIGINT), 0);
  error_of(Exit::kInterrupted, [&] { again->next(record); });
  clear_stop_signal();
}

}  // namespace
}  // namespace mantissa
