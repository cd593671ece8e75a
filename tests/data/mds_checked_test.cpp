// Shards that change: damaged before they are read, or shrinking while they are.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "data/dataset.h"
#include "data/mds/checked.h"
#include "data/mds/rows.h"
#include "data/mds/verify.h"
#include "data/mds/writer.h"
#include "tests/base/support.h"
#include "tests/data/mds_support.h"

namespace mantissa::mds {
namespace {

using mantissa::testing::error_of;
using mantissa::testing::TempFolder;
using testing::write_plain;

// XDG_CACHE_HOME of a test.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& path) {
    if (const char* before = getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", path.c_str(), 1);
  }
  ~CacheFolder() {
    if (before_.empty())
      unsetenv("XDG_CACHE_HOME");
    else
      setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

class MdsChecked : public ::testing::Test {
 protected:
  MdsChecked() : cache_(folder_ / "cache") {
    Writer writer(path_, {.sequence_length = 1024, .vocab_size = 300, .size_limit = 100'000});
    std::vector<int32_t> ids(1024);
    for (int row = 0; row < 60; ++row) {
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 7 + static_cast<size_t>(row)) % 300);
      writer.add(ids, std::vector<int32_t>{1000, 24}, {});
    }
    writer.finish({});
  }
  std::string shard(int number) const { return fmt::format("{}/shard.{:05}.mds", path_, number); }
  static void flip(const std::string& path, size_t at) {
    std::string bytes = read_text(path);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_plain(path, bytes);
  }
  DataConfig config() const {
    DataConfig config;
    config.train = path_;
    config.sequence_length = 1024;
    config.validation_fraction = 0;
    return config;
  }
  std::string note() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "cache"))
      if (entry.is_regular_file()) return entry.path().string();
    return "";
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "rows";
  CacheFolder cache_;
};

TEST_F(MdsChecked, AFlippedBitIsNoTrainingData) {
  EXPECT_NO_THROW(Dataset::load(config(), 1));
  flip(shard(1), file_size(shard(1)) - 1000);  // an id, still below the vocabulary
  const std::string message = error_of(Exit::kInput, [&] { Dataset::load(config(), 1); });
  EXPECT_NE(message.find("shard.00001.mds: sha256 is "), std::string::npos) << message;
  const LoadOptions repack{.repack = true};
  EXPECT_EQ(error_of(Exit::kInput, [&] { Dataset::load(config(), 1, repack); }), message);
}

TEST_F(MdsChecked, NorIsOneInAText) {
  const std::string text = folder_ / "text", shard = text + "/shard.00001.mds";
  std::filesystem::copy(std::string(MANTISSA_SOURCE_DIR) + "/tests/fixtures/mds/text", text);
  DataConfig config;
  config.train = text;
  config.sequence_length = 16;
  config.validation_fraction = 0;
  EXPECT_NO_THROW(Dataset::load(config, 1));
  flip(shard, file_size(shard) - 3);  // in a letter
  const std::string message = error_of(Exit::kInput, [&] { Dataset::load(config, 1); });
  EXPECT_NE(message.find("shard.00001.mds: sha1 is "), std::string::npos) << message;
}

TEST_F(MdsChecked, AChecksumIsComputedOnceForAFileAndItsChangeTime) {
  const Folder folder = Folder::open(path_);
  int computed = 0;
  const CheckOptions options{.progress = [&](double) { ++computed; }};
  EXPECT_TRUE(check_shards(folder, options).empty());
  // Files of this instant are not noted: another change could have the same time.
  EXPECT_FALSE(exists(folder_ / "cache/mantissa"));
  CheckedFiles checked(folder);
  for (const ShardEntry& entry : folder.shards()) {
    FileState state = state_of(join_path(path_, entry.raw.basename));
    checked.add(entry.raw.basename, state);
    EXPECT_FALSE(checked.holds(entry.raw.basename, state));
  }
}

TEST_F(MdsChecked, ANoteSaysWhatWasCheckedAndOfWhichIndex) {
  const Folder folder = Folder::open(path_);
  FileState old = state_of(shard(0));
  old.changed_ns -= 3'000'000'000;
  {
    CheckedFiles checked(folder);
    checked.add("shard.00000.mds", old);
    EXPECT_EQ(checked.save(), "");
  }
  ASSERT_TRUE(note().starts_with(folder_ / "cache/mantissa/shards/"));
  EXPECT_TRUE(CheckedFiles(folder).holds("shard.00000.mds", old));
  EXPECT_FALSE(CheckedFiles(folder).holds("shard.00001.mds", old));
  for (int change = 0; change < 4; ++change) {
    FileState other = old;
    ++(change == 0 ? other.bytes : change == 1 ? other.inode : other.device);
    if (change == 3) other = old, ++other.changed_ns;
    EXPECT_FALSE(CheckedFiles(folder).holds("shard.00000.mds", other)) << change;
  }
  // Another index, which may give other hashes; a damaged note.
  const std::string index = read_text(path_ + "/index.json"), good = read_text(note());
  write_plain(path_ + "/index.json", index + " ");
  EXPECT_FALSE(CheckedFiles(Folder::open(path_)).holds("shard.00000.mds", old));
  write_plain(path_ + "/index.json", index);
  EXPECT_TRUE(CheckedFiles(Folder::open(path_)).holds("shard.00000.mds", old));
  for (const std::string& bad : {std::string("{"), std::string("[1]"), good.substr(0, good.size() / 2),
                                 std::string("{\"format\": \"mantissa checked shards\", \"version\": 1}")}) {
    write_plain(note(), bad);
    EXPECT_FALSE(CheckedFiles(folder).holds("shard.00000.mds", old)) << bad;
  }
}

class SlowMdsChecked : public MdsChecked {};

TEST_F(SlowMdsChecked, FilesThatHaveSettledAreCheckedOnce) {
  const Folder folder = Folder::open(path_);
  sleep(3);
  int computed = 0;
  const CheckOptions options{.progress = [&](double) { ++computed; }};
  EXPECT_TRUE(check_shards(folder, options).empty());
  EXPECT_GT(computed, 0);
  computed = 0;
  EXPECT_TRUE(check_shards(folder, options).empty());
  EXPECT_EQ(computed, 0);
  flip(shard(1), 5000);
  EXPECT_NE(error_of(Exit::kInput, [&] { check_shards(folder, options); }).find("shard.00001.mds: sha256"),
            std::string::npos);
}

TEST_F(MdsChecked, WhatIsNotCheckedIsSaid) {
  const Folder folder = Folder::open(path_);
  std::vector<std::string> notes = check_shards(folder, {.most_bytes = 1000});
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("were not computed"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("mantissa verify " + path_), std::string::npos) << notes[0];
  Json index = read_json(path_ + "/index.json");
  index["shards"][0]["raw_data"]["hashes"] = {{"md5", "00"}};
  write_plain(path_ + "/index.json", index.dump());
  const Dataset data = Dataset::load(config(), 1);
  notes = data.report().notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("gives no checksum that is known"), std::string::npos) << notes[0];
}

TEST_F(MdsChecked, ShardsThatShrinkAreRefusedAtTheirRow) {
  const TokenSource source = open_rows({path_}, {.sequence_length = 1024});
  const auto documents = open_documents({path_}, {});
  EncodedDocument document;
  ASSERT_TRUE(documents->next(document));
  Batch batch;
  source.rows->append_row(59, batch);
  const Shard first = Folder::open(path_).open_shard(0);
  std::filesystem::resize_file(shard(0), 20'000);
  std::string message = error_of(Exit::kInput, [&] { source.rows->append_row(11, batch); });
  EXPECT_TRUE(message.starts_with(shard(0) + ": row 11 (sample 11): the file has shrunk to 20000 bytes")) << message;
  message = error_of(Exit::kInput, [&] {
    while (documents->next(document)) {
    }
  });
  EXPECT_TRUE(message.starts_with(shard(0) + ": sample 1: the file has shrunk to 20000 bytes")) << message;
  EXPECT_NO_THROW(source.rows->append_row(59, batch));
}

}  // namespace
}  // namespace mantissa::mds
