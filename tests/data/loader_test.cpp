#include "data/loader.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

class LoaderTest : public ::testing::Test {
 protected:
  Dataset small() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i * i) + "\n";
    write_atomic(folder_ / "a.txt", text);
    DataConfig config;
    config.train = folder_ / "a.txt";
    config.document_separator = "line";
    config.sequence_length = 16;
    return Dataset::load(config, 3);
  }

  TempFolder folder_;
};

TEST_F(LoaderTest, HandsOutWhatTheDatasetGives) {
  const Dataset data = small();
  constexpr int64_t kMicro = 3, kAccumulation = 4;
  const int64_t steps = 3 * data.rows(Split::kTrain) / (kMicro * kAccumulation);
  for (const int64_t first : {int64_t{1}, int64_t{7}}) {
    Loader loader(data, {.first_step = first, .steps = steps, .accumulation = kAccumulation, .micro_rows = kMicro});
    Batch expected;
    for (int64_t step = first; step <= steps; ++step) {
      const StepBatches& batches = loader.next();
      ASSERT_EQ(batches.micro.size(), 4u);
      int64_t valid = 0;
      for (int64_t i = 0; i < kAccumulation; ++i) {
        data.batch(Split::kTrain, ((step - 1) * kAccumulation + i) * kMicro, kMicro, expected);
        const Batch& got = batches.micro[static_cast<size_t>(i)];
        ASSERT_EQ(got.ids, expected.ids);
        ASSERT_EQ(got.labels, expected.labels);
        ASSERT_EQ(got.positions, expected.positions);
        ASSERT_EQ(got.segments, expected.segments);
        valid += expected.valid_tokens;
      }
      EXPECT_EQ(batches.valid_tokens, valid);
      EXPECT_GE(loader.waited(), 0);
    }
    error_of(Exit::kInternal, [&] { loader.next(); });
  }
}

TEST_F(LoaderTest, AFileThatShrinksEndsTheRunAtItsStep) {
  write_atomic(folder_ / "a.bin", std::string(200'000, '\1'));
  DataConfig config;
  config.train = folder_ / "a.bin";
  config.sequence_length = 1000;
  config.validation_fraction = 0;
  const Dataset data = Dataset::load(config, 3);
  Loader loader(data, {.steps = 50, .micro_rows = 2});
  loader.next();
  std::filesystem::resize_file(folder_ / "a.bin", 0);
  const std::string message = error_of(Exit::kInput, [&] {
    for (int step = 2; step <= 50; ++step) loader.next();
  });
  EXPECT_TRUE(message.starts_with("step ")) << message;
  EXPECT_NE(message.find("a.bin: row "), std::string::npos) << message;
  EXPECT_NE(message.find("has shrunk to 0 bytes"), std::string::npos) << message;
}

TEST_F(LoaderTest, EndsWhateverWasTaken) {
  const Dataset data = small();
  for (const int64_t taken : {0, 1, 2, 5}) {
    Loader loader(data, {.steps = 1000, .accumulation = 2, .micro_rows = 2});
    for (int64_t i = 0; i < taken; ++i) loader.next();
  }
  const Loader none(data, {.steps = 0});
}

// A bad id in a row that no sample of the file has met: the step that needs it says so, those before it do not.
TEST_F(LoaderTest, AnErrorComesAtItsStep) {
  constexpr int64_t kLength = 1024, kRows = 8192;
  std::vector<uint16_t> ids(kLength * kRows, 5);
  ids[kLength + 17] = 60'000;
  write_atomic(folder_ / "train.bin",
               std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint16_t)));
  DataConfig config;
  config.train = folder_ / "train.bin";
  config.sequence_length = kLength;
  config.validation_fraction = 0;
  config.model_vocab_size = 50'257;
  const Dataset data = Dataset::load(config, 3);
  Loader loader(data, {.steps = kRows / 64, .accumulation = 4, .micro_rows = 16});
  int64_t done = 0;
  const std::string message = error_of(Exit::kInput, [&] {
    for (;; ++done) loader.next();
  });
  EXPECT_TRUE(message.starts_with(fmt::format("step {}: ", done + 1))) << message;
  EXPECT_NE(message.find("train.bin: token 1041 is 60000, outside the vocabulary of 50257"), std::string::npos)
      << message;
  EXPECT_EQ(error_of(Exit::kInput, [&] { loader.next(); }), message);
}

}  // namespace
}  // namespace mantissa
