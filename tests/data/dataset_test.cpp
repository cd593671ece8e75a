#include "data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <set>

#include "base/file.h"
#include "base/sha256.h"
#include "data/mds/writer.h"
#include "data/permutation.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

// Documents of random lengths whose bytes tell them apart; one a line.
std::vector<std::string> random_documents(size_t count, size_t longest, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::string> documents;
  for (size_t i = 0; i < count; ++i) {
    std::string text = std::to_string(i) + ":";
    const size_t length = 1 + random() % longest;
    while (text.size() < length) text += static_cast<char>('a' + random() % 26);
    documents.push_back(text);
  }
  return documents;
}

class DatasetTest : public ::testing::Test {
 protected:
  DataConfig config_of(const std::vector<std::string>& documents, int64_t sequence_length) {
    std::string text;
    for (const std::string& document : documents) text += document + "\n";
    write_atomic(folder_ / "train.txt", text);
    DataConfig config;
    config.train = folder_ / "train.txt";
    config.document_separator = "line";
    config.sequence_length = sequence_length;
    return config;
  }

  TempFolder folder_;
};

bool same(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.ids == b.ids && a.labels == b.labels && a.positions == b.positions &&
         a.segments == b.segments && a.valid_tokens == b.valid_tokens;
}

// What semantics says of every batch, whatever the documents are.
void expect_rules(const Batch& batch, int64_t sequence_length) {
  const auto total = static_cast<size_t>(batch.rows * sequence_length);
  ASSERT_EQ(batch.ids.size(), total);
  ASSERT_EQ(batch.labels.size(), total);
  ASSERT_EQ(batch.positions.size(), total);
  ASSERT_GE(batch.segments.size(), 2u);
  EXPECT_EQ(batch.segments.front(), 0);
  EXPECT_EQ(batch.segments.back(), static_cast<int32_t>(total));
  for (int64_t row = 0; row < batch.rows; ++row)
    EXPECT_TRUE(
        std::binary_search(batch.segments.begin(), batch.segments.end(), static_cast<int32_t>(row * sequence_length)))
        << "row " << row << " does not begin a segment";
  int64_t valid = 0;
  for (size_t s = 0; s + 1 < batch.segments.size(); ++s) {
    const int32_t begin = batch.segments[s], end = batch.segments[s + 1];
    ASSERT_LT(begin, end);
    for (int32_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_EQ(batch.positions[at], i - begin);
      ASSERT_EQ(batch.labels[at], i + 1 < end ? batch.ids[at + 1] : kIgnoredLabel);
      valid += i + 1 < end;
      // The separator closes a segment, so nothing behind it is attended together with what stands before it.
      if (batch.ids[at] == 0) {
        ASSERT_EQ(i + 1, end);
      }
    }
  }
  EXPECT_EQ(batch.valid_tokens, valid);
}

TEST(Permutation, VisitsEveryElementOnce) {
  for (const uint64_t n : {1u, 2u, 3u, 4u, 5u, 15u, 16u, 17u, 100u, 1000u, 4097u}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const Permutation order(n, seed, 1, 0);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t at = order(i);
        ASSERT_LT(at, n);
        ASSERT_FALSE(seen[at]);
        seen[at] = true;
      }
    }
  }
}

TEST(Permutation, SeedStreamAndEpochGiveOtherOrders) {
  const auto order = [](uint64_t seed, uint32_t stream, uint32_t epoch) {
    const Permutation p(1000, seed, stream, epoch);
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < 1000; ++i) all.push_back(p(i));
    return all;
  };
  EXPECT_EQ(order(1, 2, 3), order(1, 2, 3));
  EXPECT_NE(order(1, 2, 3), order(2, 2, 3));
  EXPECT_NE(order(1, 2, 3), order(1 + (uint64_t{1} << 40), 2, 3));
  EXPECT_NE(order(1, 2, 3), order(1, 3, 3));
  EXPECT_NE(order(1, 2, 3), order(1, 2, 4));
}

// Each element lands in each eighth of the range about equally often over seeds: chi-square with 7 degrees of freedom.
TEST(Permutation, SpreadsElementsEvenly) {
  constexpr int kSeeds = 4000;
  for (const uint64_t element : {0u, 1u, 499u, 999u}) {
    int counts[8] = {};
    for (int seed = 0; seed < kSeeds; ++seed)
      ++counts[Permutation(1000, static_cast<uint64_t>(seed), 0, 0)(element) / 125];
    double chi = 0;
    for (const int count : counts) chi += std::pow(count - kSeeds / 8.0, 2) / (kSeeds / 8.0);
    EXPECT_LT(chi, 29.9) << "element " << element;  // p = 0.0001
  }
}

TEST_F(DatasetTest, RowsComeBackWholeInEachPass) {
  const DataConfig config = config_of(random_documents(300, 60, 1), 32);
  const Dataset data = Dataset::load(config, 5);
  const int64_t rows = data.rows(Split::kTrain);
  ASSERT_GT(rows, 100);
  std::vector<std::vector<int32_t>> first, second;
  Batch batch;
  for (int64_t k = 0; k < 2 * rows; ++k) {
    data.batch(Split::kTrain, k, 1, batch);
    expect_rules(batch, 32);
    (k < rows ? first : second).push_back(batch.ids);
  }
  EXPECT_NE(first, second) << "the second pass has the order of the first";
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

TEST_F(DatasetTest, AnyBatchLayoutDrawsTheSameSamples) {
  const Dataset data = Dataset::load(config_of(random_documents(200, 60, 2), 16), 9);
  Batch one, many;
  data.batch(Split::kTrain, 11, 8, many);
  expect_rules(many, 16);
  std::vector<int32_t> ids, labels, positions;
  int64_t valid = 0;
  for (int64_t k = 11; k < 19; ++k) {
    data.batch(Split::kTrain, k, 1, one);
    ids.insert(ids.end(), one.ids.begin(), one.ids.end());
    labels.insert(labels.end(), one.labels.begin(), one.labels.end());
    positions.insert(positions.end(), one.positions.begin(), one.positions.end());
    valid += one.valid_tokens;
  }
  EXPECT_EQ(many.ids, ids);
  EXPECT_EQ(many.labels, labels);
  EXPECT_EQ(many.positions, positions);
  EXPECT_EQ(many.valid_tokens, valid);
}

TEST_F(DatasetTest, AJumpOfTheCursorEqualsTheWalk) {
  const DataConfig config = config_of(random_documents(200, 60, 3), 16);
  const Dataset data = Dataset::load(config, 9), again = Dataset::load(config, 9);
  const int64_t far = 5 * data.rows(Split::kTrain) + 7;
  Batch walked, jumped;
  for (int64_t k = 0; k <= far; ++k) data.batch(Split::kTrain, k, 1, walked);
  again.batch(Split::kTrain, far, 1, jumped);
  EXPECT_TRUE(same(walked, jumped));
}

TEST_F(DatasetTest, TheSeedDecides) {
  const DataConfig config = config_of(random_documents(200, 60, 4), 16);
  Batch a, b, c;
  Dataset::load(config, 1).batch(Split::kTrain, 0, 20, a);
  Dataset::load(config, 1).batch(Split::kTrain, 0, 20, b);
  Dataset::load(config, 2).batch(Split::kTrain, 0, 20, c);
  EXPECT_TRUE(same(a, b));
  EXPECT_NE(a.ids, c.ids);
}

TEST_F(DatasetTest, BatchesDoNotAllocateAgain) {
  const Dataset data = Dataset::load(config_of(random_documents(200, 60, 4), 16), 1);
  Batch batch;
  data.batch(Split::kTrain, 0, 4, batch);
  const auto* ids = batch.ids.data();
  const auto* segments = batch.segments.data();
  for (int64_t k = 4; k < 400; k += 4) data.batch(Split::kTrain, k, 4, batch);
  EXPECT_EQ(batch.ids.data(), ids);
  EXPECT_EQ(batch.segments.data(), segments);
}

// The first document number of a row's ids, from "123:abc".
std::set<std::string> documents_in(const Dataset& data, Split split) {
  std::set<std::string> found;
  Batch batch;
  for (int64_t row = 0; row < data.rows(split); ++row) {
    data.batch(split, row, 1, batch);
    for (size_t s = 0; s + 1 < batch.segments.size(); ++s) {
      std::string text;
      for (int32_t i = batch.segments[s]; i < batch.segments[s + 1]; ++i)
        text += static_cast<char>(batch.ids[static_cast<size_t>(i)]);
      if (const size_t colon = text.find(':'); colon != std::string::npos && text[0] != ':')
        found.insert(text.substr(0, colon));
    }
  }
  return found;
}

TEST_F(DatasetTest, ValidationIsSplitByDocument) {
  // Documents of 11 bytes and a separator, rows of 12: every row is one whole document.
  std::vector<std::string> documents;
  for (int i = 0; i < 400; ++i) documents.push_back(fmt::format("{:04}:abcdef", i));
  DataConfig config = config_of(documents, 12);
  config.validation_fraction = 0.1;
  const Dataset data = Dataset::load(config, 3);
  EXPECT_EQ(data.report().train.documents, 360);
  EXPECT_EQ(data.report().validation.documents, 40);
  EXPECT_EQ(data.report().train.segment_length, 12);
  const std::set<std::string> train = documents_in(data, Split::kTrain), held = documents_in(data, Split::kValidation);
  EXPECT_EQ(train.size(), 360u);
  EXPECT_EQ(held.size(), 40u);
  for (const std::string& document : held) EXPECT_FALSE(train.contains(document)) << document;
  EXPECT_NE(held, documents_in(Dataset::load(config, 4), Split::kValidation));
  EXPECT_NE(*held.rbegin(), "0039") << "the split is not drawn";

  config.validation_fraction = 0;
  EXPECT_EQ(Dataset::load(config, 3).rows(Split::kValidation), 0);
  Batch batch;
  error_of(Exit::kInternal, [&] { data.batch(Split::kValidation, 0, 41, batch); });
}

TEST_F(DatasetTest, ADocumentThatCannotBeSplitIsSaid) {
  DataConfig config = config_of({std::string(200, 'x')}, 12);
  config.validation_fraction = 0.1;
  const Dataset data = Dataset::load(config, 3);
  EXPECT_EQ(data.rows(Split::kValidation), 0);
  ASSERT_EQ(data.report().notes.size(), 1u);
  EXPECT_EQ(data.report().notes[0],
            "no validation rows, so no evaluation: a share (data.validation_fraction 0.1) of one document cannot be "
            "kept; give data.validation, or part the text into documents (data.document_separator)");
  config.validation_fraction = 0;  // none was asked for
  EXPECT_TRUE(Dataset::load(config, 3).report().notes.empty());
}

TEST_F(DatasetTest, ATextInThousandsOfDocumentsIsSaid) {
  std::string book;
  for (int i = 0; i < 2500; ++i) book += "A short paragraph.\n\n";
  write_atomic(folder_ / "book.txt", book);
  DataConfig config;
  config.train = folder_ / "book.txt";
  config.sequence_length = 64;
  const Dataset data = Dataset::load(config, 3);
  ASSERT_EQ(data.report().notes.size(), 1u);
  EXPECT_EQ(data.report().notes[0],
            "blank lines part one file of text into 2,500 documents of 19 tokens on average "
            "(data.document_separator: blank-line); none takes a file as one document");
  config.document_separator = "none";
  config.validation_fraction = 0;
  EXPECT_TRUE(Dataset::load(config, 3).report().notes.empty());
  config.document_separator = "blank-line";
  config.max_documents = 1500;
  EXPECT_TRUE(Dataset::load(config, 3).report().notes.empty());
}

TEST_F(DatasetTest, CutExamplesAreCountedAsExamples) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"q\": \"1234\", \"a\": \"" + std::string(i < 3 ? 100 : 4, 'x') + "\"}\n";
  write_atomic(folder_ / "pairs.jsonl", lines);
  DataConfig config;
  config.train = folder_ / "pairs.jsonl";
  config.prompt_key = "q", config.response_key = "a";
  config.packing = "best_fit";
  config.sequence_length = 32;
  config.validation_fraction = 0;
  // 4 bytes and a line break, then 100 and EOS: 74 do not fit.
  EXPECT_EQ(left_out(Dataset::load(config, 3).report()),
            (std::vector<std::string>{"222 tokens of 3 examples cut at data.sequence_length"}));
}

TEST_F(DatasetTest, ValidationFromItsOwnFile) {
  DataConfig config = config_of({"aaaa", "bbbb", "cccc"}, 5);
  write_atomic(folder_ / "held.txt", "dddd\neeee\n");
  config.validation = folder_ / "held.txt";
  const Dataset data = Dataset::load(config, 1);
  EXPECT_EQ(data.rows(Split::kTrain), 3);
  EXPECT_EQ(data.rows(Split::kValidation), 2);
  ASSERT_EQ(data.report().files.size(), 2u);
  EXPECT_EQ(data.report().files[1].sha256, sha256("dddd\neeee\n"));
}

TEST_F(DatasetTest, WithoutSeparatorDocumentsStillDoNotMeet) {
  DataConfig config = config_of({"aaaa", "bbbb", "cccc"}, 6);
  config.append_eos = false;
  config.validation_fraction = 0;
  const Dataset data = Dataset::load(config, 1);
  ASSERT_EQ(data.rows(Split::kTrain), 2);
  Batch batch;
  data.batch(Split::kTrain, 0, 2, batch);
  for (size_t s = 0; s + 1 < batch.segments.size(); ++s)
    for (int32_t i = batch.segments[s]; i + 1 < batch.segments[s + 1]; ++i)
      EXPECT_EQ(batch.ids[static_cast<size_t>(i)], batch.ids[static_cast<size_t>(i) + 1]);
}

TEST_F(DatasetTest, ReportsWhatItHolds) {
  DataConfig config = config_of({"ab", "ba", "abab"}, 5);
  config.validation_fraction = 0;
  const Dataset data = Dataset::load(config, 1);
  const DataReport& report = data.report();
  EXPECT_EQ(data.vocab_size(), 256);
  EXPECT_EQ(report.train.documents, 3);
  EXPECT_EQ(report.train.rows, 2);
  EXPECT_EQ(report.train.tokens, 10);
  EXPECT_EQ(report.train.dropped_tokens, 1);
  EXPECT_EQ(report.format, "text");
  ASSERT_EQ(report.files.size(), 1u);
  EXPECT_EQ(report.files[0].bytes, 11u);
  EXPECT_EQ(report.files[0].sha256, sha256("ab\nba\nabab\n"));
  // Of the 10 tokens kept, the last separator is dropped: 4 a, 4 b, 2 separators.
  EXPECT_NEAR(report.unigram_entropy, -0.8 * std::log(0.4) - 0.2 * std::log(0.2), 1e-12);
}

TEST_F(DatasetTest, RefusesWhatFillsNoRow) {
  DataConfig config = config_of({"abc"}, 64);
  EXPECT_EQ(error_of(Exit::kInput, [&] { Dataset::load(config, 1); }),
            config.train + ": training: 1 documents give 4 tokens, fewer than one row of 64 (data.sequence_length)");
  config = config_of(std::vector<std::string>(100, std::string(10, 'x')), 64);
  EXPECT_EQ(
      error_of(Exit::kInput, [&] { Dataset::load(config, 1); }),
      config.train +
          ": validation (data.validation_fraction): 1 documents give 11 tokens, fewer than one row of 64 "
          "(data.sequence_length); a larger fraction, a smaller data.sequence_length or data.validation gives rows, "
          "0 goes without");
  error_of(Exit::kUsage, [] { Dataset::load({}, 1); });
  config.train = folder_ / "none.txt";
  EXPECT_EQ(error_of(Exit::kInput, [&] { Dataset::load(config, 1); }),
            "data: " + config.train + ": no such file or folder");
}

TEST_F(DatasetTest, BestFitAndNonePadRows) {
  DataConfig config = config_of(random_documents(300, 60, 6), 48);
  config.validation_fraction = 0;
  for (const char* packing : {"best_fit", "none"}) {
    config.packing = packing;
    const Dataset data = Dataset::load(config, 1);
    const SplitReport& report = data.report().train;
    EXPECT_GT(report.padding, 0);
    EXPECT_EQ(report.tokens - report.padding + report.dropped_tokens, data.report().counts.tokens);
    Batch batch;
    int64_t labels = 0;
    for (int64_t k = 0; k < data.rows(Split::kTrain); ++k) {
      data.batch(Split::kTrain, k, 1, batch);
      labels += batch.valid_tokens;
    }
    EXPECT_EQ(labels, report.labels);
  }
}

class FineTuningTest : public DatasetTest {
 protected:
  DataConfig pairs(const std::string& packing) {
    std::string lines;
    for (int i = 0; i < 40; ++i)
      lines += fmt::format("{{\"question\": \"q{}\", \"answer\": \"A{}\"}}\n", std::string(i % 9, 'x'), i);
    lines += "{\"question\": \"no answer\", \"answer\": \"\"}\n";
    lines += "{\"question\": \"" + std::string(60, 'z') + "\", \"answer\": \"late\"}\n";
    write_atomic(folder_ / "pairs.jsonl", lines);
    DataConfig config;
    config.train = folder_ / "pairs.jsonl";
    config.prompt_key = "question", config.response_key = "answer";
    config.sequence_length = 32;
    config.packing = packing;
    config.validation_fraction = 0;
    return config;
  }
};

TEST_F(FineTuningTest, OnlyResponsesAreLabels) {
  for (const char* packing : {"best_fit", "none"}) {
    const Dataset data = Dataset::load(pairs(packing), 1);
    EXPECT_EQ(data.report().train.documents, 40);
    EXPECT_EQ(data.report().counts.empty, 1);
    EXPECT_EQ(data.report().counts.without_response, 1);
    EXPECT_EQ(left_out(data.report()).size(), 2u);
    Batch batch;
    std::set<std::string> answers;
    for (int64_t k = 0; k < data.rows(Split::kTrain); ++k) {
      data.batch(Split::kTrain, k, 1, batch);
      for (size_t s = 0; s + 1 < batch.segments.size(); ++s) {
        std::string text, learned;
        for (int32_t i = batch.segments[s]; i < batch.segments[s + 1]; ++i) {
          text += static_cast<char>(batch.ids[static_cast<size_t>(i)]);
          if (const int32_t label = batch.labels[static_cast<size_t>(i)]; label != kIgnoredLabel)
            learned += static_cast<char>(label);
        }
        if (text[0] == '\0') continue;  // padding
        ASSERT_EQ(text, text.substr(0, text.find('\n') + 1) + learned);
        ASSERT_TRUE(learned.starts_with("A") && learned.ends_with('\0'));
        answers.insert(learned);
      }
    }
    EXPECT_EQ(answers.size(), 40u);
  }
}

TEST_F(FineTuningTest, TruncationIsRefused) {
  const std::string message = error_of(Exit::kUsage, [&] { Dataset::load(pairs("truncate"), 1); });
  EXPECT_NE(message.find("data.packing: truncate"), std::string::npos) << message;
  EXPECT_NE(message.find("best_fit"), std::string::npos) << message;
}

TEST_F(DatasetTest, SplitsByName) {
  std::filesystem::create_directory(folder_ / "set");
  write_atomic(folder_ / "set/train.txt", "aaaa\n\nbbbb\n\ncccc");
  write_atomic(folder_ / "set/test.txt", "dddd\n\neeee");
  DataConfig config;
  config.train = folder_ / "set";
  config.split = "train", config.validation_split = "test";
  config.sequence_length = 5;
  const Dataset data = Dataset::load(config, 1);
  EXPECT_EQ(data.rows(Split::kTrain), 3);
  EXPECT_EQ(data.rows(Split::kValidation), 2);
  EXPECT_EQ(data.report().files.size(), 2u);
  config.validation_split = "dev";
  const std::string message = error_of(Exit::kInput, [&] { Dataset::load(config, 1); });
  EXPECT_NE(message.find("dev"), std::string::npos) << message;
}

class TokenFileTest : public DatasetTest {
 protected:
  // Rows of 8 equal ids: row r holds r + 1.
  DataConfig rows_of(uint16_t rows) {
    std::string bytes;
    for (uint16_t r = 0; r < rows; ++r)
      for (int i = 0; i < 8; ++i) {
        const auto id = static_cast<uint16_t>(r + 1);
        bytes.append(reinterpret_cast<const char*>(&id), 2);
      }
    write_atomic(folder_ / "train.bin", bytes + std::string("\x07\x00", 2));
    DataConfig config;
    config.train = folder_ / "train.bin";
    config.sequence_length = 8;
    config.model_vocab_size = 4096;
    return config;
  }
};

TEST_F(TokenFileTest, RowsAreSplitBySeed) {
  DataConfig config = rows_of(1000);
  config.validation_fraction = 0.1;
  std::set<int32_t> held, other;
  for (const uint64_t seed : {1, 2}) {
    const Dataset data = Dataset::load(config, seed);
    ASSERT_EQ(data.rows(Split::kTrain), 900);
    ASSERT_EQ(data.rows(Split::kValidation), 100);
    EXPECT_EQ(data.vocab_size(), 4096);
    EXPECT_EQ(data.tokenizer(), nullptr);
    EXPECT_EQ(data.report().train.dropped_tokens, 1);
    EXPECT_EQ(data.report().format, "nanogpt");
    std::set<int32_t> all;
    Batch batch;
    for (const Split split : {Split::kTrain, Split::kValidation})
      for (int64_t k = 0; k < data.rows(split); ++k) {
        data.batch(split, k, 1, batch);
        ASSERT_EQ(batch.ids, std::vector<int32_t>(8, batch.ids[0]));
        ASSERT_TRUE(all.insert(batch.ids[0]).second) << "a row twice";
        if (split == Split::kValidation) (seed == 1 ? held : other).insert(batch.ids[0]);
      }
    EXPECT_EQ(all.size(), 1000u);
  }
  EXPECT_NE(held, other);
  // Labels of 900 training rows, evenly spread over as many ids.
  config.validation_fraction = 0;
  const Dataset data = Dataset::load(config, 1);
  EXPECT_TRUE(data.report().entropy_sampled);
  EXPECT_NEAR(data.report().unigram_entropy, std::log(1000), 1e-9);
}

TEST_F(TokenFileTest, KeysOfTextAreRefused) {
  const auto refused = [&](const char* key, const std::function<void(DataConfig&)>& change) {
    DataConfig config = rows_of(100);
    change(config);
    const std::string message = error_of(Exit::kUsage, [&] { Dataset::load(config, 1); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("train.bin"), std::string::npos) << message;
  };
  refused("data.packing", [](DataConfig& c) { c.packing = "best_fit"; });
  refused("data.max_documents", [](DataConfig& c) { c.max_documents = 3; });
  refused("data.min_document_bytes", [](DataConfig& c) { c.min_document_bytes = 3; });
  refused("data.messages_key", [](DataConfig& c) { c.messages_key = "messages"; });
  refused("data.prompt_key", [](DataConfig& c) { c.prompt_key = "p", c.response_key = "r"; });
  DataConfig config = rows_of(100);
  config.eos_token = "<|endoftext|>";
  const std::string message = error_of(Exit::kUsage, [&] { Dataset::load(config, 1); });
  EXPECT_NE(message.find("data.eos_token"), std::string::npos) << message;
}

// Both splits of a folder at once would train on what is evaluated.
TEST_F(DatasetTest, AFolderOfBothSplitsWantsAName) {
  for (const char* split : {"train", "validation"}) {
    std::filesystem::create_directories(folder_ / ("set/" + std::string(split)));
    mds::Writer writer(folder_ / ("set/" + std::string(split)), {.sequence_length = 4, .vocab_size = 256});
    writer.add(std::vector<int32_t>{1, 2, 3, 4}, std::vector<int32_t>{4}, {});
    writer.finish({.tokenizer = "bytes", .packing = "truncate", .documents = 1});
  }
  DataConfig config;
  config.train = folder_ / "set";
  config.sequence_length = 4;
  const std::string message = error_of(Exit::kUsage, [&] { Dataset::load(config, 1); });
  EXPECT_NE(message.find("data.split"), std::string::npos) << message;
  config.split = "train", config.validation_split = "validation";
  EXPECT_EQ(Dataset::load(config, 1).rows(Split::kTrain), 1);
  // Rows of another tokenizer than the one that is named.
  if (const char* shared = std::getenv("MANTISSA_TEST_DATA")) {
    config.tokenizer = std::string(shared) + "/tokenizers/gpt2";
    EXPECT_NE(error_of(Exit::kUsage, [&] { Dataset::load(config, 1); }).find("data.tokenizer"), std::string::npos);
  }
}

}  // namespace
}  // namespace mantissa
