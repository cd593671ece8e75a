// Which files a path means, columns and conversations of JSON lines, and what malformed files cost.
#include "data/record.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "data/readers/json_columns.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::mutated;
using testing::TempFolder;

class RecordTest : public ::testing::Test {
 protected:
  // A small file of the kind that its name tells.
  std::string file(const std::string& name, const std::string& content = "words\n") {
    const std::filesystem::path path(folder_ / name);
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  // The files that are found, below the folder, and the format in front.
  std::string found(const std::string& path, const std::string& split = "") {
    const Source source = find_source(folder_ / path, split, config_);
    std::string names = source.format + (source.tokens ? "!" : "");
    for (const std::string& name : source.files) names += " " + name.substr(folder_.path().size() + 1);
    return names;
  }
  std::string refused(const std::string& path, const std::string& split = "", Exit code = Exit::kInput) {
    const std::string message = error_of(code, [&] { found(path, split); });
    const std::string front = "data: " + folder_ / path;
    EXPECT_TRUE(message.starts_with(front)) << message;
    return message.substr(std::min(message.size(), front.size()));
  }

  TempFolder folder_;
  DataConfig config_;
};

TEST_F(RecordTest, FormatsByName) {
  for (const char* name : {"a.txt", "a.TEXT", "a.md", "a.txt.gz", "a.md.zst"})
    EXPECT_EQ(found((file(name), name)), std::string("text ") + name);
  for (const char* name : {"a.jsonl", "a.ndjson", "a.jsonl.zst", "a.json", "a.json.gz"})
    EXPECT_EQ(found((file(name), name)), std::string("jsonl ") + name);
  EXPECT_EQ(found((file("a.parquet"), "a.parquet")), "parquet a.parquet");
  for (const char* name : {"a.index", "a.dict", "a.dict.dz"})
    EXPECT_EQ(found((file(name), name)), std::string("dictd ") + name);
  EXPECT_EQ(refused((file("a.dat"), "a.dat"), "", Exit::kUsage),
            ": its name does not tell the format; set data.format to text, jsonl, dictd, parquet, nanogpt, llmc or "
            "megatron");
  config_.format = "text";
  EXPECT_EQ(found("a.dat"), "text a.dat");
  config_.format = "auto";
  for (const char* name : {"a.arrow", "a.csv", "a.npy", "a.pt", "a.tar.gz", "a.jsonl.xz"})
    EXPECT_NE(refused((file(name), name)), "") << name;
  EXPECT_EQ(refused("none.txt"), ": no such file or folder");
}

TEST_F(RecordTest, TokenFilesByTheirBytes) {
  const auto words = [](std::initializer_list<int32_t> values) {
    std::string header(1024, '\0');
    std::copy(values.begin(), values.end(), reinterpret_cast<int32_t*>(header.data()));
    return header;
  };
  file("nano.bin", "abcd");
  EXPECT_EQ(found("nano.bin"), "nanogpt! nano.bin");
  file("llmc.bin", words({20240520, 1, 0}));
  EXPECT_EQ(found("llmc.bin"), "llmc! llmc.bin");
  file("m.bin", "abcd");
  file("m.idx", std::string("MMIDIDX\0\0", 9) + std::string(25, '\0'));
  for (const char* name : {"m.bin", "m.idx", "m"}) EXPECT_EQ(found(name), "megatron! m.bin") << name;
  EXPECT_NE(refused((file("zip.bin", "PK\x03\x04rest"), "zip.bin")).find("a zip archive"), std::string::npos);
  EXPECT_NE(refused((file("pickle.bin", "\x80\x02}q"), "pickle.bin")).find("a Python pickle"), std::string::npos);
  EXPECT_NE(refused((file("lfs.bin", "version https://git-lfs.github.com/spec/v1\n"), "lfs.bin")).find("git lfs pull"),
            std::string::npos);
  EXPECT_NE(refused((file("page.bin", "<!DOCTYPE html>"), "page.bin")).find("a web page"), std::string::npos);
}

TEST_F(RecordTest, FoldersAndSplits) {
  for (const char* name :
       {"set/train-00001-of-00002.parquet", "set/train-00000-of-00002.parquet", "set/test.parquet", "set/README.md",
        "set/LICENSE.txt", "set/.gitattributes", "set/dataset_infos.json", "set/SOURCE.json", "set/trainer-0.parquet"})
    file(name);
  EXPECT_EQ(found("set"),
            "parquet set/test.parquet set/train-00000-of-00002.parquet set/train-00001-of-00002.parquet "
            "set/trainer-0.parquet");
  EXPECT_EQ(found("set", "train"), "parquet set/train-00000-of-00002.parquet set/train-00001-of-00002.parquet");
  EXPECT_EQ(found("set", "test"), "parquet set/test.parquet");
  EXPECT_EQ(refused("set", "validation"),
            ": no data files named validation.* or validation-*, nor a folder validation/ with them; the folder holds "
            ".gitattributes, LICENSE.txt, README.md, SOURCE.json, dataset_infos.json, test.parquet, "
            "train-00000-of-00002.parquet, train-00001-of-00002.parquet");

  // A downloaded repository; a folder for each split.
  for (const char* name :
       {"repo/README.md", "repo/data/train-0.jsonl", "repo/data/test-0.jsonl", "splits/train/b.jsonl.gz",
        "splits/train/a.jsonl", "splits/val/c.jsonl", "deep/data/train/x.txt"})
    file(name);
  EXPECT_EQ(found("repo"), "jsonl repo/data/test-0.jsonl repo/data/train-0.jsonl");
  EXPECT_EQ(found("repo", "train"), "jsonl repo/data/train-0.jsonl");
  EXPECT_EQ(found("splits", "train"), "jsonl splits/train/a.jsonl splits/train/b.jsonl.gz");
  EXPECT_EQ(found("deep", "train"), "text deep/data/train/x.txt");
  EXPECT_EQ(refused("splits"), ": no data files; the folder holds train/, val/");

  // A name that only ends in the split is not of it; a file has no splits; patterns.
  file("gsm/gsm8k-train.jsonl");
  EXPECT_NE(refused("gsm", "train"), "");
  EXPECT_EQ(error_of(Exit::kUsage, [&] { found("set/test.parquet", "train"); }),
            "data: " + folder_ / "set/test.parquet" +
                " is no folder, so it has no split \"train\"; leave data.split and validation_split empty");
  EXPECT_EQ(found("set/train-*.parquet"), "parquet set/train-00000-of-00002.parquet set/train-00001-of-00002.parquet");
  EXPECT_EQ(refused("set/valid*"), ": no file has such a name");
}

TEST_F(RecordTest, FoldersOfSeveralFormats) {
  for (const char* name : {"mix/a.txt", "mix/b.jsonl", "mix/c.dat", "mix/d.json"}) file(name);
  EXPECT_EQ(refused("mix"), ": holds files of several formats: a.txt is text, b.jsonl is jsonl; set data.format");
  config_.format = "jsonl";
  EXPECT_EQ(found("mix"), "jsonl mix/b.jsonl");
  config_.format = "text";
  EXPECT_EQ(found("mix"), "text mix/a.txt");
  for (const char* name : {"odd/one", "odd/two", "odd/a.parquet"}) file(name);
  EXPECT_EQ(found("odd"), "text odd/one odd/two");
  for (const char* name : {"dict/a.index", "dict/a.dict.dz", "dict/b.index", "dict/b.dict"}) file(name);
  config_.format = "auto";
  EXPECT_EQ(found("dict"), "dictd dict/a.index dict/b.index");
  for (const char* name : {"nano/train.bin", "nano/val.bin"}) file(name);
  EXPECT_EQ(found("nano", "train"), "nanogpt! nano/train.bin");
}

TEST_F(RecordTest, MdsFoldersAndTheirText) {
  const std::string fixtures = std::string(MANTISSA_SOURCE_DIR) + "/tests/fixtures/mds";
  std::vector<std::vector<std::string>> texts;
  for (const char* name : {"/text", "/text_gz"}) {
    const Source source = find_source(fixtures + name, "", config_);
    EXPECT_EQ(source.format, "mds");
    EXPECT_FALSE(source.tokens);
    const std::unique_ptr<RecordReader> reader = open_records(source, {.columns = {"text"}, .messages = ""}, config_);
    texts.emplace_back();
    for (Record record; reader->next(record);) texts.back().push_back(record.texts.at(0));
    EXPECT_EQ(reader->progress(), 1);
    reader->finish();
    EXPECT_GE(reader->files().size(), 2u);
    EXPECT_EQ(reader->files().at(0).sha256, sha256_file(fixtures + name + "/index.json"));
  }
  EXPECT_EQ(texts[0], texts[1]);
  ASSERT_GT(texts[0].size(), 1u);
  EXPECT_EQ(texts[0][1], "Zwei\nZeilen");
  EXPECT_TRUE(find_source(fixtures + "/tokens", "", config_).tokens);
  // A folder of such folders, and one of them as a split.
  std::filesystem::create_directories(folder_ / "set");
  std::filesystem::copy(fixtures + "/text", folder_ / "set/train", std::filesystem::copy_options::recursive);
  std::filesystem::copy(fixtures + "/text_gz", folder_ / "set/val", std::filesystem::copy_options::recursive);
  EXPECT_EQ(found("set"), "mds set/train set/val");
  EXPECT_EQ(found("set", "val"), "mds set/val");
  config_.text_key = "body";
  const Source source = find_source(folder_ / "set", "", config_);
  EXPECT_EQ(error_of(Exit::kInput, [&] { open_records(source, {.columns = {"body"}, .messages = ""}, config_); }),
            folder_ / "set/train" + ": no key \"body\" (data.text_key); found meta, n, text");
}

// JSON lines.

class JsonLines : public ::testing::Test {
 protected:
  Record read(const std::string& line, const RecordSpec& spec) {
    Record record;
    record.where = "x:1";
    JsonColumns(spec, config_, "line").read(line, record);
    return record;
  }
  std::string refused(const std::string& line, const RecordSpec& spec) {
    return error_of(Exit::kInput, [&] { read(line, spec); });
  }
  const RecordSpec pair_{.columns = {"q", "a"}, .messages = ""};
  const RecordSpec chat_{.columns = {}, .messages = "m"};
  DataConfig config_;
};

TEST_F(JsonLines, SeveralColumns) {
  const Record record =
      read(R"( {"a" : "\u00e9\ud834\udd1e\n\"\\\/", "x": [1, -0.5e+3, {"q": null}], "q":"two" } )", pair_);
  EXPECT_EQ(record.texts, (std::vector<std::string>{"two", "\xc3\xa9\xf0\x9d\x84\x9e\n\"\\/"}));
  EXPECT_EQ(read(R"({"q": null, "\u0061": "b"})", pair_).texts, (std::vector<std::string>{"", "b"}));
  config_.prompt_key = "q", config_.response_key = "a";
  EXPECT_EQ(refused(R"({"q": "x", "b": 1})", pair_), "x:1: no key \"a\" (data.response_key); found b, q");
  EXPECT_EQ(refused(R"({"q": ["x"], "a": ""})", pair_),
            "x:1: \"q\"[0] is string, expected {role, content} or {from, value}");
  EXPECT_EQ(refused(R"({"q": "x", "a": "\ud834"})", pair_),
            "x:1: not JSON at byte 18: expected a pair of surrogates, found \"\\ud834\"}\"");
}

TEST_F(JsonLines, Conversations) {
  const Record record = read(
      R"({"id": 7, "m": [{"role": "user", "content": "hi"}, {"content": "\"yes\"", "w": [{}], "role": "assistant"}]})",
      chat_);
  ASSERT_EQ(record.turns.size(), 2u);
  EXPECT_EQ(record.turns[1].role, "assistant");
  EXPECT_EQ(record.turns[1].content, "\"yes\"");
  EXPECT_TRUE(read(R"({"m": []})", chat_).turns.empty());
  EXPECT_TRUE(read(R"({"m": null})", chat_).turns.empty());
  config_.messages_key = "m";
  EXPECT_EQ(refused("{}", chat_), "x:1: no key \"m\" (data.messages_key); found none");
  EXPECT_EQ(refused(R"({"m": "hi"})", chat_),
            "x:1: \"m\" is string, expected an array of {role, content} or {from, value}");
  EXPECT_EQ(refused(R"({"m": ["hi"]})", chat_), "x:1: \"m\"[0] is string, expected {role, content} or {from, value}");
  EXPECT_EQ(refused(R"({"m": [{"role": "user"}]})", chat_), "x:1: \"m\"[0] has no \"content\"");
  EXPECT_EQ(refused(R"({"m": [{"role": "user", "content": null}]})", chat_),
            "x:1: \"m\"[0].content is null, expected a string");
  EXPECT_EQ(refused(R"({"m": [{"role": "user", "role": "user", "content": ""}]})", chat_),
            "x:1: key \"role\" stands twice in one object");
}

TEST_F(JsonLines, PathsLeadThroughObjects) {
  const RecordSpec deep{.columns = {"a.b.text"}, .messages = ""};
  const auto text = [&](const char* line) { return read(line, deep).texts.at(0); };
  EXPECT_EQ(text(R"({"id": 1, "a": {"x": [{"text": 1}], "b": {"text": "deep", "more": 2}}, "z": {}})"), "deep");
  EXPECT_EQ(text(R"({"a.b.text": "a key of that name"})"), "a key of that name");
  EXPECT_EQ(text(R"({"a": {"b.text": "half a path"}, "a.b": 3})"), "half a path");
  for (const char* null : {R"({"a": {"b": {"text": null}}})", R"({"a": {"b": null}})", R"({"a": null})"})
    EXPECT_EQ(text(null), "") << null;
  config_.text_key = "a.b.text";
  EXPECT_EQ(refused(R"({"a": {"b": {"txt": ""}}, "id": 1})", deep),
            "x:1: no key \"a.b.text\" (data.text_key); found a, id");
  EXPECT_EQ(refused(R"({"a": [{"b": {"text": ""}}]})", deep), "x:1: no key \"a.b.text\" (data.text_key); found a");
  EXPECT_EQ(refused(R"({"a": {"b": {"text": 3}}})", deep), "x:1: \"a.b.text\" is number, expected a string");
  EXPECT_EQ(refused(R"({"a": {"b": {"text": ""}}, "a.b.text": ""})", deep),
            "x:1: \"a.b.text\" is a key and a path, which of them holds the text is not clear");
  EXPECT_EQ(refused(R"({"a": {"b": {"text": "", "x": 1, "x": 2}}})", deep),
            "x:1: key \"x\" stands twice in one object");
  const RecordSpec talk{.columns = {}, .messages = "data.messages"};
  EXPECT_EQ(read(R"({"data": {"messages": [{"role": "user", "content": "q"}]}})", talk).turns.at(0).content, "q");
}

TEST_F(JsonLines, ConversationsOfOtherShapes) {
  // ShareGPT.
  const Record shared = read(
      R"({"m": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})",
      chat_);
  ASSERT_EQ(shared.turns.size(), 3u);
  EXPECT_EQ(shared.turns[0].role + shared.turns[1].role + shared.turns[2].role, "systemuserassistant");
  EXPECT_EQ(shared.turns[2].content, "a");
  EXPECT_FALSE(shared.turns[1].context);
  EXPECT_EQ(refused(R"({"m": [{"from": "human", "content": "q"}]})", chat_), "x:1: \"m\"[0] has no \"value\"");
  EXPECT_EQ(refused(R"({"m": [{"from": "human", "role": "user", "content": "q"}]})", chat_),
            "x:1: \"m\"[0] has \"from\" and \"role\", expected one of them");
  // TRL's prompt and completion, in any order of the keys.
  for (
      const char* line : {
          R"({"q": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}],
               "a": [{"role": "assistant", "content": "4"}]})",
          R"({"a": [{"role": "assistant", "content": "4"}],
               "q": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}]})"}) {
    const Record record = read(line, pair_);
    std::string found;
    for (const Turn& turn : record.turns) found += turn.content + (turn.context ? "? " : "! ");
    EXPECT_EQ(found, "1? 2? 3? 4! ");
    EXPECT_EQ(record.texts, (std::vector<std::string>{"", ""}));
  }
  EXPECT_EQ(refused(R"({"q": [{"role": "user", "content": "1"}], "a": "4"})", pair_),
            "x:1: \"q\" is a list of messages and \"a\" a text, expected two of a kind");
  const RecordSpec text{.columns = {"t"}, .messages = ""};
  EXPECT_EQ(refused(R"({"t": []})", text), "x:1: \"t\" is array, expected a string");
}

TEST_F(JsonLines, WhatIsNotTakenIsNamed) {
  EXPECT_EQ(refused(R"({"m": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]})", chat_),
            "x:1: \"m\"[0].content is a list of parts (type text, image, ...), which are not taken; expected a string: "
            "join the texts");
  for (const char* call : {R"("tool_calls": [{"id": 1}])", R"("function_call": {"name": "f"})"})
    for (const char* content : {"null", "\"\""})
      EXPECT_EQ(refused(fmt::format(R"({{"m": [{{"role": "assistant", "content": {}, {}}}]}})", content, call), chat_),
                "x:1: \"m\"[0] calls tools (tool_calls), which are not taken; leave such conversations out");
  // Empty or null calls are none.
  EXPECT_EQ(read(R"({"m": [{"role": "user", "content": "q", "tool_calls": [ ], "function_call": null}]})", chat_)
                .turns.size(),
            1u);
}

// Files that are one array.
TEST_F(RecordTest, JsonArrays) {
  const RecordSpec spec{.columns = {"text"}, .messages = ""};
  const auto texts = [&](const std::string& content) {
    const std::string path = file("a.json", content);
    const std::unique_ptr<RecordReader> reader = open_records(find_source(path, "", config_), spec, config_);
    std::string all;
    for (Record record; reader->next(record);) all += record.texts.at(0) + "|";
    EXPECT_EQ(reader->progress(), 1);
    reader->finish();
    EXPECT_EQ(reader->files().at(0).sha256, sha256(content));
    return all;
  };
  EXPECT_EQ(texts(R"([{"text": "a, b]"}, {"text": "c\"]}", "n": [[1, 2], {"x": "["}]}])"), "a, b]|c\"]}|");
  EXPECT_EQ(texts("\xef\xbb\xbf \n[\n  {\n    \"text\": \"one\"\n  },\n  {\"text\": null}\n]\n\n"), "one||");
  EXPECT_EQ(texts("[]"), "");
  // Records across the pieces that a file is read in.
  std::string large = "[", expected;
  for (int i = 0; i < 40; ++i) {
    const std::string text(100'003, static_cast<char>('a' + i % 26));
    large += (i == 0 ? "" : ",") + std::string("{\"text\": \"") + text + "\\\\\"}";
    expected += text + "\\|";
  }
  EXPECT_EQ(texts(large + "]"), expected);

  const auto refusal = [&](const std::string& content) {
    const std::string message = error_of(Exit::kInput, [&] { texts(content); });
    const std::string front = folder_ / "a.json";
    EXPECT_TRUE(message.starts_with(front)) << message;
    return message.substr(std::min(message.size(), front.size()));
  };
  EXPECT_EQ(refusal("[\n{\"text\": \"\"},\n\n{\"text\": 4}]"), ":4: record 2: \"text\" is number, expected a string");
  EXPECT_EQ(refusal("[{\"text\": \"a\"}, 3]"), ":1: record 2: is number, expected an object");
  EXPECT_EQ(refusal("[{\"text\": \"a\"} x]"),
            ":1: record 1: not JSON at byte 15: expected the end of the record, found \"x\"");
  EXPECT_EQ(refusal("[{\"text\": \"a\"},\n]"), ":2: behind record 1 of the array: expected a record, found \"]\"");
  EXPECT_EQ(refusal("[{\"text\": \"a\"}"), ":1: the file ends within record 1 of the array");
  EXPECT_EQ(refusal("[{\"text\": \"a"), ":1: the file ends within record 1 of the array");
  EXPECT_EQ(refusal("["), ":1: behind record 0 of the array: expected a record, found the end of the file");
  EXPECT_EQ(refusal("[]\n[]"), ":2: behind record 0 of the array: expected the end of the file, found \"[]\"");
  EXPECT_EQ(refusal("[" + std::string(size_t{65} << 20, ' ') + "\"" + std::string(size_t{65} << 20, 'x') + "\"]"),
            ":1: record 1 of the array has more than 64 MiB");
}

// The scanner takes what base/json takes and finds the same; numbers are not evaluated.
TEST_F(JsonLines, AgreeWithTheParserOnChangedLines) {
  const RecordSpec both{.columns = {"t"}, .messages = "m"};
  const std::string good =
      R"({"t": "a\u00e9\n\ud834\udd1e", "n": [0, -1.5e-7, true, {"k": null}], "m": [{"role": "user", "content": "x\"y"}]})";
  int taken = 0, refusals = 0;
  for (uint32_t seed = 0; seed < 40000; ++seed) {
    const std::string line = mutated(good, seed);
    if (line.find('\0') != std::string::npos) continue;
    std::string why, parser_why;
    Record record;
    try {
      record = read(line, both);
    } catch (const Error& error) {
      why = error.what();
    }
    std::string text;
    std::vector<std::pair<std::string, std::string>> turns;
    try {
      const Json root = parse_json(line, "x:1");
      if (!root.is_object()) fail(Exit::kInput, "no object");
      const Json& t = member(root, "t", "x");
      if (!t.is_null()) text = t.get<std::string>();
      const Json& m = member(root, "m", "x");
      if (!m.is_null() && !m.is_array()) fail(Exit::kInput, "no array");
      for (const Json& turn : m)
        turns.emplace_back(member(turn, "role", "x").get<std::string>(),
                           member(turn, "content", "x").get<std::string>());
      if (text.find('\0') != std::string::npos) fail(Exit::kInput, "byte 0");
      for (const auto& turn : turns)
        if (turn.second.find('\0') != std::string::npos) fail(Exit::kInput, "byte 0");
    } catch (const std::exception& error) {
      parser_why = error.what();
    }
    if (parser_why.find("number overflow") != std::string::npos) continue;
    ASSERT_EQ(why.empty(), parser_why.empty()) << line << "\n" << why << "\n" << parser_why;
    if (!why.empty()) {
      ++refusals;
      continue;
    }
    ++taken;
    EXPECT_EQ(record.texts.at(0), text) << line;
    ASSERT_EQ(record.turns.size(), turns.size()) << line;
    for (size_t i = 0; i < turns.size(); ++i)
      EXPECT_EQ(std::make_pair(record.turns[i].role, record.turns[i].content), turns[i]) << line;
  }
  EXPECT_GT(taken, 500);
  EXPECT_GT(refusals, 1000);
}

// What malformed files cost.

constexpr bool sanitized() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return false;
#endif
}

// Reads all of `path` in a process of its own: its exit code, and at most a second and 300 MB, but for the sanitizers.
std::string cost(const std::string& path, const DataConfig& config, const RecordSpec& spec) {
  int channel[2];
  EXPECT_EQ(pipe(channel), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string message = "read";
    int code = 0;
    try {
      const std::unique_ptr<RecordReader> reader = open_records(find_source(path, "", config), spec, config);
      for (Record record; reader->next(record);) {
      }
      reader->finish();
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
      message = error.what();
    }
    const ssize_t written = write(channel[1], message.data(), message.size());
    _exit(written < 0 ? 99 : code);
  }
  close(channel[1]);
  std::string message(4096, '\0');
  message.resize(static_cast<size_t>(std::max<ssize_t>(0, read(channel[0], message.data(), message.size()))));
  close(channel[0]);
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  // Of the processor: other processes may run beside the test.
  const double seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(Exit::kInput)) << message;
  if (!sanitized()) {
    EXPECT_LT(seconds, 1.0) << message;
    EXPECT_LT(usage.ru_maxrss, 300'000) << message << " (KiB)";
  }
  return message.substr(std::min(message.size(), path.size()));
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

TEST_F(RecordTest, MalformedFilesCostLittle) {
  const RecordSpec text{.columns = {"text"}, .messages = ""}, chat{.columns = {}, .messages = "m"};
  const auto many = [](std::string unit, size_t bytes, const std::string& front, const std::string& back) {
    while (unit.size() < size_t{1} << 20) unit += unit;
    std::string all = front;
    while (all.size() < bytes) all += unit;
    return all + back;
  };
  std::string keys = "{\"text\":\"\",\"x\":{";
  for (int i = 0; i < 1'100'000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
  constexpr size_t kLong = size_t{16} << 20;
  const auto packed = [&](const char* name, const std::string& content) { return file(name, zstd(content)); };
  struct Case {
    std::string path, says;
    RecordSpec spec;
  };
  std::string sparse = file("zeros.jsonl", "");
  std::filesystem::resize_file(sparse, size_t{4} << 30);
  std::string zeros = file("zeros.txt", "");
  std::filesystem::resize_file(zeros, size_t{4} << 30);
  // FileMetaData {4: [RowGroup {1: [3,000,000 times ColumnChunk {2: i64 0}]}]}, three bytes a column.
  std::string footer("\x49\x1c\x19\xfc\xc0\x8d\xb7\x01", 8);
  for (int i = 0; i < 3'000'000; ++i) footer.append("\x26\x00\x00", 3);
  footer.append(2, '\0');
  const auto footer_size = static_cast<uint32_t>(footer.size());
  footer = "PAR1" + footer + std::string(reinterpret_cast<const char*>(&footer_size), 4) + "PAR1";
  const Case cases[] = {
      {sparse, ":1: a line of more than 64 MiB; JSON lines hold one object a line", text},
      {zeros, ":1: a line of more than 64 MiB; is this text?", text},
      {packed("open.jsonl.zst", many("[", kLong, "{\"text\":\"\",\"x\":", "")), ":1: nested more than 64 deep", text},
      {packed("keys.jsonl.zst", keys), ":1: holds more than 1048576 keys", text},
      {packed("array.jsonl.zst", many("{},", kLong, "{\"text\":\"\",\"x\":[", "")), ":1: not JSON at byte ", text},
      {packed("string.jsonl.zst", many("\\n", kLong, "{\"text\":\"", "")), ":1: not JSON at byte ", text},
      {packed("turns.jsonl.zst", many("{\"role\":\"\",\"content\":\"\"},", kLong, "{\"m\":[", "")),
       ":1: more than 65536 turns", chat},
      {packed("bomb.txt.zst", std::string(size_t{70} << 20, '\n')), " packed bytes unpack to more than 67108864", text},
      // A frame that asks for a window of 2 GiB: magic, descriptor, window descriptor (exponent 21).
      {file("window.txt.zst", std::string("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9)), ": damaged zstd data at byte ",
       text},
      {file("web.jsonl", "<!DOCTYPE html>\n"), ": expected text, found a web page", text},
      {file("lfs.txt", "version https://git-lfs.github.com/spec/v1\n"), ": expected text, found a Git LFS pointer",
       text},
      {file("short.parquet", "PAR1"), ": is cut short", text},
      {file("footer.parquet", footer), ": its footer describes more row groups and columns than 192 MiB hold", text},
  };
  for (const Case& c : cases) {
    const std::string message = cost(c.path, config_, c.spec);
    EXPECT_NE(message.find(c.says), std::string::npos) << c.path << message;
  }
}

TEST_F(RecordTest, TextThatIsNoUtf8) {
  const std::string path = file("a.txt", "caf\xc3\xa9\nb\xe9t\xe9\n");
  Record record;
  open_records(find_source(path, "", config_), {.columns = {"text"}, .messages = ""}, config_)->next(record);
  EXPECT_EQ(record.texts.at(0), "caf\xc3\xa9\nb\xe9t\xe9");  // bytes take anything
  config_.tokenizer = "some/folder";
  const std::unique_ptr<RecordReader> reader =
      open_records(find_source(path, "", config_), {.columns = {"text"}, .messages = ""}, config_);
  EXPECT_EQ(error_of(Exit::kInput, [&] { reader->next(record); }),
            path + ":2: not UTF-8 at byte 7 of the file: \\xe9t\\xe9");
}

// Several files are read one after the other, and ending early hashes what was opened.
TEST_F(RecordTest, FilesOneAfterTheOther) {
  file("set/a.txt", "one\n\ntwo\n");
  file("set/b.txt", "three\n");
  file("set/c.txt", "four\n");
  const Source source = find_source(folder_ / "set", "", config_);
  const std::unique_ptr<RecordReader> reader = open_records(source, {.columns = {"text"}, .messages = ""}, config_);
  Record record;
  double before = 0;
  for (const char* expected : {"one", "two", "three"}) {
    ASSERT_TRUE(reader->next(record));
    EXPECT_EQ(record.texts.at(0), expected);
    EXPECT_GE(reader->progress(), before);
    before = reader->progress();
  }
  reader->finish();
  reader->finish();
  ASSERT_EQ(reader->files().size(), 2u);
  EXPECT_EQ(reader->files()[1].bytes, 6u);
}

}  // namespace
}  // namespace mantissa
