#include <gtest/gtest.h>

#include <random>

#include "base/file.h"
#include "base/sha256.h"
#include "data/input.h"
#include "data/readers/readers.h"
#include "data/record.h"
#include "tests/base/support.h"
#include "tests/data/compressed.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::gzip;
using testing::TempFolder;
using testing::zstd;

// What the records of a file hold, and what finish() says of it.
struct Read {
  std::vector<std::string> texts, places;
  std::vector<SourceFile> files;
  SourcePackage package;
};

Read read(const std::string& path, const DataConfig& config, const RecordSpec& spec) {
  const std::unique_ptr<RecordReader> reader = open_records(find_source(path, "", config), spec, config);
  Read all;
  for (Record record; reader->next(record);) {
    all.texts.push_back(record.texts.at(0));
    all.places.push_back(record.where);
  }
  EXPECT_EQ(reader->progress(), 1);
  reader->finish();
  all.files = reader->files();
  all.package = reader->package();
  return all;
}

class ReadersTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    write_atomic(folder_ / name, content);
    return folder_ / name;
  }
  std::vector<std::string> texts(const std::string& path) {
    return read(path, config_, {.columns = {config_.text_key}, .messages = ""}).texts;
  }
  std::string refusal(const std::string& path) {
    return error_of(Exit::kInput, [&] { texts(path); });
  }

  TempFolder folder_;
  DataConfig config_;
};

TEST_F(ReadersTest, TextByBlankLines) {
  const std::string path = file("a.txt", "\xef\xbb\xbf\n\none\r\ntwo\n \t\n\n  three\n\n\n");
  EXPECT_EQ(texts(path), (std::vector<std::string>{"one\ntwo", "three"}));
  config_.document_separator = "line";
  EXPECT_EQ(texts(path), (std::vector<std::string>{"one", "two", "three"}));
  config_.document_separator = "none";
  EXPECT_EQ(texts(path), (std::vector<std::string>{"one\ntwo\n \t\n\n  three"}));
}

TEST_F(ReadersTest, JsonLines) {
  const std::string path = file(
      "a.jsonl", "{\"text\": \"one\\n\\u00e9\", \"meta\": {\"a\": [1]}}\n\n  {\"text\": \"\"}\r\n{\"text\":\"two\"}");
  const Read all = read(path, config_, {.columns = {"text"}, .messages = ""});
  EXPECT_EQ(all.texts, (std::vector<std::string>{"one\n\xc3\xa9", "", "two"}));
  EXPECT_EQ(all.places, (std::vector<std::string>{path + ":1", path + ":3", path + ":4"}));
  ASSERT_EQ(all.files.size(), 1u);
  EXPECT_EQ(all.files[0].sha256, sha256(read_text(path)));
  EXPECT_EQ(all.files[0].bytes, read_text(path).size());
}

TEST_F(ReadersTest, BadJsonLinesNameTheLine) {
  const auto says = [&](const std::string& line) {
    const std::string path = file("a.jsonl", "{\"text\": \"good\"}\n" + line + "\n");
    const std::string message = refusal(path);
    EXPECT_TRUE(message.starts_with(path + ":2: ")) << message;
    return message.substr(std::min(message.size(), path.size() + 4));
  };
  EXPECT_TRUE(says("{\"text\": \"cut").starts_with("not JSON at byte "));
  EXPECT_TRUE(says("{\"text\": 'x'}").starts_with("not JSON at byte "));
  EXPECT_TRUE(says("{\"text\": \"\xff\"}").starts_with("not JSON at byte "));
  EXPECT_TRUE(says("{\"text\": \"a\"} {}").starts_with("not JSON at byte "));
  EXPECT_EQ(says("[1]"), "is array, expected an object");
  EXPECT_EQ(says("{\"txt\": \"a\", \"b\": 1}"), "no key \"text\" (data.text_key); found b, txt");
  EXPECT_EQ(says("{}"), "no key \"text\" (data.text_key); found none");
  EXPECT_EQ(says("{\"text\": 3}"), "\"text\" is number, expected a string");
  EXPECT_EQ(says("{\"text\": \"a\", \"text\": \"b\"}"), "key \"text\" stands twice in one object");
  EXPECT_EQ(says("{\"text\": " + std::string(70, '[') + std::string(70, ']') + "}"), "nested more than 64 deep");
  EXPECT_EQ(says("{\"text\": \"a\\u0000b\"}"),
            "holds a byte 0 (byte 1 of the document), which separates documents; is this UTF-16 or no text?");
}

TEST_F(ReadersTest, AByteZeroInTextIsRefused) {
  const std::string path = file("a.txt", std::string("fine\n\nb\0c", 9));
  EXPECT_EQ(
      refusal(path),
      path + ":3: holds a byte 0 (byte 1 of the document), which separates documents; is this UTF-16 or no text?");
}

TEST_F(ReadersTest, PackedInputUnpacks) {
  std::string text;
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) text += "line " + std::to_string(random() % 100000) + "\n\n";
  const std::vector<std::string> expected = texts(file("a.txt", text));
  EXPECT_EQ(expected.size(), 100000u);
  EXPECT_EQ(texts(file("a.txt.gz", gzip(text))), expected);
  EXPECT_EQ(texts(file("a.txt.zst", zstd(text))), expected);
  // Members and frames end to end.
  const size_t half = text.size() / 2;
  EXPECT_EQ(texts(file("b.txt.gz", gzip(text.substr(0, half)) + gzip(text.substr(half)))), expected);
  EXPECT_EQ(texts(file("b.txt.zst", zstd(text.substr(0, half)) + zstd(text.substr(half)))), expected);
}

TEST_F(ReadersTest, DamagedPackedInputIsRefused) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i * 7919 % 100000);
  const std::string gz = gzip(text), zst = zstd(text);
  for (const size_t cut : {gz.size() / 2, gz.size() - 1, gz.size() - 8, size_t{5}}) {
    const std::string message = refusal(file("a.txt.gz", gz.substr(0, cut)));
    EXPECT_NE(message.find("gzip data is cut short"), std::string::npos) << cut << ": " << message;
  }
  for (const size_t cut : {zst.size() / 2, zst.size() - 1, size_t{5}}) {
    const std::string message = refusal(file("a.txt.zst", zst.substr(0, cut)));
    EXPECT_NE(message.find("zstd data is cut short"), std::string::npos) << cut << ": " << message;
  }
  std::string broken = gz;
  broken[gz.size() / 2] = static_cast<char>(broken[gz.size() / 2] ^ 0xff);
  // The library's words are quoted, in brackets.
  const auto damaged = [&](const std::string& name, const std::string& bytes, const std::string& library) {
    const std::string message = refusal(file(name, bytes)), quoted = " (" + library + ": \"";
    EXPECT_NE(message.find(": damaged "), std::string::npos) << message;
    EXPECT_NE(message.find(quoted), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with("\")")) << message;
  };
  damaged("a.txt.gz", broken, "zlib");
  damaged("a.txt.gz", gz + "trailing words", "zlib");
  damaged("a.txt.zst", zst + "trailing words", "zstd");
}

TEST_F(ReadersTest, BombsAreBounded) {
  const std::string bomb = zstd(std::string(size_t{70} << 20, 'x'));
  ASSERT_LT(bomb.size() * kMaxUnpackRatio, kFreeUnpackedBytes);
  EXPECT_NE(refusal(file("a.txt.zst", bomb)).find("unpack to more than"), std::string::npos);
}

TEST_F(ReadersTest, SourceRecordNamesAndChecksTheFile) {
  const std::string path = file("a.txt", "words\n");
  file("SOURCE.json", "{\"name\": \"pack\", \"version\": \"1.2\", \"a.txt\": \"" + sha256("words\n") + "\"}");
  const Read all = read(path, config_, {.columns = {"text"}, .messages = ""});
  EXPECT_EQ(all.package.name, "pack");
  EXPECT_EQ(all.package.version, "1.2");
  file("a.txt", "other\n");
  EXPECT_EQ(refusal(path), path + ": has SHA-256 " + sha256("other\n") + ", expected " + sha256("words\n") + " (" +
                               (folder_ / "SOURCE.json") + ")");
}

TEST_F(ReadersTest, ADictDatabase) {
  // Offsets and lengths in base 64: M = 12, U = 20, V = 21, b = 27, x = 49.
  const std::string data = "00about the database\nAbc \\Ab\"c\\, n.\n   A thing.\n\nSecond entry";
  ASSERT_EQ(data.substr(21, 27), "Abc \\Ab\"c\\, n.\n   A thing.\n");
  const std::string path = file("t.index", "00-database-info\tA\tU\nabc\tV\tb\nabc again\tV\tb\nsecond\tx\tM\n");
  file("t.dict.dz", gzip(data));
  for (const std::string name : {"t.index", "t.dict.dz", "t.dict"})
    EXPECT_EQ(texts(folder_ / name), (std::vector<std::string>{"Abc, n. A thing.", "Second entry"})) << name;
  config_.dictd_text = "layout";
  EXPECT_EQ(texts(path).at(0), "Abc \\Ab\"c\\, n. A thing.");
  config_.dictd_text = "raw";
  EXPECT_EQ(texts(path).at(0), "Abc \\Ab\"c\\, n.\n   A thing.");

  file("t.index", "abc\tA\n");
  EXPECT_EQ(refusal(path), path + ":1: expected headword, offset and length in base64 digits, parted by tabs");
  file("t.index", "abc\tA\tB\nabc\tA\t!\n");
  EXPECT_EQ(refusal(path), path + ":2: expected headword, offset and length in base64 digits, parted by tabs");
  file("t.index", "abc\tA\tZZZ\n");
  EXPECT_EQ(refusal(path), path + ":1: entry of 104025 bytes at 0 passes the end of the data (61 bytes)");
}

TEST(DictdProse, ReadsAsEnglish) {
  EXPECT_EQ(
      dictd_prose(
          "Larva \\Lar\"va\\ (l[aum]r\"v[.a]), n.; pl. L. {Larv[ae]}\n   (l[aum]r\"v[ae]), E. {Larvas}. [L. larva\n"
          "   ghost, specter, mask.]\n   1. (Zool.) Any young insect from the time that it hatches\n"
          "      from the egg.\n      [1913 Webster]\n\n   2. The early form of any animal. [Obs.]\n"
          "      [1913 Webster] Larvacea\n\n"),
      "Larva, n.; pl. L. Larvae (larvae), E. Larvas. 1. (Zool.) Any young insect from the time that it hatches from "
      "the "
      "egg.\n2. The early form of any animal.");
  EXPECT_EQ(dictd_prose("Suave, a. Bland. -- {Suave\"ly}, adv. -- Ex*pan\"sive*ly, adv."),
            "Suave, a. Bland. -- Suavely, adv. -- Expansively, adv.");
  EXPECT_EQ(dictd_prose("fa[,c]ade, na[\"i]ve, co[\"o]perate, [thorn]orn, [=oo]ze, cr[^e]pe [R.]"),
            "facade, naive, cooperate, thorn, ooze, crepe");
  EXPECT_EQ(dictd_prose("one\n         He said \"yes.\"       --Sydney\n                           Smith.\n"),
            "one He said \"yes.\" --Sydney Smith.");
  EXPECT_EQ(dictd_prose("an open [bracket stays, a \\ too"), "an open [bracket stays, a \\ too");
  EXPECT_EQ(dictd_prose(""), "");
}

}  // namespace
}  // namespace mantissa
