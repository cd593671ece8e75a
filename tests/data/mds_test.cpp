// Folders that MosaicML's library wrote (tests/interop/write_mds_fixtures.py) and folders of our own.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "data/mds/hashes.h"
#include "data/mds/reader.h"
#include "data/mds/rows.h"
#include "data/mds/verify.h"
#include "data/mds/writer.h"
#include "tests/base/support.h"

namespace mantissa::mds {
namespace {

using testing::error_of;
using testing::TempFolder;
using Ids = std::vector<int32_t>;

constexpr int64_t kRows = 6, kLength = 64;

std::string fixture(const std::string& name) { return MANTISSA_SOURCE_DIR "/tests/fixtures/mds/" + name; }
int32_t id(int64_t row, int64_t i) { return static_cast<int32_t>((37 * row + 11 * i) % 1000); }

std::vector<std::string> texts() {
  std::string longer;
  for (int i = 0; i < 40; ++i) longer += "a longer one ";
  return {"One.", "Zwei\nZeilen", "", "三つ目 🦀", longer};
}

TokenOptions options(int64_t sequence_length = kLength, int32_t eos = -1) {
  return {.sequence_length = sequence_length, .vocab_size = 1000, .eos = eos};
}

// The rows as one batch.
Batch read_all(const RowSource& rows) {
  Batch batch;
  batch.sequence_length = rows.sequence_length();
  for (int64_t row = 0; row < rows.rows(); ++row) rows.append_row(row, batch);
  return batch;
}

// Labels and positions that follow from ids and segments.
void expect_plain(const Batch& batch) {
  int64_t valid = 0;
  for (size_t s = 0; s + 1 < batch.segments.size(); ++s)
    for (int32_t i = batch.segments[s]; i < batch.segments[s + 1]; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool last = i + 1 == batch.segments[s + 1];
      ASSERT_EQ(batch.labels[at], last ? kIgnoredLabel : batch.ids[at + 1]) << i;
      ASSERT_EQ(batch.positions[at], i - batch.segments[s]) << i;
      valid += !last;
    }
  EXPECT_EQ(batch.valid_tokens, valid);
}

// Digests as Python's hashlib and xxhash 3.6 print them.
TEST(MdsHashes, AreThoseOfPython) {
  std::string bytes;
  for (int i = 0; i < 5 * 251; ++i) bytes += static_cast<char>(i % 251);
  EXPECT_EQ(hash_hex("xxh32", bytes), "627b283c");
  EXPECT_EQ(hash_hex("xxh64", bytes), "8abc0ca97811a7d2");
  EXPECT_EQ(hash_hex("xxh128", bytes), "a939d5319378d3c4acaa4ac9c85b4031");
  EXPECT_EQ(hash_hex("xxh3_64", bytes), "acaa4ac9c85b4031");
  EXPECT_EQ(hash_hex("sha1", bytes), "f1441183db2c27baf96387d40d1332e2b0a64d22");
  EXPECT_EQ(hash_hex("xxh64", ""), "ef46db3751d8e999");
  EXPECT_FALSE(known_hash("md5"));
}

TEST(MdsReader, TextOfSeveralShards) {
  for (const char* name : {"text", "text_gz"}) {
    const Folder folder = Folder::open(fixture(name));
    EXPECT_EQ(folder.samples(), 5);
    const int text = folder.require("text"), n = folder.require("n"), meta = folder.require("meta");
    EXPECT_FALSE(has_tokens(fixture(name)));
    int64_t sample = 0;
    for (size_t s = 0; s < folder.shards().size(); ++s) {
      const Shard shard = folder.open_shard(s);
      for (int64_t i = 0; i < shard.samples(); ++i, ++sample) {
        EXPECT_EQ(shard.text(i, text), texts()[static_cast<size_t>(sample)]);
        EXPECT_EQ(shard.integer(i, n), sample);
        EXPECT_EQ(shard.text(i, meta), fmt::format("{{\"source\": {}}}", sample));
      }
    }
    EXPECT_EQ(sample, 5);
  }
  EXPECT_EQ(Folder::open(fixture("text")).shards().size(), 2u);
  EXPECT_EQ(error_of(Exit::kInput, [] { Folder::open(fixture("text")).require("txt"); }),
            fixture("text") + "/index.json: no column \"txt\"; found meta (json), n (int), text (str)");
}

TEST(MdsReader, EveryEncoding) {
  const Folder folder = Folder::open(fixture("encodings"));
  const Shard shard = folder.open_shard(0);
  const auto column = [&](const char* name) { return folder.require(name); };
  const Element dynamic[] = {Element::kF32, Element::kU16, Element::kI64};
  for (int64_t i = 0; i < 3; ++i) {
    Array array = shard.array(i, column("dynamic"));
    EXPECT_EQ(array.values.type, dynamic[i]);
    EXPECT_EQ(array.values.count, 3 + i);
    if (i > 0) {
      EXPECT_EQ(array.values.at(2), 3);
    }
    array = shard.array(i, column("fixed"));
    EXPECT_EQ(array.rank, 2u);
    EXPECT_EQ(array.shape[0], 2);
    EXPECT_EQ(array.shape[1], 3);
    EXPECT_EQ(array.values.at(5), 5 - i);
    array = shard.array(i, column("shaped"));
    EXPECT_EQ(array.rank, 3u);
    EXPECT_EQ(array.shape[2], 300);
    EXPECT_EQ(array.values.at(599), i);
    EXPECT_EQ(shard.bytes(i, column("raw")).size(), static_cast<size_t>(i));
    EXPECT_EQ(shard.integer(i, column("u8")), 200 + i);
    EXPECT_EQ(shard.integer(i, column("i16")), -i);
    double f64 = 0;
    std::memcpy(&f64, shard.bytes(i, column("f64")).data(), 8);
    EXPECT_EQ(f64, -1.25 * static_cast<double>(i));
  }
  EXPECT_EQ(shard.integer(0, column("u64")), INT64_MAX);
  EXPECT_EQ(shard.integer(2, column("s_int")), -100);
  EXPECT_EQ(shard.text(2, column("s_decimal")), "2.20");
  const std::string file = fixture("encodings") + "/shard.00000.mds: sample 1, column ";
  EXPECT_EQ(error_of(Exit::kInput, [&] { shard.integer(1, column("u64")); }),
            file + "\"u64\": 9223372036854775808 is above 2^63 - 1");
  EXPECT_EQ(error_of(Exit::kInput, [&] { shard.text(1, column("raw")); }),
            file + "\"raw\": is bytes, expected text (str)");
  EXPECT_EQ(error_of(Exit::kInput, [&] { shard.integer(1, column("f64")); }),
            file + "\"f64\": is float64, expected an integer");
  EXPECT_EQ(error_of(Exit::kInput, [&] { shard.array(1, column("u8")); }),
            file + "\"u8\": is uint8, expected an array (ndarray)");
}

TEST(MdsReader, FixturesVerify) {
  for (const char* name :
       {"text", "text_gz", "tokens", "tokens_bytes", "tokens_zstd", "labels", "encodings", "three_columns"}) {
    const VerifyReport report = verify(fixture(name));
    EXPECT_TRUE(report.problems.empty()) << name << ": " << report.problems[0];
    EXPECT_GT(report.samples, 0) << name;
  }
  EXPECT_EQ(verify(fixture("text")).hashes, 4);  // two shards, sha1 and xxh64
  const VerifyReport gz = verify(fixture("text_gz"));
  EXPECT_EQ(gz.hashes, 1);
  ASSERT_EQ(gz.notes.size(), 1u);
  EXPECT_EQ(gz.notes[0], "hash md5 is not checked (known: sha1, sha256, xxh32, xxh64, xxh128, xxh3_64)");
}

TEST(MdsRows, TokensOfEveryKind) {
  for (const char* name : {"tokens", "tokens_bytes", "tokens_zstd"}) {
    const TokenSource source = open_rows({fixture(name)}, options());
    EXPECT_EQ(source.rows->rows(), kRows);
    EXPECT_EQ(source.segments_by, "rows");
    ASSERT_EQ(source.files.size(), 1u);
    EXPECT_EQ(source.files[0].sha256, sha256_file(fixture(name) + "/index.json"));
    const Batch batch = read_all(*source.rows);
    ASSERT_EQ(batch.ids.size(), static_cast<size_t>(kRows * kLength));
    for (int64_t t = 0; t < kRows * kLength; ++t)
      ASSERT_EQ(batch.ids[static_cast<size_t>(t)], id(t / kLength, t % kLength));
    EXPECT_EQ(batch.segments, (Ids{0, 64, 128, 192, 256, 320, 384}));
    EXPECT_EQ(batch.rows, kRows);
    expect_plain(batch);
    const RowStatistics& statistics = source.rows->statistics();
    EXPECT_EQ(statistics.segments, kRows);
    EXPECT_EQ(statistics.labels, kRows * (kLength - 1));
    EXPECT_EQ(statistics.squared_lengths, kRows * kLength * kLength);
    EXPECT_FALSE(statistics.sampled);
  }
}

TEST(MdsRows, EosEndsSegments) {
  // id(r, i) == 110: row 0 at 10; row r where 37 r + 11 i is 110 or 1110.
  const TokenSource source = open_rows({fixture("tokens"), fixture("tokens")}, options(kLength, 110));
  EXPECT_EQ(source.rows->rows(), 2 * kRows);
  EXPECT_EQ(source.segments_by, "eos");
  Batch batch;
  source.rows->append_row(kRows, batch);
  EXPECT_EQ(batch.segments, (Ids{0, 11, 64}));
  EXPECT_EQ(batch.ids[10], 110);
  expect_plain(batch);
}

TEST(MdsRows, ThreeRawColumns) {
  const TokenSource source = open_rows({fixture("three_columns")}, options());
  EXPECT_EQ(source.segments_by, "document_lengths");
  const Batch batch = read_all(*source.rows);
  EXPECT_EQ(batch.segments, (Ids{0, 64, 64 + 11, 128, 129, 149, 192, 256, 256 + 14, 320, 321, 341, 384}));
  expect_plain(batch);
  ASSERT_EQ(source.notes.size(), 1u);
  EXPECT_EQ(source.notes[0], "column position_ids is not read: positions begin at 0 in each segment");
}

TEST(MdsRows, LabelsThatRepeatTheIds) {
  const TokenSource source = open_rows({fixture("labels")}, options());
  const Batch batch = read_all(*source.rows);
  // Row r has r tokens of padding, a segment of their own.
  EXPECT_EQ(batch.segments, (Ids{0, 64, 127, 128, 190, 192, 253, 256, 316, 320, 379, 384}));
  int64_t valid = 0;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t i = 0; i < kLength; ++i) {
      const bool learned = i + 1 < kLength - r;
      ASSERT_EQ(batch.labels[static_cast<size_t>(r * kLength + i)], learned ? id(r, i + 1) : kIgnoredLabel);
      valid += learned;
    }
  EXPECT_EQ(batch.valid_tokens, valid);
  EXPECT_EQ(source.rows->statistics().padding, 0 + 1 + 2 + 3 + 4 + 5);
  EXPECT_EQ(source.rows->statistics().labels, valid);
}

TEST(MdsRows, RefusalsSayWhatToSet) {
  EXPECT_EQ(
      error_of(Exit::kUsage, [] { open_rows({fixture("tokens")}, options(128)); }),
      fixture("tokens") +
          "/shard.00000.mds: rows of 64 tokens; set data.sequence_length to 64 (found 128), or prepare the data anew");
  TokenOptions small = options();
  small.vocab_size = 800;
  EXPECT_EQ(error_of(Exit::kInput, [&] { open_rows({fixture("tokens")}, small); }),
            fixture("tokens") +
                "/shard.00001.mds: sample 1, column \"tokens\": position 63 is 804, outside the "
                "vocabulary of 800");
  EXPECT_NE(error_of(Exit::kInput, [] { open_rows({fixture("text")}, options()); }).find("no column \"tokens\""),
            std::string::npos);
}

TEST(MdsRows, KeysThatDoNothingAreSaidOrRefused) {
  EXPECT_EQ(open_rows({fixture("tokens")}, options(kLength, 999)).notes,
            (std::vector<std::string>{"no EOS 999 in 6 rows: each is one segment"}));
  EXPECT_EQ(open_rows({fixture("three_columns")}, options(kLength, 110)).notes[0],
            "data.eos_token does not split rows: column document_lengths says where documents end");
  TokenOptions typed = options();
  typed.token_dtype = "uint16";
  EXPECT_EQ(error_of(Exit::kUsage, [&] { open_rows({fixture("tokens")}, typed); }),
            "data.token_dtype: uint16, but column \"tokens\" of " + fixture("tokens") +
                "/index.json is ndarray:int32; leave it at auto");
  typed.token_dtype = "int32";
  EXPECT_EQ(open_rows({fixture("tokens")}, typed).rows->rows(), kRows);
}

TEST(MdsRows, DocumentsToRepack) {
  const auto documents = open_documents({fixture("three_columns"), fixture("labels")}, options(0));
  EncodedDocument document;
  std::vector<size_t> lengths;
  int64_t learned = 0;
  while (documents->next(document)) {
    lengths.push_back(document.ids.size());
    for (const uint8_t each : document.learned) learned += each;
  }
  EXPECT_EQ(lengths, (std::vector<size_t>{64, 11, 53, 1, 20, 43, 64, 14, 50, 1, 20, 43, 64, 63, 62, 61, 60, 59}));
  EXPECT_EQ(learned, 63 + 62 + 61 + 60 + 59 + 58);
  EXPECT_EQ(documents->files().size(), 2u);
  EXPECT_EQ(documents->progress(), 1);
}

// --- the writer -----------------------------------------------------------------------------------------------------

struct Row {
  Ids ids, lengths, labels;
};

std::vector<Row> make_rows(int64_t count, int64_t length, bool labels) {
  std::vector<Row> rows;
  for (int64_t r = 0; r < count; ++r) {
    Row row;
    for (int64_t i = 0; i < length; ++i) {
      row.ids.push_back(id(r, i));
      if (labels) row.labels.push_back(i % 3 == 0 || i + 1 == length ? kIgnoredLabel : id(r, i + 1));
    }
    for (int64_t left = length; left > 0;) {
      const auto take = static_cast<int32_t>(std::min(left, r % 4 + 1));
      row.lengths.push_back(take);
      left -= take;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void write(const std::string& folder, const std::vector<Row>& rows, const WriterOptions& wanted, int64_t padding = 0) {
  Writer writer(folder, wanted);
  for (const Row& row : rows) writer.add(row.ids, row.lengths, row.labels);
  Prepared prepared;
  prepared.tokenizer = "bytes";
  prepared.packing = "truncate";
  prepared.documents = 7;
  prepared.statistics.padding = padding;
  prepared.counts["dropped_tokens"] = 12;
  prepared.sources = {{"a.txt", 10, "ab"}};
  writer.finish(prepared);
}

TEST(MdsWriter, RowsReadBack) {
  TempFolder folder;
  for (const bool labels : {false, true})
    for (const int zstd : {0, 3}) {
      const std::string path = folder / fmt::format("{}{}", labels, zstd);
      const std::vector<Row> rows = make_rows(50, 300, labels);
      write(path, rows,
            {.sequence_length = 300,
             .vocab_size = 1000,
             .labels = labels,
             .size_limit = 20000,
             .zstd_level = zstd,
             .hashes = {"xxh64", "sha1", "sha256"}});
      const Folder written = Folder::open(path);
      EXPECT_GT(written.shards().size(), 3u);
      for (const ShardEntry& shard : written.shards()) EXPECT_LE(shard.raw.bytes, 20000u);
      const VerifyReport report = verify(path);
      EXPECT_TRUE(report.problems.empty()) << report.problems[0];
      EXPECT_EQ(report.hashes, static_cast<int64_t>(3 * written.shards().size()));
      EXPECT_EQ(report.samples, 50);

      const TokenSource source = open_rows({path}, {.sequence_length = 300});
      EXPECT_EQ(source.rows->vocab_size(), 1000);
      EXPECT_EQ(source.segments_by, "document_lengths");
      RowStatistics expected;
      for (int64_t r = 0; r < 50; ++r) {
        const Row& row = rows[static_cast<size_t>(r)];
        Batch batch;
        source.rows->append_row(r, batch);
        EXPECT_EQ(batch.ids, row.ids);
        Ids ends = {0};
        for (const int32_t length : row.lengths) {
          ends.push_back(ends.back() + length);
          expected.squared_lengths += static_cast<double>(length) * length;
        }
        EXPECT_EQ(batch.segments, ends);
        expected.segments += static_cast<int64_t>(row.lengths.size());
        expected.labels += batch.valid_tokens;
        if (labels)
          EXPECT_EQ(batch.labels, row.labels);
        else
          expect_plain(batch);
      }
      const RowStatistics& statistics = source.rows->statistics();
      EXPECT_EQ(statistics.segments, expected.segments);
      EXPECT_EQ(statistics.most_segments, 300);
      EXPECT_EQ(statistics.squared_lengths, expected.squared_lengths);
      EXPECT_EQ(statistics.labels, expected.labels);

      Prepared prepared;
      ASSERT_TRUE(read_prepared(path, prepared));
      EXPECT_EQ(prepared.rows, 50);
      EXPECT_EQ(prepared.tokens, 50 * 300);
      EXPECT_EQ(prepared.documents, 7);
      EXPECT_EQ(prepared.counts.at("dropped_tokens"), 12);
      ASSERT_EQ(prepared.sources.size(), 1u);
      EXPECT_EQ(prepared.sources[0].path, "a.txt");
    }
}

TEST(MdsWriter, NothingIsLeftWithoutFinish) {
  TempFolder folder;
  const std::string path = folder / "out";
  {
    Writer writer(path, {.sequence_length = 4, .vocab_size = 10});
    writer.add(Ids{1, 2, 3, 4}, Ids{4}, {});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  write(path, make_rows(2, 4, false), {.sequence_length = 4, .vocab_size = 1000});
  EXPECT_EQ(error_of(Exit::kUsage, [&] { Writer(path, {.sequence_length = 4, .vocab_size = 10}); }),
            path + ": stands there already; take another folder, or remove it");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(MdsWriter, RefusesWrongRows) {
  TempFolder folder;
  Writer writer(folder / "out", {.sequence_length = 4, .vocab_size = 10});
  const Ids good = {1, 2, 3, 4};
  EXPECT_EQ(error_of(Exit::kInternal,
                     [&] {
                       writer.add(Ids{1, 2, 3}, Ids{3}, {});
                     }),
            "mds: a row of 3 tokens, expected 4");
  EXPECT_EQ(error_of(Exit::kInternal,
                     [&] {
                       writer.add(Ids{1, 2, 3, 10}, Ids{4}, {});
                     }),
            "mds: id 10 of a vocabulary of 10");
  EXPECT_EQ(error_of(Exit::kInternal, [&] { writer.add(good, Ids{3}, {}); }),
            "mds: documents of 3 tokens in a row of 4");
  EXPECT_EQ(error_of(Exit::kInternal,
                     [&] {
                       writer.add(good, Ids{4, 0}, {});
                     }),
            "mds: a document of 0 tokens, expected 1 to 0");
  EXPECT_EQ(error_of(Exit::kInternal, [&] { writer.add(good, Ids{4}, good); }), "mds: 4 labels for 4 tokens");
}

TEST(MdsRows, SamplesOfManyRowsAreScaled) {
  TempFolder folder;
  const std::string path = folder / "out";
  std::vector<Row> rows(5000, Row{{1, 2, 3, 4, 5, 6}, {2, 4}, {}});
  write(path, rows, {.sequence_length = 6, .vocab_size = 10});
  std::filesystem::remove(path + "/mantissa.json");
  const TokenSource source = open_rows({path}, {.sequence_length = 6, .vocab_size = 10});
  const RowStatistics& statistics = source.rows->statistics();
  EXPECT_TRUE(statistics.sampled);
  EXPECT_EQ(statistics.segments, 10000);
  EXPECT_EQ(statistics.labels, 20000);
  EXPECT_NEAR(statistics.squared_lengths, 5000 * 20, 1e-6);
}

TEST(MdsRows, ManyThreadsReadTheSame) {
  TempFolder folder;
  const std::string path = folder / "out";
  const std::vector<Row> rows = make_rows(200, 50, false);
  write(path, rows, {.sequence_length = 50, .vocab_size = 1000, .size_limit = 9000});
  const TokenSource source = open_rows({path}, {.sequence_length = 50});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      Batch batch;
      batch.reserve(1, 50);
      for (int64_t r = 0; r < 200; ++r) {
        batch.clear();
        source.rows->append_row((r * 7 + static_cast<int64_t>(t)) % 200, batch);
        wrong[t] += batch.ids != rows[static_cast<size_t>((r * 7 + static_cast<int64_t>(t)) % 200)].ids;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0, 0}));
}

TEST(MdsVerify, FindsDamage) {
  TempFolder folder;
  const auto fresh = [&](const std::string& name) {
    const std::string path = folder / name;
    write(path, make_rows(20, 40, true),
          {.sequence_length = 40, .vocab_size = 1000, .labels = true, .size_limit = 4000});
    return path;
  };
  const auto flip = [](const std::string& file, int64_t from_end) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-from_end, std::ios::end);
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(-from_end, std::ios::end);
    stream.put(byte);
  };
  const auto problems = [](const std::string& path) {
    const VerifyReport report = verify(path);
    return report.problems.empty() ? std::string() : report.problems[0];
  };
  EXPECT_EQ(problems(fresh("good")), "");
  std::string path = fresh("bit");
  flip(path + "/shard.00001.mds", 4);  // an id that stays in the vocabulary
  EXPECT_NE(problems(path).find("shard.00001.mds: sha256 is "), std::string::npos) << problems(path);
  path = fresh("cut");
  std::filesystem::resize_file(path + "/shard.00000.mds", 1000);
  EXPECT_NE(problems(path).find("shard.00000.mds: has 1000 bytes, index.json says "), std::string::npos);
  path = fresh("gone");
  std::filesystem::remove(path + "/shard.00001.mds");
  EXPECT_NE(problems(path).find("shard.00001.mds: cannot open: No such file"), std::string::npos);
  const auto edit = [&](const char* name, const std::function<void(Json&)>& change) {
    const std::string edited = fresh(name);
    Json json = read_json(edited + "/mantissa.json");
    change(json);
    write_atomic(edited + "/mantissa.json", json.dump());
    return problems(edited).substr(edited.size());
  };
  EXPECT_EQ(edit("rows", [](Json& j) { j["rows"] = 21; }), "/mantissa.json: says 21 rows, index.json 20");
  EXPECT_EQ(edit("labels", [](Json& j) { j["statistics"]["labels"] = 5; }),
            "/mantissa.json: statistics: labels is 5, the rows have 520");
  EXPECT_EQ(edit("tokens", [](Json& j) { j["statistics"]["padding"] = 5; }),
            "/mantissa.json: 800 tokens, but rows less padding have 795");
  EXPECT_EQ(edit("length", [](Json& j) { j["sequence_length"] = 41; }),
            "/shard.00000.mds: sample 0 has 40 tokens, mantissa.json says 41");
  EXPECT_EQ(edit("vocab", [](Json& j) { j["vocab_size"] = 500; }),
            "/shard.00000.mds: sample 2, column \"tokens\": position 39 is 503, outside the vocabulary of 500");
}

}  // namespace
}  // namespace mantissa::mds
