// Bytes of valid files changed at random: only Error may come out of reading them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "base/file.h"
#include "data/mds/reader.h"
#include "data/mds/rows.h"
#include "data/mds/verify.h"
#include "data/mds/writer.h"
#include "tests/base/support.h"
#include "tests/data/mds_support.h"

namespace mantissa::mds {
namespace {

using namespace testing;
using mantissa::testing::TempFolder;

TEST(MdsMutations, ShardsNeverCrash) {
  const std::vector<ColumnText> columns = {{"a", "ndarray", nullptr},
                                           {"b", "ndarray:int32", nullptr},
                                           {"c", "ndarray:int16:2,2", 8},
                                           {"d", "uint32", nullptr},
                                           {"e", "int", 8},
                                           {"f", "str_int", nullptr},
                                           {"g", "str", nullptr}};
  std::vector<Column> parsed;
  for (const ColumnText& column : columns)
    parsed.push_back(
        make_column(column.name, column.encoding, column.size.is_null() ? -1 : column.size.get<int64_t>(), "x"));
  const std::vector<std::string> sample = {std::string("\x10\x08\x01\x02", 4) + raw<uint16_t>({1, 2}),
                                           "\x04\x02" + raw<int32_t>({5, 6}),
                                           raw<int16_t>({1, 2, 3, 4}),
                                           raw<uint32_t>({7}),
                                           raw<int64_t>({9}),
                                           "12",
                                           "text"};
  const std::string good = shard_of(columns, {sample, sample, sample});
  const size_t json = good.find('{'), behind = good.rfind('}') + 1;
  std::mt19937 random(3);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string image = good;
    for (uint32_t n = random() % 4 + 1; n > 0; --n) {
      // Seldom inside the JSON, which base/json reads.
      size_t at = random() % image.size();
      if (at >= json && at < behind && random() % 16 != 0)
        at = random() % 2 == 0 ? random() % json : behind + random() % 60;
      at = std::min(at, image.size() - 1);
      switch (random() % 5) {
        case 0:
          image[at] = static_cast<char>(random());
          break;
        case 1:
          image[at] = static_cast<char>(0xff);
          break;
        case 2:
          image[at] = static_cast<char>(image[at] + 1);
          break;
        case 3:
          image[at] = 0;
          break;
        default:
          image.resize(std::max<size_t>(1, image.size() - random() % 8));
          break;
      }
    }
    // Exactly as large as the image, so that a read behind it is seen.
    const std::unique_ptr<char[]> bytes(new char[image.size()]);
    std::memcpy(bytes.get(), image.data(), image.size());
    try {
      const Shard shard = open_shard_image({bytes.get(), image.size()}, "mutated", parsed, 3);
      for (int64_t i = 0; i < 3; ++i) {
        int64_t sum = 0;
        for (const int column : {0, 1, 2, 3}) {
          const Array array = shard.array(i, column);
          if (!is_float(array.values.type))
            for (int64_t k = 0; k < array.values.count; ++k) sum ^= array.values.at(k);
        }
        sum ^= shard.integer(i, 4) ^ shard.integer(i, 5);
        for (const char letter : shard.text(i, 6)) sum ^= letter;
        ASSERT_NE(sum, INT64_MIN + 3);  // every value is read
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Exit::kInput) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
  EXPECT_LT(refused, 20000);
}

TEST(MdsMutations, FoldersNeverCrash) {
  TempFolder folder;
  const std::string path = folder / "out";
  Writer writer(path, {.sequence_length = 4, .vocab_size = 10, .labels = true});
  for (int i = 0; i < 3; ++i)
    writer.add(std::vector<int32_t>{1, 2, 3, 4}, std::vector<int32_t>{1, 3}, std::vector<int32_t>{1, -100, 3, 4});
  writer.finish({});
  const std::string index = read_text(path + "/index.json"), prepared = read_text(path + "/mantissa.json"),
                    shard = read_text(path + "/shard.00000.mds");
  std::mt19937 random(4);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = round % 3 == 0 ? index : round % 3 == 1 ? prepared : shard;
    for (uint32_t n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % text.size();
      const char digits[] = "0123456789-,.\"[]{}ntf/";
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text[at] = digits[random() % (sizeof(digits) - 1)];
          break;
        case 2:
          text.erase(at, random() % 4);
          break;
        default:
          text.insert(at, 1, digits[random() % (sizeof(digits) - 1)]);
          break;
      }
      if (text.empty()) text = "x";
    }
    write_plain(path + "/index.json", round % 3 == 0 ? text : index);
    write_plain(path + "/mantissa.json", round % 3 == 1 ? text : prepared);
    write_plain(path + "/shard.00000.mds", round % 3 == 2 ? text : shard);
    const bool sound = verify(path).problems.empty();
    try {
      const TokenSource source = open_rows({path}, {.sequence_length = 4});
      Batch batch;
      for (int64_t row = 0; row < source.rows->rows(); ++row) source.rows->append_row(row, batch);
      const auto documents = open_documents({path}, {});
      EncodedDocument document;
      while (documents->next(document)) ASSERT_FALSE(document.ids.empty());
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Exit::kInput || error.code() == Exit::kUsage) << error.what();
      ASSERT_TRUE(!sound || error.code() == Exit::kUsage) << "verify() saw nothing of: " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 750);
}

}  // namespace
}  // namespace mantissa::mds
