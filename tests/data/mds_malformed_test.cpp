// Folders that lie: each is refused by name and reason.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "data/mds/reader.h"
#include "data/mds/rows.h"
#include "data/mds/writer.h"
#include "tests/base/support.h"
#include "tests/data/mds_support.h"

namespace mantissa::mds {
namespace {

using namespace testing;
using mantissa::testing::error_of;
using mantissa::testing::TempFolder;

const std::vector<ColumnText> kText = {{"n", "int", 8}, {"text", "str", nullptr}};
std::vector<std::vector<std::string>> text_samples() {
  return {{raw<int64_t>({1}), "one"}, {raw<int64_t>({2}), "two two"}};
}

class MdsMalformedTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) { write_plain(folder_ / name, content); }
  // The refusal of the folder, without its path.
  std::string refusal(const std::function<void()>& body) {
    const std::string message = error_of(Exit::kInput, body);
    EXPECT_TRUE(message.starts_with(folder_.path())) << message;
    return message.substr(std::min(message.size(), folder_.path().size() + 1));
  }
  void read_all() {
    const Folder folder = Folder::open(folder_.path());
    for (size_t s = 0; s < folder.shards().size(); ++s) {
      const Shard shard = folder.open_shard(s);
      for (int64_t i = 0; i < shard.samples(); ++i)
        for (size_t c = 0; c < folder.columns().size(); ++c) {
          const Kind kind = folder.columns()[c].kind;
          if (kind == Kind::kArray || kind == Kind::kRawArray)
            shard.array(i, static_cast<int>(c));
          else
            shard.bytes(i, static_cast<int>(c));
        }
    }
  }
  std::string refused_index(const std::string& text) {
    put("index.json", text);
    return refusal([&] { read_all(); });
  }

  TempFolder folder_;
};

TEST_F(MdsMalformedTest, Index) {
  const std::string shard = shard_of(kText, text_samples());
  put("shard.00000.mds", shard);
  const Json good = index_of(kText, 2, shard);
  put("index.json", good.dump());
  EXPECT_NO_THROW(read_all());

  const struct {
    std::function<void(Json& index, Json& shard)> change;
    std::string expected;
  } cases[] = {
      {[](Json& i, Json&) { i["version"] = 3; }, "\"version\" is 3, expected 2"},
      {[](Json& i, Json&) { i.erase("shards"); }, "no \"shards\""},
      {[](Json& i, Json&) { i["shards"] = 4; }, "\"shards\" is 4, expected a list"},
      {[](Json& i, Json&) { i["shards"] = Json::array(); }, "no shards"},
      {[](Json& i, Json&) { i["shards"][0] = "x"; }, "shard 0: is string, expected an object"},
      {[](Json&, Json& s) { s["version"] = "2"; }, "shard 0: \"version\" is \"2\", expected 2"},
      {[](Json&, Json& s) { s["format"] = "json"; }, "shard 0: format \"json\", expected mds"},
      {[](Json&, Json& s) { s["samples"] = -2; },
       "shard 0: \"samples\" is -2, expected a whole number from 0 to 1073741823"},
      {[](Json&, Json& s) { s["samples"] = 1e300; },
       "shard 0: \"samples\" is 1e+300, expected a whole number from 0 to 1073741823"},
      {[](Json&, Json& s) { s.erase("raw_data"); }, "shard 0: no \"raw_data\""},
      {[](Json&, Json& s) { s["raw_data"] = nullptr; },
       "shard 0: raw_data: is null, expected an object with \"basename\""},
      {[](Json&, Json& s) { s["raw_data"]["bytes"] = uint64_t{1} << 32; },
       "shard 0: raw_data has 4294967296 bytes, a shard stays below 2^32"},
      {[](Json&, Json& s) { s["raw_data"]["bytes"] = UINT64_MAX; },
       "shard 0: raw_data: \"bytes\" is 18446744073709551615, expected a whole number from 0 to 9223372036854775807"},
      {[](Json&, Json& s) {
         s["raw_data"]["hashes"] = {{"sha1", 4}};
       },
       "shard 0: raw_data: \"hashes\" is 4, expected strings"},
      {[](Json&, Json& s) { s["raw_data"]["basename"] = "../shard.00000.mds"; },
       "shard 0: raw_data: basename \"../shard.00000.mds\", expected a plain name inside the folder"},
      {[](Json&, Json& s) { s["raw_data"]["basename"] = "/etc/passwd"; },
       "shard 0: raw_data: basename \"/etc/passwd\", expected a plain name inside the folder"},
      {[](Json&, Json& s) { s["raw_data"]["basename"] = "a/./b"; },
       "shard 0: raw_data: basename \"a/./b\", expected a plain name inside the folder"},
      {[](Json&, Json& s) { s["raw_data"]["basename"] = std::string("a\0b", 3); },
       "shard 0: raw_data: basename \"a\\x00b\", expected a plain name inside the folder"},
      {[](Json&, Json& s) { s["raw_data"]["basename"] = ""; },
       "shard 0: raw_data: basename \"\", expected a plain name inside the folder"},
      {[](Json&, Json& s) { s["compression"] = 4; }, "shard 0: \"compression\" is 4, expected a string"},
      {[](Json&, Json& s) { s["compression"] = "zstd"; },
       "shard 0: zip_data: is null, expected an object with \"basename\""},
      {[](Json&, Json& s) { s["column_names"] = {"n"}; },
       "shard 0: 1 column names, 2 encodings, 2 sizes, expected as many of each"},
      {[](Json&, Json& s) { s["column_names"] = s["column_encodings"] = s["column_sizes"] = Json::array(); },
       "shard 0: no columns"},
      {[](Json&, Json& s) {
         s["column_names"] = {"n", "n"};
       },
       "shard 0: column \"n\": stands twice"},
      {[](Json&, Json& s) {
         s["column_names"] = {"n", 3};
       },
       "shard 0: \"column_names\" is 3, expected strings"},
      {[](Json&, Json& s) { s["column_sizes"][0] = 4; },
       "shard 0: column \"n\": encoding \"int\" with a size of 4, expected 8"},
      {[](Json&, Json& s) { s["column_sizes"][1] = 4; },
       "shard 0: column \"text\": encoding \"str\" with a size of 4, expected null"},
      {[](Json&, Json& s) { s["column_sizes"][1] = -4; },
       "shard 0: column \"text\": \"column_sizes\" is -4, expected null or a whole number below 2^32"},
      {[](Json&, Json& s) { s["column_encodings"][1] = "pkl"; },
       "shard 0: column \"text\": is pkl, a Python pickle, which can run code when loaded; write the folder without "
       "it"},
      {[](Json&, Json& s) { s["column_encodings"][1] = "ndarray:int33"; },
       "shard 0: column \"text\": encoding \"ndarray:int33\": unknown dtype \"int33\""},
      {[](Json&, Json& s) { s["column_encodings"][1] = "ndarray:int32:2,0"; },
       "shard 0: column \"text\": encoding \"ndarray:int32:2,0\": dimension \"0\", expected 1 to 2^31 - 1"},
      {[](Json&, Json& s) { s["column_encodings"][1] = "ndarray:int32:2000000000,2000000000"; },
       "shard 0: column \"text\": encoding \"ndarray:int32:2000000000,2000000000\" takes more than 2^32 bytes"},
      {[](Json&, Json& s) { s["column_encodings"][1] = "ndarray:int32:1,1,1,1,1,1,1,1,1"; },
       "shard 0: column \"text\": encoding \"ndarray:int32:1,1,1,1,1,1,1,1,1\" has 9 dimensions, expected at most 8"},
      {[](Json&, Json& s) { s["column_encodings"][1] = "ndarray:int32:2:2"; },
       "shard 0: column \"text\": encoding \"ndarray:int32:2:2\", expected ndarray:DTYPE:D0,D1,..."},
      {[](Json&, Json& s) { s["column_encodings"][1] = "ndarray:int32:2"; },
       "shard 0: column \"text\": encoding \"ndarray:int32:2\" without a size, expected 8"},
      {[](Json& i, Json& s) { i["shards"].push_back(s), i["shards"][1]["column_names"][0] = "m"; },
       "shard 1: has other columns than shard 0"},
  };
  for (const auto& each : cases) {
    Json index = good;
    each.change(index, index["shards"][0]);
    EXPECT_EQ(refused_index(index.dump()), "index.json: " + each.expected);
  }
  EXPECT_TRUE(refused_index("").starts_with("index.json: not JSON at byte "));
  EXPECT_TRUE(
      refused_index("{\"version\": 2, \"version\": 2}").starts_with("index.json: key \"version\" stands twice"));
  EXPECT_EQ(refused_index(std::string(100, '[')), "index.json: nested more than 64 deep");
  std::filesystem::remove(folder_ / "index.json");
  EXPECT_EQ(refusal([&] { read_all(); }), "index.json: cannot open: No such file or directory");
}

TEST_F(MdsMalformedTest, Shard) {
  const std::string good = shard_of(kText, text_samples());
  const auto word = [&](std::string& shard, size_t i, uint32_t value) { std::memcpy(shard.data() + 4 * i, &value, 4); };
  uint32_t first = 0;
  std::memcpy(&first, good.data() + 4, 4);
  const auto size = static_cast<uint32_t>(good.size());
  const struct {
    std::function<void(std::string&)> change;
    std::string expected;
  } cases[] = {
      {[](std::string& s) { s.clear(); }, "has 0 bytes, a shard has at least 8"},
      {[](std::string& s) { s.resize(7); }, "has 7 bytes, a shard has at least 8"},
      {[](std::string& s) { s.resize(12); }, "the offsets of 2 samples end at byte 16, the file at 12"},
      {[&](std::string& s) { word(s, 0, 3); }, "3 samples, index.json says 2"},
      {[&](std::string& s) { word(s, 1, 8); }, fmt::format("offset 8 of sample 0, expected 16 to {}", size)},
      {[&](std::string& s) { word(s, 2, first - 1); },
       fmt::format("offset {} of sample 1, expected {} to {}", first - 1, first, size)},
      {[&](std::string& s) { word(s, 2, UINT32_MAX); },
       fmt::format("offset 4294967295 of sample 1, expected {} to {}", first, size)},
      {[&](std::string& s) { word(s, 3, size - 1); },
       fmt::format("the samples end at byte {}, the file at {}", size - 1, size)},
      {[](std::string& s) { s += "x"; }, fmt::format("the samples end at byte {}, the file at {}", size, size + 1)},
      {[&](std::string& s) { word(s, 2, first + 3); }, "sample 0 has 3 bytes, its sizes alone take 4"},
      {[&](std::string& s) { std::memset(s.data() + first, 0xff, 4); },
       "the values of sample 0 take 4294967307 bytes, the offsets give it 15"},
      {[&](std::string& s) { s[first] = 2; }, "the values of sample 0 take 14 bytes, the offsets give it 15"},
      {[&](std::string& s) { s.replace(s.find("text"), 4, "next"); },
       "header: column_names is [\"n\",\"next\"], index.json says [\"n\",\"text\"]"},
      {[&](std::string& s) { s.replace(s.find("8,null"), 6, "null,8"); },
       "header: column_sizes is [null,8], index.json says [8,null]"},
  };
  for (const auto& each : cases) {
    std::string shard = good;
    each.change(shard);
    put("shard.00000.mds", shard);
    put("index.json", index_of(kText, 2, shard).dump());
    EXPECT_EQ(refusal([&] { read_all(); }), "shard.00000.mds: " + each.expected);
  }
  std::string shard = good;
  shard[16] = '[';
  put("shard.00000.mds", shard);
  put("index.json", index_of(kText, 2, shard).dump());
  EXPECT_TRUE(refusal([&] { read_all(); }).starts_with("shard.00000.mds: header: not JSON at byte "));
  for (size_t cut = 0; cut < good.size(); ++cut) {
    put("shard.00000.mds", good.substr(0, cut));
    put("index.json", index_of(kText, 2, good.substr(0, cut)).dump());
    EXPECT_NE(refusal([&] { read_all(); }), "") << cut;
  }
}

TEST_F(MdsMalformedTest, Arrays) {
  const struct {
    std::string encoding, value, expected;
  } cases[] = {
      {"ndarray", "", "0 bytes left, the dtype of an array takes 1"},
      {"ndarray", "\x07\x04\x01x", "unknown dtype code 7"},
      {"ndarray", "\x08", "0 bytes left, the shape of an array takes 1"},
      {"ndarray:uint8", std::string("\0", 1), "0 dimensions, expected 1 to 8"},
      {"ndarray:uint8", std::string(1, 9 << 2) + std::string(9, 1), "9 dimensions, expected 1 to 8"},
      {"ndarray:uint8", "\x0c\x01\x01", "2 bytes left, the shape of an array takes 3"},
      {"ndarray:uint8", "\x04\x03\x01\x01", "2 bytes of values, expected 3 (uint8 [3])"},
      {"ndarray:int32", "\x05\x01\x01\x01", "1 bytes of values, expected 1028 (int32 [257])"},
      {"ndarray:int32", "\x06" + raw<uint32_t>({UINT32_MAX}) + "1234",
       "4 bytes of values, expected 17179869180 (int32 [4294967295])"},
      {"ndarray:int64", "\x07" + raw<uint64_t>({UINT64_MAX}) + "12345678",
       "8 bytes of values, expected no more than 2^64 (int64 [18446744073709551615])"},
      {"ndarray:int64", "\x0b" + raw<uint64_t>({uint64_t{1} << 32, uint64_t{1} << 32}) + "12345678",
       "8 bytes of values, expected no more than 2^64 (int64 [4294967296, 4294967296])"},
      {"ndarray:int64", "\x0b" + raw<uint64_t>({0, UINT64_MAX}), "dimension 18446744073709551615 is too large"},
      {"uint32", "12345", "5 bytes are no whole number of uint32"},
  };
  for (const auto& each : cases) {
    const std::vector<ColumnText> columns = {{"a", each.encoding, nullptr}};
    const std::string shard = shard_of(columns, {{each.value}});
    put("shard.00000.mds", shard);
    put("index.json", index_of(columns, 1, shard).dump());
    EXPECT_EQ(refusal([&] { read_all(); }), "shard.00000.mds: sample 0, column \"a\": " + each.expected);
  }
}

TEST_F(MdsMalformedTest, Rows) {
  const auto i32 = [](const std::vector<int32_t>& values) {
    return "\x04" + std::string(1, static_cast<char>(values.size())) + raw(values);
  };
  const std::string ids = i32({1, 2, 3, 4});
  const std::string arrays = "ndarray:int32";
  const struct {
    std::vector<ColumnText> columns;
    std::vector<std::string> sample;
    std::string expected;
  } cases[] = {
      {{{"tokens", "str", nullptr}},
       {"abc"},
       "index.json: column \"tokens\" is str, expected an array of whole numbers or bytes"},
      {{{"tokens", "ndarray:float32", nullptr}},
       {ids},
       "index.json: column \"tokens\" is ndarray:float32, expected an array of whole numbers or bytes"},
      {{{"tokens", "ndarray", nullptr}},
       {"\x22\x04\x04" + std::string(16, '\0')},
       "shard.00000.mds: sample 0, column \"tokens\": an array of float32, expected whole numbers"},
      {{{"tokens", arrays, nullptr}},
       {"\x08\x02\x02" + raw<int32_t>({1, 2, 3, 4})},
       "shard.00000.mds: sample 0, column \"tokens\": an array of 2 dimensions, expected 1"},
      {{{"tokens", "bytes", nullptr}},
       {std::string(31, '\0')},
       "shard.00000.mds: sample 0, column \"tokens\": 31 bytes are no whole number of int64 (data.token_dtype)"},
      {{{"tokens", arrays, nullptr}},
       {i32({1, 2, -3, 4})},
       "shard.00000.mds: sample 0, column \"tokens\": position 2 is -3, outside the vocabulary of 10"},
      {{{"document_lengths", arrays, nullptr}, {"tokens", arrays, nullptr}},
       {i32({2, 3}), ids},
       "shard.00000.mds: sample 0, column \"document_lengths\": document 1 has a length of 3, expected 1 to 2"},
      {{{"document_lengths", arrays, nullptr}, {"tokens", arrays, nullptr}},
       {i32({2, 0, 2}), ids},
       "shard.00000.mds: sample 0, column \"document_lengths\": document 1 has a length of 0, expected 1 to 2"},
      {{{"document_lengths", arrays, nullptr}, {"tokens", arrays, nullptr}},
       {i32({2, 1}), ids},
       "shard.00000.mds: sample 0, column \"document_lengths\": the documents have 3 tokens, the row 4"},
      {{{"labels", arrays, nullptr}, {"tokens", arrays, nullptr}},
       {i32({1, 2, 3}), ids},
       "shard.00000.mds: sample 0, column \"labels\": 3 values, expected 4"},
      {{{"labels", arrays, nullptr}, {"tokens", arrays, nullptr}},
       {i32({1, -100, -1, 4}), ids},
       "shard.00000.mds: sample 0, column \"labels\": position 2 is -1, expected -100 or an id below 10"},
      {{{"labels", arrays, nullptr}, {"tokens", arrays, nullptr}},
       {i32({1, 2, 3, 10}), ids},
       "shard.00000.mds: sample 0, column \"labels\": position 3 is 10, expected -100 or an id below 10"},
      {{{"attention_mask", arrays, nullptr}, {"input_ids", arrays, nullptr}},
       {i32({0, 1, 1, 1}), ids},
       "shard.00000.mds: sample 0, column \"attention_mask\": 1 at position 1, expected ones, then zeros"},
      {{{"attention_mask", arrays, nullptr}, {"input_ids", arrays, nullptr}},
       {i32({1, 1, 2, 0}), ids},
       "shard.00000.mds: sample 0, column \"attention_mask\": 2 at position 2, expected ones, then zeros"},
  };
  for (const auto& each : cases) {
    const std::string shard = shard_of(each.columns, {each.sample});
    put("shard.00000.mds", shard);
    put("index.json", index_of(each.columns, 1, shard).dump());
    EXPECT_EQ(refusal([&] { open_rows({folder_.path()}, {.sequence_length = 4, .vocab_size = 10}); }), each.expected);
  }
  const std::vector<ColumnText> columns = {{"tokens", arrays, nullptr}};
  const std::string shard = shard_of(columns, {{ids}, {i32({1, 2, 3})}});
  put("shard.00000.mds", shard);
  put("index.json", index_of(columns, 2, shard).dump());
  EXPECT_EQ(refusal([&] { open_rows({folder_.path()}, {.sequence_length = 4, .vocab_size = 10}); }),
            "shard.00000.mds: sample 1, column \"tokens\": 3 values, expected 4");
}

TEST_F(MdsMalformedTest, LinksAreNotFollowed) {
  const std::string shard = shard_of(kText, text_samples());
  TempFolder elsewhere;
  write_atomic(elsewhere / "shard.00000.mds", shard);
  put("index.json", index_of(kText, 2, shard).dump());
  std::filesystem::create_symlink(elsewhere / "shard.00000.mds", folder_ / "shard.00000.mds");
  const std::string why = ": is or lies behind a symbolic link, expected a plain file inside the folder";
  EXPECT_EQ(refusal([&] { read_all(); }), "shard.00000.mds" + why);
  Json index = index_of(kText, 2, shard);
  index["shards"][0]["raw_data"]["basename"] = "sub/shard.00000.mds";
  put("index.json", index.dump());
  std::filesystem::create_directory_symlink(elsewhere.path(), folder_ / "sub");
  EXPECT_EQ(refusal([&] { read_all(); }), "sub/shard.00000.mds" + why);
  std::filesystem::remove(folder_ / "sub");
  std::filesystem::create_directory(folder_ / "sub");
  std::filesystem::copy(elsewhere / "shard.00000.mds", folder_ / "sub/shard.00000.mds");
  EXPECT_NO_THROW(read_all());
}

TEST_F(MdsMalformedTest, CompressedShards) {
  const std::string shard = shard_of(kText, text_samples());
  const auto zstd = [](const std::string& text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
  };
  const auto gzip = [](const std::string& text) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, text.size()) + 64, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  };
  const auto set_up = [&](const std::string& compression, const std::string& packed, uint64_t bytes) {
    Json index = index_of(kText, 2, shard);
    Json& entry = index["shards"][0];
    entry["compression"] = compression;
    entry["raw_data"]["bytes"] = bytes;
    entry["zip_data"] = {{"basename", "z"}, {"bytes", packed.size()}, {"hashes", Json::object()}};
    put("z", packed);
    put("index.json", index.dump());
  };
  const auto refused = [&](const std::string& compression, const std::string& packed, uint64_t bytes) {
    set_up(compression, packed, bytes);
    return refusal([&] { read_all(); });
  };
  for (const std::string kind : {"zstd", "gz"}) {
    const std::string packed = kind == "gz" ? gzip(shard) : zstd(shard);
    set_up(kind + ":7", packed, shard.size());
    EXPECT_NO_THROW(read_all());
    EXPECT_NE(refused(kind, packed, shard.size() - 1).find("more than the"), std::string::npos);
    EXPECT_EQ(refused(kind, packed, shard.size() + 1),
              fmt::format("z: unpacks to {} bytes, index.json says {}", shard.size(), shard.size() + 1));
    EXPECT_NE(refused(kind, packed.substr(0, packed.size() / 2), shard.size()).find("z: damaged"), std::string::npos);
    EXPECT_NE(refused(kind, packed + "x", shard.size()), "");
    EXPECT_NE(refused(kind, "", shard.size()), "");
    // Four gigabytes out of nothing: refused before a byte is allocated.
    EXPECT_EQ(refused(kind, packed, UINT32_MAX),
              fmt::format("z: {} packed bytes, of which index.json says they unpack to 4294967295, more than 67108864",
                          packed.size()));
  }
  EXPECT_EQ(refused("br:3", "x", 4),
            "z: compression \"br:3\" is not read, expected zstd or gz; unpack the shards or write them anew");
  // Rows of compressed shards are unpacked into memory, up to a bound over all of them.
  Json index = index_of({{"tokens", "ndarray:int32", nullptr}}, 2, shard);
  index["shards"][0]["compression"] = "zstd";
  index["shards"][0]["zip_data"] = {{"basename", "z"}, {"bytes", 1}, {"hashes", Json::object()}};
  index["shards"][0]["raw_data"]["bytes"] = (uint64_t{1} << 30) + 1;
  put("index.json", index.dump());
  EXPECT_EQ(error_of(Exit::kInput, [&] { open_rows({folder_.path()}, {.sequence_length = 4}); }),
            folder_.path() +
                ": the compressed shards unpack to more than 1073741824 bytes; training maps uncompressed ones: run "
                "`mantissa prepare` over the folder, or unpack it");
}

TEST_F(MdsMalformedTest, Sidecar) {
  const std::string path = folder_ / "out";
  Writer writer(path, {.sequence_length = 4, .vocab_size = 10});
  writer.add(std::vector<int32_t>{1, 2, 3, 4}, std::vector<int32_t>{4}, {});
  writer.finish({});
  const Json good = read_json(path + "/mantissa.json");
  const auto refused = [&](const std::function<void(Json&)>& change) {
    Json json = good;
    change(json);
    write_atomic(path + "/mantissa.json", json.dump());
    const auto read = [&] {
      Batch batch;
      open_rows({path}, {.sequence_length = 4}).rows->append_row(0, batch);
    };
    return refusal(read).substr(4);
  };
  EXPECT_EQ(refused([](Json& j) { j["format"] = "x"; }),
            "mantissa.json: format \"x\", expected \"mantissa packed rows\"");
  EXPECT_EQ(refused([](Json& j) { j["version"] = 2; }),
            "mantissa.json: \"version\" is 2, expected a whole number from 1 to 1");
  EXPECT_EQ(refused([](Json& j) { j.erase("labels"); }), "mantissa.json: no \"labels\"");
  EXPECT_EQ(refused([](Json& j) { j["labels"] = true; }), "mantissa.json: says labels true, index.json has none");
  EXPECT_EQ(refused([](Json& j) { j["rows"] = 2; }),
            "mantissa.json: statistics: \"segments\" is 1, expected a whole number from 2 to 8");
  EXPECT_EQ(refused([](Json& j) { j["vocab_size"] = 0; }),
            "mantissa.json: \"vocab_size\" is 0, expected a whole number from 1 to 2147483647");
  EXPECT_EQ(refused([](Json& j) { j["vocab_size"] = 3; }),
            "shard.00000.mds: sample 0, column \"tokens\": position 2 is 3, outside the vocabulary of 3");
  EXPECT_EQ(refused([](Json& j) { j["statistics"]["squared_lengths"] = 17; }),
            "mantissa.json: statistics: \"squared_lengths\" is 17, expected a number from 0 to 16");
  EXPECT_EQ(refused([](Json& j) { j["statistics"]["padding"] = -1; }),
            "mantissa.json: statistics: \"padding\" is -1, expected a whole number from 0 to 4");
  EXPECT_EQ(refused([](Json& j) { j["counts"]["x"] = 0.5; }),
            "mantissa.json: counts: \"x\" is 0.5, expected a whole number from 0 to 9223372036854775807");
  write_atomic(path + "/mantissa.json", good.dump());
  EXPECT_EQ(
      error_of(Exit::kUsage, [&] { open_rows({path}, {.sequence_length = 4, .vocab_size = 9}); }),
      path + "/mantissa.json: the rows were made with a vocabulary of 10 (), the model's has 9 (model.vocab_size)");
}

}  // namespace
}  // namespace mantissa::mds
