#include "data/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>

#include "base/file.h"
#include "base/signal.h"
#include "data/leftovers.h"
#include "data/mds/prepared.h"
#include "data/mds/verify.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    std::mt19937 random(5);
    std::string text, pairs;
    for (int i = 0; i < 400; ++i) {
      std::string words;
      for (size_t n = 1 + random() % 60; n > 0; --n) words += static_cast<char>('a' + random() % 26);
      text += words + "\n";
      pairs += "{\"q\": \"" + words + "\", \"a\": \"" + words.substr(0, 9) + "!\"}\n";
    }
    write_atomic(folder_ / "a.txt", text);
    write_atomic(folder_ / "pairs.jsonl", pairs);
  }

  DataConfig config(const std::string& packing, bool pairs = false) const {
    DataConfig c;
    c.train = folder_ / (pairs ? "pairs.jsonl" : "a.txt");
    if (pairs) c.prompt_key = "q", c.response_key = "a";
    c.document_separator = "line";
    c.sequence_length = 64;
    c.validation_fraction = 0.1;
    c.packing = packing;
    return c;
  }
  DataConfig prepared_config(int64_t sequence_length = 64) const {
    DataConfig c;
    c.train = folder_ / "out", c.split = "train", c.validation_split = "validation";
    c.sequence_length = sequence_length;
    return c;
  }
  bool nothing_but_sources() const {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) files += !entry.path().empty();
    return files == 2;
  }

  TempFolder folder_;
};

void expect_same_batches(const Dataset& a, const Dataset& b) {
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    ASSERT_EQ(a.rows(split), b.rows(split));
    ASSERT_GT(a.rows(split), 0);
    Batch x, y;
    const int64_t samples = a.rows(split) * (split == Split::kTrain ? 2 : 1);
    for (int64_t k = 0; k < samples; ++k) {
      a.batch(split, k, 1, x);
      b.batch(split, k, 1, y);
      ASSERT_EQ(x.ids, y.ids);
      ASSERT_EQ(x.labels, y.labels);
      ASSERT_EQ(x.positions, y.positions);
      ASSERT_EQ(x.segments, y.segments);
      ASSERT_EQ(x.valid_tokens, y.valid_tokens);
    }
  }
}

std::vector<std::vector<int32_t>> sorted_rows(const Dataset& data) {
  std::vector<std::vector<int32_t>> rows;
  Batch batch;
  for (int64_t k = 0; k < data.rows(Split::kTrain); ++k) {
    data.batch(Split::kTrain, k, 1, batch);
    rows.push_back(batch.ids);
    rows.back().insert(rows.back().end(), batch.labels.begin(), batch.labels.end());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST_F(PrepareTest, TrainingOnItDrawsTheBatchesOfTheSource) {
  for (const auto& [packing, pairs] :
       std::map<std::string, bool>{{"truncate", false}, {"best_fit", true}, {"none", true}})
    for (const bool small_shards : {false, true}) {
      SCOPED_TRACE(packing);
      const DataConfig source = config(packing, pairs);
      const PrepareReport report =
          prepare(source, {.out = folder_ / "out", .seed = 9, .shard_bytes = small_shards ? 4096u : 1u << 26});
      const Dataset direct = Dataset::load(source, 9), mapped = Dataset::load(prepared_config(), 9);
      expect_same_batches(direct, mapped);
      EXPECT_EQ(sorted_rows(Dataset::load(prepared_config(), 10)), sorted_rows(direct)) << "another seed, other rows";

      const SplitReport &a = direct.report().train, &b = mapped.report().train;
      EXPECT_EQ(a.padding, b.padding);
      EXPECT_EQ(a.labels, b.labels);
      EXPECT_EQ(a.documents, b.documents);
      EXPECT_EQ(a.segments, b.segments);
      EXPECT_DOUBLE_EQ(a.segment_length, b.segment_length);
      EXPECT_DOUBLE_EQ(direct.report().unigram_entropy, mapped.report().unigram_entropy);
      EXPECT_FALSE(mapped.report().entropy_sampled);
      EXPECT_EQ(mapped.vocab_size(), 256);
      EXPECT_EQ(mapped.eos(), 0);
      ASSERT_NE(mapped.tokenizer(), nullptr);
      EXPECT_TRUE(mapped.tokenizer()->is_bytes());
      EXPECT_EQ(report.data.train.rows, a.rows);
      for (const char* split : {"train", "validation"}) {
        const mds::VerifyReport verified = mds::verify(join_path(folder_ / "out", split));
        EXPECT_TRUE(verified.problems.empty()) << verified.problems.front();
      }
      std::filesystem::remove_all(folder_ / "out");
    }
}

TEST_F(PrepareTest, WritesDownWhatHappened) {
  DataConfig c = config("best_fit");
  c.min_document_bytes = 10;
  const PrepareReport report = prepare(c, {.out = folder_ / "out"});
  mds::Prepared written;
  ASSERT_TRUE(mds::read_prepared(folder_ / "out/train", written));
  EXPECT_EQ(written.tokenizer, "bytes");
  EXPECT_EQ(written.eos, 0);
  EXPECT_EQ(written.packing, "best_fit");
  EXPECT_EQ(written.documents, report.data.train.documents);
  EXPECT_EQ(written.tokens, report.data.train.tokens - report.data.train.padding);
  EXPECT_GT(report.data.counts.short_ones, 0);
  EXPECT_EQ(written.counts.at("short"), report.data.counts.short_ones);
  ASSERT_EQ(written.sources.size(), 1u);
  EXPECT_EQ(written.sources[0].path, c.train);
  EXPECT_EQ(report.data.train.documents + report.data.validation.documents, report.data.counts.documents);
  EXPECT_GT(report.bytes_written, 0u);
}

TEST_F(PrepareTest, PacksFilesOfTokensAnew) {
  DataConfig c = config("truncate");
  c.validation_fraction = 0;
  prepare(c, {.out = folder_ / "first"});
  // All tokens but the first packing's tail, in rows of another length.
  DataConfig again = prepared_config(48);
  again.train = folder_ / "first", again.validation_split.clear(), again.validation_fraction = 0;
  again.packing = "best_fit";
  const PrepareReport report = prepare(again, {.out = folder_ / "second"});
  std::map<int32_t, int64_t> before, after;
  Batch batch;
  DataConfig one = prepared_config(64), two = prepared_config(48);
  one.train = folder_ / "first", two.train = folder_ / "second";
  for (DataConfig* each : {&one, &two}) {
    each->validation_split.clear(), each->validation_fraction = 0;
    const Dataset data = Dataset::load(*each, 1);
    for (int64_t row = 0; row < data.rows(Split::kTrain); ++row) {
      batch.clear();
      data.source(Split::kTrain)->append_row(row, batch);
      for (const int32_t id : batch.ids) ++(each == &one ? before : after)[id];
    }
  }
  // A remainder of one token is left out; padding is EOS, 0.
  EXPECT_GT(before['a'], 0);
  int64_t missing = 0;
  for (int32_t id = 'a'; id <= 'z'; ++id) missing += before[id] - after[id];
  missing += before[0] - (after[0] - report.data.train.padding);
  EXPECT_EQ(missing, report.data.train.dropped_tokens);
  EXPECT_EQ(report.data.counts.text_bytes, 0);
}

TEST_F(PrepareTest, SplitsNanogptFilesAtTheGivenEos) {
  std::string bytes;
  const auto put = [&bytes](uint16_t id) { bytes.append(reinterpret_cast<const char*>(&id), 2); };
  for (uint16_t d = 0; d < 50; ++d) {
    for (uint16_t i = 0; i < 5 + d % 7; ++i) put(static_cast<uint16_t>(100 + d));
    put(999);
  }
  write_atomic(folder_ / "train.bin", bytes);
  DataConfig c;
  c.train = folder_ / "train.bin";
  c.eos_token = "999";
  c.sequence_length = 16;
  c.packing = "best_fit";
  c.validation_fraction = 0;
  const PrepareReport report = prepare(c, {.out = folder_ / "out"});
  EXPECT_EQ(report.data.train.documents, 50);
  EXPECT_EQ(report.vocab_size, 1000) << "the largest id and one";
  EXPECT_EQ(report.data.train.cut_documents, 0);
}

TEST_F(PrepareTest, WhatKilledRunsLeftIsRemovedAndNamed) {
  const std::string killed = folder_ / "out.tmp-123", foreign = folder_ / "out.tmp-7", other = folder_ / "out.tmp-x",
                    linked = folder_ / "out.tmp-8";
  for (const std::string& each : {killed, foreign, other}) std::filesystem::create_directories(each + "/train");
  write_atomic(killed + "/.mantissa-prepare", "");
  write_atomic(killed + "/train/shard.00000.mds", "x");
  write_atomic(foreign + "/notes.txt", "x");
  write_atomic(other + "/.mantissa-prepare", "");
  std::filesystem::create_directory_symlink(other, linked);
  const PrepareReport report = prepare(config("truncate"), {.out = folder_ / "out"});
  EXPECT_EQ(report.leftovers,
            (std::vector<std::string>{killed + ": removed, what a prepare that was killed left there",
                                      foreign + ": left, it holds no lock file of a prepare; remove it if it is one"}));
  EXPECT_FALSE(exists(killed));
  for (const std::string& each : {foreign + "/notes.txt", other + "/.mantissa-prepare", linked})
    EXPECT_TRUE(exists(each)) << each;
  EXPECT_FALSE(exists(folder_ / "out/.mantissa-prepare"));
}

TEST_F(PrepareTest, AnotherPrepareIsLeftAlone) {
  const std::string filled = folder_ / "out.tmp-99";
  std::filesystem::create_directories(filled);
  FillLock lock(filled);
  EXPECT_EQ(remove_leftovers(folder_ / "out/"),
            (std::vector<std::string>{filled + ": left, another prepare is writing it"}));
  EXPECT_TRUE(exists(filled));
  lock.release();
  EXPECT_FALSE(exists(filled + "/.mantissa-prepare"));
}

TEST_F(PrepareTest, LeavesNothingBehind) {
  std::filesystem::create_directory(folder_ / "out");
  const std::string message = error_of(Exit::kUsage, [&] { prepare(config("truncate"), {.out = folder_ / "out/"}); });
  EXPECT_NE(message.find("stands there already"), std::string::npos) << message;
  std::filesystem::remove(folder_ / "out");

  DataConfig missing = config("truncate");
  missing.train = folder_ / "none.txt";
  error_of(Exit::kInput, [&] { prepare(missing, {.out = folder_ / "out"}); });
  DataConfig cut = config("truncate", true);
  error_of(Exit::kUsage, [&] { prepare(cut, {.out = folder_ / "out"}); });
  EXPECT_TRUE(nothing_but_sources());

  catch_stop_signals();
  ASSERT_EQ(raise(SIGINT), 0);
  error_of(Exit::kInterrupted, [&] { prepare(config("truncate"), {.out = folder_ / "out"}); });
  clear_stop_signal();
  EXPECT_TRUE(nothing_but_sources());
  // Between the rows of training and those of validation.
  error_of(Exit::kInterrupted, [&] {
    prepare(config("truncate"), {.out = folder_ / "out", .writing = [](int64_t row, int64_t of) {
                                   if (row == of && raise(SIGINT) != 0) ADD_FAILURE();
                                 }});
  });
  clear_stop_signal();
  EXPECT_TRUE(nothing_but_sources());
}

}  // namespace
}  // namespace mantissa
