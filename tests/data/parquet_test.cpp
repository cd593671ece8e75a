// Parquet files of tests/interop/write_parquet_fixtures.py, and damaged ones. Skipped where Arrow was not found.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/file.h"
#include "base/sha256.h"
#include "data/readers/parquet_footer.h"
#include "data/readers/parquet_module.h"
#include "data/record.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

constexpr int kRows = 60;
const RecordSpec kText{.columns = {"text"}, .messages = ""};
const RecordSpec kMessages{.columns = {}, .messages = "messages"};

std::string fixture(const std::string& name) {
  return std::string(MANTISSA_SOURCE_DIR) + "/tests/fixtures/parquet/" + name + ".parquet";
}

// Row i of the script; null is no text.
std::string expected_text(int i) {
  if (i % 7 == 3 || i % 7 == 5) return "";
  std::string text = "row " + std::to_string(i) + ":";
  for (int k = 0; k < i % 5; ++k) text += " na\xc3\xafve \xe2\x9c\x93 \xf0\x9d\x84\x9e";
  return text;
}

// Bits of a number seven by seven, as the footer holds it: zigzag, then ULEB128 (Thrift's compact protocol).
std::string varint(uint64_t value) {
  value <<= 1;
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}

class ParquetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (parquet_library().module == nullptr) GTEST_SKIP() << parquet_library().absence;
  }

  std::unique_ptr<RecordReader> open(const std::string& path, const RecordSpec& spec) {
    return open_records(find_source(path, "", config_), spec, config_);
  }
  std::vector<std::string> texts(const std::string& path, const RecordSpec& spec = kText) {
    std::vector<std::string> all;
    const std::unique_ptr<RecordReader> reader = open(path, spec);
    for (Record record; reader->next(record);) all.push_back(record.texts.at(0));
    EXPECT_EQ(reader->progress(), 1);
    reader->finish();
    return all;
  }
  // What is said about a file of these bytes, within a second; "" when it reads.
  std::string verdict(const std::string& bytes, const RecordSpec& spec = kText) {
    const std::string path = folder_ / "x.parquet";
    std::filesystem::remove(path);  // rewriting in place waits for the disk
    std::ofstream(path, std::ios::binary) << bytes;
    const auto start = std::chrono::steady_clock::now();
    std::string message;
    try {
      texts(path, spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kInput) << error.what();
      message = error.what();
      EXPECT_TRUE(message.starts_with(path + ": ")) << message;
      message.erase(0, std::min(message.size(), path.size() + 2));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1)) << message;
    return message;
  }

  TempFolder folder_;
  DataConfig config_;
};

TEST_F(ParquetTest, TextOfEveryTypeCodecAndEncoding) {
  std::vector<std::string> expected;
  for (int i = 0; i < kRows; ++i) expected.push_back(expected_text(i));
  config_.tokenizer = "anywhere";  // checks UTF-8
  for (const char* name : {"snappy", "zstd_large", "gzip_binary", "dictionary", "pages_v2", "checksums"})
    EXPECT_EQ(texts(fixture(name)), expected) << name;
}

TEST_F(ParquetTest, SeveralColumnsAndTheFilesHash) {
  const std::string path = fixture("messages");
  config_.prompt_key = "question", config_.response_key = "answer";
  const std::unique_ptr<RecordReader> reader = open(path, {.columns = {"answer", "question"}, .messages = ""});
  Record record;
  for (int i = 0; i < kRows; ++i) {
    ASSERT_TRUE(reader->next(record));
    EXPECT_EQ(record.texts[1], "q" + std::to_string(i));
    EXPECT_EQ(record.texts[0].size(), ("a" + std::to_string(i)).size() * static_cast<size_t>(i % 3));
    EXPECT_EQ(record.where, path + ": row " + std::to_string(i + 1));
  }
  EXPECT_FALSE(reader->next(record));
  reader->finish();
  ASSERT_EQ(reader->files().size(), 1u);
  EXPECT_EQ(reader->files()[0].sha256, sha256(read_text(path)));
  // Ended early, the hash is still that of the whole file.
  const std::unique_ptr<RecordReader> early = open(path, {.columns = {"answer"}, .messages = ""});
  ASSERT_TRUE(early->next(record));
  early->finish();
  EXPECT_EQ(early->files()[0].sha256, reader->files()[0].sha256);
}

TEST_F(ParquetTest, ConversationsAcrossPages) {
  const std::unique_ptr<RecordReader> reader = open(fixture("messages"), kMessages);
  Record record;
  for (int i = 0; i < kRows; ++i) {
    ASSERT_TRUE(reader->next(record));
    EXPECT_TRUE(record.texts.empty());
    ASSERT_EQ(record.turns.size(), static_cast<size_t>(i % 9 == 4 ? 0 : i % 6)) << i;
    for (size_t k = 0; k < record.turns.size(); ++k) {
      EXPECT_EQ(record.turns[k].role, k % 2 == 0 ? "user" : "assistant");
      EXPECT_EQ(record.turns[k].content, "turn " + std::to_string(k) + " of " + std::to_string(i) +
                                             std::string(static_cast<size_t>(40 * (i % 4)), '.'));
    }
  }
  EXPECT_FALSE(reader->next(record));
}

TEST_F(ParquetTest, WrongColumnsAreNamed) {
  const auto says = [&](const char* name, const RecordSpec& spec) {
    const std::string path = fixture(name);
    const std::string message = error_of(Exit::kInput, [&] {
      Record record;
      open(path, spec)->next(record);
    });
    EXPECT_TRUE(message.starts_with(path)) << message;
    return message.substr(std::min(message.size(), path.size()));
  };
  config_.text_key = "body";
  EXPECT_EQ(says("snappy", {.columns = {"body"}, .messages = ""}), ": no key \"body\" (data.text_key); found id, text");
  EXPECT_EQ(says("snappy", {.columns = {"id"}, .messages = ""}),
            ": column id is int64, expected string, large_string or binary");
  EXPECT_EQ(says("messages", {.columns = {"messages"}, .messages = ""}),
            ": column messages is a list, expected string, large_string or binary");
  EXPECT_EQ(says("snappy", {.columns = {}, .messages = "text"}),
            ": column text is no list of structs with role and content, or from and value");
  EXPECT_EQ(says("null_content", kMessages), ": row 1: \"messages\"[0].content is null, expected a string");
}

TEST_F(ParquetTest, TypesHaveTheNamesOfArrow) {
  const std::pair<const char*, const char*> cases[] = {
      {"i8", "int8"},        {"u32", "uint32"},     {"i64", "int64"},
      {"half", "float"},     {"real", "double"},    {"yes", "bool"},
      {"day", "date32"},     {"when", "timestamp"}, {"price", "decimal128(9, 2)"},
      {"map", "a map"},      {"list", "a list"},    {"id16", "fixed_size_binary[16]"},
      {"struct", "a struct"}};
  const std::string path = fixture("types");
  for (const auto& [column, type] : cases)
    EXPECT_EQ(error_of(Exit::kInput, [&, name = column] { open(path, {.columns = {name}, .messages = ""}); }),
              fmt::format("{}: column {} is {}, expected string, large_string or binary", path, column, type));
}

TEST_F(ParquetTest, PathsLeadThroughStructs) {
  const std::string path = fixture("nested");
  EXPECT_EQ(texts(path, {.columns = {"meta.body.text"}, .messages = ""}), (std::vector<std::string>{"deep", "", ""}));
  EXPECT_EQ(texts(path, {.columns = {"meta.lang"}, .messages = ""}), (std::vector<std::string>{"en", "ms", ""}));
  EXPECT_EQ(error_of(Exit::kInput, [&] { open(path, {.columns = {"meta.body"}, .messages = ""}); }),
            path + ": column meta.body is a struct, expected string, large_string or binary");
  EXPECT_EQ(error_of(Exit::kInput, [&] { open(path, {.columns = {"meta.title"}, .messages = ""}); }),
            path + ": no column meta.title");
}

TEST_F(ParquetTest, ConversationsOfOtherShapes) {
  const std::string path = fixture("nested");
  Record record;
  const std::unique_ptr<RecordReader> shared = open(path, {.columns = {}, .messages = "conversations"});
  ASSERT_TRUE(shared->next(record));
  ASSERT_EQ(record.turns.size(), 2u);
  EXPECT_EQ(record.turns[0].role + ": " + record.turns[0].content, "user: 1?");
  EXPECT_EQ(record.turns[1].role + ": " + record.turns[1].content, "assistant: 2");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(shared->next(record));
    EXPECT_TRUE(record.turns.empty());
  }
  const std::unique_ptr<RecordReader> pairs = open(path, {.columns = {"prompt", "completion"}, .messages = ""});
  const std::vector<std::vector<std::string>> expected = {
      {"user: q (asked)", "assistant: so far (asked)", "user: then (asked)", "assistant: a"},
      {},
      {"user: r (asked)", "assistant: b"}};
  for (const auto& turns : expected) {
    ASSERT_TRUE(pairs->next(record));
    std::vector<std::string> found;
    for (const Turn& turn : record.turns)
      found.push_back(turn.role + ": " + turn.content + (turn.context ? " (asked)" : ""));
    EXPECT_EQ(found, turns);
  }
  EXPECT_EQ(error_of(Exit::kInput,
                     [&] {
                       open(path, {.columns = {"prompt", "meta.lang"}, .messages = ""});
                     }),
            path + ": column prompt and column meta.lang are not of a kind: expected texts, or lists of messages");
}

// 200 MB of text in a few kilobytes: refused once 64 MiB have come out.
TEST_F(ParquetTest, RepeatedTextIsHeldToTheFilesSize) {
  const std::string path = fixture("bomb");
  ASSERT_LT(file_size(path), 20'000u);
  const std::unique_ptr<RecordReader> reader = open(path, kText);
  int64_t rows = 0;
  const std::string message = error_of(Exit::kInput, [&] {
    for (Record record; reader->next(record);) ++rows;
  });
  EXPECT_NE(message.find(" bytes of Parquet unpack to more than 67108864"), std::string::npos) << message;
  EXPECT_LT(rows, 70'000);
}

TEST_F(ParquetTest, TextIsCheckedForTheTokenizer) {
  const std::string path = fixture("odd_bytes");
  const auto says = [&] { return error_of(Exit::kInput, [&] { texts(path); }); };
  EXPECT_EQ(says(), path +
                        ": row 3: holds a byte 0 (byte 1 of the document), which separates documents; is this "
                        "UTF-16 or no text?");
  config_.tokenizer = "anywhere";
  EXPECT_EQ(says(), path + ": row 2: not UTF-8 at byte 3 of the document: \\xe9");
}

TEST_F(ParquetTest, ChecksumsAreChecked) {
  std::string bytes = read_text(fixture("checksums"));
  EXPECT_EQ(verdict(bytes), "");
  const size_t at = bytes.find("na\xc3\xafve");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'x';
  const std::string message = verdict(bytes);
  EXPECT_TRUE(message.starts_with("damaged, or Parquet of a kind that is not read (Arrow: \"")) << message;
  EXPECT_TRUE(message.ends_with("\")")) << message;
  EXPECT_NE(message.find("CRC"), std::string::npos) << message;
}

TEST_F(ParquetTest, DamagedFilesAreRefused) {
  const std::string whole = read_text(fixture("dictionary"));
  EXPECT_EQ(verdict(""), "begins with \"\", expected Parquet's \"PAR1\"");
  EXPECT_EQ(verdict("PAR1"), "is cut short: no \"PAR1\" at its end (4 bytes)");
  EXPECT_EQ(verdict("PARX" + whole.substr(4)), "begins with \"PARX\", expected Parquet's \"PAR1\"");
  EXPECT_EQ(verdict("PARE" + whole.substr(4)), "has an encrypted footer, expected a plain Parquet file");
  for (const size_t cut : {whole.size() - 1, whole.size() / 2, size_t{12}})
    EXPECT_EQ(verdict(whole.substr(0, cut)),
              "is cut short: no \"PAR1\" at its end (" + std::to_string(cut) + " bytes)");
  EXPECT_EQ(verdict("<!DOCTYPE html><html>"),
            "expected Parquet, found a web page, not the file itself; the download failed or needs a login");
  EXPECT_EQ(verdict("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
            "expected Parquet, found a Git LFS pointer, not the file itself; fetch it with `git lfs pull`");

  std::string footer = whole;
  const uint32_t huge = 0x7fffffff;
  std::memcpy(footer.data() + footer.size() - 8, &huge, 4);
  EXPECT_EQ(verdict(footer),
            "footer of 2147483647 bytes, the file has " + std::to_string(whole.size()) + " (limit 67108864)");
  // A file whose front half went: the footer points nowhere.
  EXPECT_NE(verdict("PAR1" + whole.substr(whole.size() / 2)), "");
}

// The number of rows stands in the footer of a file and of each row group: 60, and 16, 16, 16, 12.
TEST_F(ParquetTest, FalseRowCountsAreRefused) {
  const std::string whole = read_text(fixture("snappy"));
  uint32_t length = 0;
  std::memcpy(&length, whole.data() + whole.size() - 8, 4);
  const size_t begin = whole.size() - 8 - length;
  const std::string footer = whole.substr(begin, length);
  // Field 3 of the file (i64, 0x16), before the list of row groups (0x19); field 3 of the last row group.
  const size_t rows = footer.find("\x16" + varint(60) + "\x19");
  const size_t last = footer.rfind("\x16" + varint(12));
  ASSERT_NE(rows, std::string::npos);
  ASSERT_NE(last, std::string::npos);
  const auto with = [&](int64_t file_rows, int64_t last_rows) {
    std::string changed = footer;
    changed.replace(last + 1, 1, varint(static_cast<uint64_t>(last_rows)));
    changed.replace(rows + 1, 1, varint(static_cast<uint64_t>(file_rows)));
    std::string tail(4, '\0');
    const auto size = static_cast<uint32_t>(changed.size());
    std::memcpy(tail.data(), &size, 4);
    return whole.substr(0, begin) + changed + tail + "PAR1";
  };
  constexpr int64_t kHuge = int64_t{1} << 60;
  EXPECT_EQ(verdict(with(60, 12)), "");
  EXPECT_EQ(verdict(with(kHuge, 12)), "the footer promises 1152921504606846976 rows, its row groups 60");
  EXPECT_EQ(verdict(with(48 + kHuge, kHuge)),
            "row group 3, column text ends 1152921504606846964 rows before its row group (behind row 60)");
  EXPECT_EQ(verdict(with(58, 10)),
            "row group 3, column text holds more than the rows that its row group promises "
            "(behind row 58)");
}

// Column chunks that lie over each other, or reach beyond the file, have more bytes together than it has.
TEST_F(ParquetTest, ChunksThatTakeMoreThanTheFileAreRefused) {
  const std::string whole = read_text(fixture("snappy"));
  // ColumnMetaData {3: path, 4: codec (snappy), 5: values, 6: size unpacked, 7: size packed, ...} of each row group.
  std::vector<size_t> places;
  const std::string path = "\x18\x04text\x15\x02\x16";
  for (size_t at = whole.find(path); at != std::string::npos; at = whole.find(path, at + 1)) {
    const size_t unpacked = at + path.size() + 1;
    ASSERT_EQ(whole[unpacked], '\x16');
    ASSERT_EQ(whole[unpacked + 3], '\x16');
    places.push_back(unpacked + 4);
  }
  ASSERT_EQ(places.size(), 4u);
  uint64_t before_last = 0;
  for (size_t i = 0; i < 3; ++i) {
    const auto low = static_cast<uint8_t>(whole[places[i]]), high = static_cast<uint8_t>(whole[places[i] + 1]);
    before_last += ((low & 127u) | (uint64_t{high} << 7)) / 2;
  }
  const auto with = [&](const std::map<size_t, uint64_t>& sizes) {
    std::string changed = whole;
    for (const auto& [group, size] : sizes) changed.replace(places[group], 2, varint(size));
    EXPECT_EQ(changed.size(), whole.size());
    return verdict(changed);
  };
  const auto says = [&](int group) {
    return fmt::format("row group {}: the column chunks up to here take more bytes than the {} of the file", group,
                       whole.size());
  };
  const uint64_t half = whole.size() / 2;
  EXPECT_EQ(with({{0, half}, {1, whole.size() - half + 1}}), says(1));
  EXPECT_EQ(with({{3, whole.size() - before_last + 1}}), says(3));
  EXPECT_EQ(with({}), "");
}

// A page that says that it is huge, once unpacked or as it lies in the file.
TEST_F(ParquetTest, HugePagesAreRefused) {
  const std::string whole = read_text(fixture("odd_bytes"));
  // PageHeader {1: type = dictionary (0x15 0x04), 2: unpacked size (0x15), 3: packed size (0x15), ...} behind the
  // magic.
  ASSERT_EQ(whole.substr(4, 3), "\x15\x04\x15");
  ASSERT_EQ(whole[8], '\x15');
  for (const size_t at : {size_t{7}, size_t{9}}) {
    std::string bytes = whole;
    bytes.replace(at, 1, varint(2'000'000'000));
    const std::string message = verdict(bytes);
    EXPECT_TRUE(message.starts_with("reading it needs more than 192 MiB")) << message;
  }
}

// Three bytes a column, a kilobyte each once read.
TEST(ParquetFooter, CostIsFoundBeforehand) {
  const auto says = [](const std::string& footer) {
    return error_of(Exit::kInput, [&] { check_parquet_footer(footer, "x"); });
  };
  // FileMetaData {4: list of one struct, RowGroup {1: list of many structs, ColumnChunk {2: i64 0}}}.
  const auto row_group = [](size_t columns) {
    std::string list = "\x19\xfc";  // field 1, a list; its length follows
    for (size_t n = columns;; n >>= 7) {
      list += static_cast<char>(n >= 128 ? (n & 127) | 128 : n);
      if (n < 128) break;
    }
    for (size_t i = 0; i < columns; ++i) list += std::string("\x26\x00\x00", 3);
    return std::string("\x49\x1c", 2) + list + std::string(2, '\0');
  };
  check_parquet_footer(row_group(1000), "x");
  EXPECT_TRUE(says(row_group(3'000'000)).starts_with("x: its footer describes more row groups and columns than 192"));
  EXPECT_EQ(says(row_group(3).substr(0, 9)), "x: its footer ends within a value (byte 9 of 9)");
  EXPECT_EQ(says(row_group(3) + "x"), "x: bytes follow the end of its footer");
  EXPECT_EQ(says(std::string(100, '\x1c')), "x: its footer is nested more than 32 deep (byte 33 of 100)");
  EXPECT_EQ(says("\x19\xf6\xff\xff\xff\xff\x07"), "x: its footer has a list that is longer than itself (byte 7 of 7)");
  EXPECT_EQ(says("\x1d"), "x: its footer has a value of no known type (byte 1 of 1)");
}

// Every byte of a file changed in turn: a refusal or another text, never a crash, a hang or memory without bound.
TEST_F(ParquetTest, AnyChangedByteIsSurvived) {
  const std::string whole = read_text(fixture("snappy"));
  int refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 0xff : 0x01));
    refused += verdict(bytes) != "";
  }
  EXPECT_GT(refused, static_cast<int>(whole.size() / 4));
}

TEST(ParquetAbsence, SaysHowToGetIt) {
  if (parquet_library().module != nullptr) GTEST_SKIP() << "the module is here";
  const std::string message =
      error_of(Exit::kUnavailable, [] { open_records(find_source(fixture("snappy"), "", {}), kText, {}); });
  EXPECT_NE(message.find("./run build"), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa
