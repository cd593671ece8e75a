#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>

#include "base/file.h"
#include "base/sha256.h"
#include "data/token_files/token_files.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;
using Ids = std::vector<int32_t>;

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string ids_of(int64_t begin, int64_t end) {
  std::vector<T> values;
  for (int64_t i = begin; i < end; ++i) values.push_back(static_cast<T>(i));
  return raw(values);
}

std::string llmc(int32_t magic, int32_t version, int32_t tokens, const std::string& body) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = tokens;
  return raw(header) + body;
}

struct Megatron {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t dtype = 8;
  std::vector<int32_t> lengths = {3, 0, 4, 3};
  std::vector<int64_t> pointers = {0, 6, 6, 14}, documents = {0, 1, 1, 3, 4};
  std::optional<uint64_t> sequences, document_count;
  std::string modes;

  std::string index() const {
    return magic + raw<uint64_t>({version}) + static_cast<char>(dtype) +
           raw<uint64_t>({sequences.value_or(lengths.size()), document_count.value_or(documents.size())}) +
           raw(lengths) + raw(pointers) + raw(documents) + modes;
  }
};

class TokenFilesTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    // Not write_atomic: thousands of durable writes would take minutes.
    const std::string path = folder_ / name;
    std::remove(path.c_str());
    std::FILE* out = std::fopen(path.c_str(), "wb");
    EXPECT_EQ(std::fwrite(content.data(), 1, content.size(), out), content.size());
    std::fclose(out);
    return path;
  }
  std::string megatron(const Megatron& index, const std::string& body = ids_of<uint16_t>(100, 110)) {
    file("m.idx", index.index());
    return file("m.bin", body);
  }
  std::string refusal(const std::string& path, const std::string& format,
                      TokenOptions options = {.sequence_length = 4}) {
    const std::string message = error_of(Exit::kInput, [&] { open_token_rows({path}, format, options); });
    return message.starts_with(folder_.path()) ? message.substr(folder_.path().size() + 1) : message;
  }
  static std::vector<Ids> documents(const std::vector<std::string>& files, const std::string& format,
                                    int32_t eos = -1) {
    const auto source = open_token_documents(files, format, {.eos = eos});
    std::vector<Ids> all;
    for (EncodedDocument document; source->next(document);) all.push_back(document.ids);
    EXPECT_EQ(source->progress(), 1);
    return all;
  }

  TempFolder folder_;
};

TEST_F(TokenFilesTest, EveryTypeGivesTheSameRows) {
  const struct {
    std::string format, content, dtype;
    int64_t vocab_size;
  } cases[] = {{"nanogpt", ids_of<uint16_t>(0, 23), "auto", 65536},
               {"nanogpt", ids_of<int32_t>(0, 23), "int32", INT32_MAX},
               {"nanogpt", ids_of<int64_t>(0, 23), "int64", INT32_MAX},
               {"llmc", llmc(20240520, 1, 23, ids_of<uint16_t>(0, 23)), "auto", 65536},
               {"llmc", llmc(20240801, 7, 23, ids_of<uint32_t>(0, 23)), "uint32", INT32_MAX}};
  for (const auto& each : cases) {
    const std::string path = file("a.bin", each.content);
    EXPECT_EQ(token_file_format(path), each.format);
    const TokenSource source =
        open_token_rows({path}, each.format, {.sequence_length = 5, .eos = 7, .token_dtype = each.dtype});
    EXPECT_EQ(source.rows->rows(), 4);
    EXPECT_EQ(source.rows->vocab_size(), each.vocab_size);
    EXPECT_EQ(source.dropped_tokens, 3);
    EXPECT_EQ(source.segments_by, "eos");
    ASSERT_EQ(source.files.size(), 1u);
    EXPECT_EQ(source.files[0].sha256, sha256(each.content));
    Batch batch;
    source.rows->append_row(1, batch);
    source.rows->append_row(3, batch);
    EXPECT_EQ(batch.ids, (Ids{5, 6, 7, 8, 9, 15, 16, 17, 18, 19}));
    EXPECT_EQ(batch.labels, (Ids{6, 7, -100, 9, -100, 16, 17, 18, 19, -100}));
    EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 0, 1, 0, 1, 2, 3, 4}));
    EXPECT_EQ(batch.segments, (Ids{0, 3, 5, 10}));
    EXPECT_EQ(batch.valid_tokens, 7);
    EXPECT_EQ(batch.rows, 2);
    EXPECT_EQ(source.rows->statistics().segments, 5);
    EXPECT_EQ(source.rows->statistics().most_segments, 2);
    EXPECT_EQ(source.rows->statistics().squared_lengths, 75 + 9 + 4);
    EXPECT_EQ(source.rows->statistics().labels, 15);
  }
}

TEST_F(TokenFilesTest, FilesAreOneStream) {
  const std::vector<std::string> files = {file("a.bin", ids_of<uint16_t>(0, 7)), file("b.bin", ids_of<uint16_t>(7, 8)),
                                          file("c.bin", ids_of<uint16_t>(8, 20))};
  const TokenSource source = open_token_rows(files, "nanogpt", {.sequence_length = 10});
  EXPECT_EQ(source.segments_by, "rows");
  Batch batch;
  source.rows->append_row(0, batch);
  source.rows->append_row(1, batch);
  Ids expected(20);
  for (int32_t i = 0; i < 20; ++i) expected[static_cast<size_t>(i)] = i;
  EXPECT_EQ(batch.ids, expected);
  EXPECT_EQ(batch.segments, (Ids{0, 10, 20}));
  EXPECT_EQ(source.files.size(), 3u);
}

TEST_F(TokenFilesTest, EosEndsDocuments) {
  const std::vector<std::string> files = {file("a.bin", raw<uint16_t>({9, 1, 2, 9, 9, 3})),
                                          file("b.bin", raw<uint16_t>({4, 9}))};
  EXPECT_EQ(documents(files, "nanogpt", 9), (std::vector<Ids>{{9}, {1, 2, 9}, {9}, {3}, {4, 9}}));
  EXPECT_EQ(documents(files, "nanogpt"), (std::vector<Ids>{{9, 1, 2, 9, 9, 3}, {4, 9}}));
}

TEST_F(TokenFilesTest, LongDocumentsComeInPieces) {
  const std::string path = file("a.bin", std::string(static_cast<size_t>(2 * kMaxPieceTokens + 6), '\0'));
  for (const int32_t eos : {-1, 5}) {
    const std::vector<Ids> pieces = documents({path}, "nanogpt", eos);
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[0].size(), static_cast<size_t>(kMaxPieceTokens));
    EXPECT_EQ(pieces[1].size(), 3u);
  }
}

// 40,000 ids of 16 bits: 20 pages.
TEST_F(TokenFilesTest, FilesThatShrinkAreRefusedAtTheirRow) {
  const auto shrunk = [&](const char* name, size_t left) {
    return fmt::format("{}: the file has shrunk to {} bytes, expected the", folder_ / name, left);
  };
  const std::string ids(80'000, '\1');
  for (const size_t left : {size_t{100}, size_t{4096 * 3}}) {
    const std::string path = file("a.bin", ids);
    const TokenSource source = open_token_rows({path}, "nanogpt", {.sequence_length = 1000});
    const auto documents = open_token_documents({path}, "nanogpt", {.eos = 5});
    std::filesystem::resize_file(path, left);
    Batch batch;
    std::string row = shrunk("a.bin: row 39", left), token = shrunk("a.bin: token 0", left);
    EXPECT_TRUE(error_of(Exit::kInput, [&] { source.rows->append_row(39, batch); }).starts_with(row));
    EncodedDocument document;
    EXPECT_TRUE(error_of(Exit::kInput, [&] { documents->next(document); }).starts_with(token));
  }
  Megatron index;
  index.lengths.assign(10'000, 1), index.pointers.clear(), index.documents.clear();
  for (int64_t i = 0; i < 10'000; ++i) index.pointers.push_back(2 * i), index.documents.push_back(i);
  index.documents.push_back(10'000);
  const std::string path = megatron(index, std::string(20'000, '\1'));
  const TokenSource source = open_token_rows({path}, "megatron", {.sequence_length = 1000});
  std::filesystem::resize_file(folder_ / "m.idx", 4096);
  Batch batch;
  EXPECT_TRUE(
      error_of(Exit::kInput, [&] { source.rows->append_row(9, batch); }).starts_with(shrunk("m.idx: row 9", 4096)));
}

TEST_F(TokenFilesTest, MegatronDocumentsEndSegments) {
  for (const std::string& modes : {std::string(), std::string(4, '\0')}) {
    Megatron index;
    index.modes = modes;
    const std::string path = megatron(index);
    EXPECT_EQ(token_file_format(path), "megatron");
    const std::string by_index = path.substr(0, path.size() - 3) + "idx";
    // Documents of 3, 0, 4 and 3 tokens; sequence 1 is empty.
    EXPECT_EQ(documents({by_index}, "megatron"),
              (std::vector<Ids>{{100, 101, 102}, {103, 104, 105, 106}, {107, 108, 109}}));
    const TokenSource source = open_token_rows({path, by_index}, "megatron", {.sequence_length = 5, .eos = 104});
    EXPECT_EQ(source.segments_by, "documents");
    EXPECT_EQ(source.rows->rows(), 4);
    EXPECT_EQ(source.files.size(), 4u);
    Batch batch;
    for (int64_t row = 0; row < 4; ++row) source.rows->append_row(row, batch);
    EXPECT_EQ(batch.segments, (Ids{0, 3, 5, 7, 10, 13, 15, 17, 20}));
    EXPECT_EQ(batch.ids[7], 107);
    EXPECT_EQ(source.rows->statistics().segments, 8);
    // A row over both files ends a segment where the first file ends.
    const TokenSource wide = open_token_rows({path, by_index}, "megatron", {.sequence_length = 20});
    batch.clear();
    wide.rows->append_row(0, batch);
    EXPECT_EQ(batch.segments, (Ids{0, 3, 7, 10, 13, 17, 20}));
  }
}

TEST_F(TokenFilesTest, AnEosThatSplitsNothingIsSaid) {
  const std::string path = file("a.bin", ids_of<uint16_t>(0, 12));
  TokenSource source = open_token_rows({path}, "nanogpt", {.sequence_length = 4, .vocab_size = 100, .eos = 99});
  EXPECT_EQ(source.notes, (std::vector<std::string>{"no EOS 99 in 3 rows: each is one segment"}));
  source = open_token_rows({path}, "nanogpt", {.sequence_length = 4, .vocab_size = 100, .eos = 5});
  EXPECT_TRUE(source.notes.empty());
  source = open_token_rows({megatron(Megatron())}, "megatron", {.sequence_length = 4, .eos = 104});
  EXPECT_EQ(source.notes,
            (std::vector<std::string>{"data.eos_token does not split rows: the .idx says where documents end"}));
  EXPECT_EQ(
      error_of(Exit::kUsage,
               [&] { open_token_rows({path}, "nanogpt", {.sequence_length = 4, .vocab_size = 100, .eos = 100}); }),
      "data.eos_token: id 100 is outside the vocabulary of 100");
}

TEST_F(TokenFilesTest, IdsOutsideTheVocabularyNameFileAndToken) {
  const std::string first = file("a.bin", ids_of<uint16_t>(0, 6)), second = file("b.bin", ids_of<uint16_t>(6, 12));
  EXPECT_EQ(error_of(Exit::kInput,
                     [&] {
                       open_token_rows({first, second}, "nanogpt", {.sequence_length = 4, .vocab_size = 10});
                     }),
            second + ": token 4 is 10, outside the vocabulary of 10");
  EXPECT_EQ(
      refusal(file("n.bin", raw<int32_t>({1, 2, -5, 4})), "nanogpt", {.sequence_length = 4, .token_dtype = "int32"}),
      "n.bin: token 2 is -5, outside the vocabulary of 2147483647");
  EXPECT_EQ(refusal(file("n.bin", raw<int64_t>({1, 2, int64_t{1} << 40, 4})), "nanogpt",
                    {.sequence_length = 4, .token_dtype = "int64"}),
            "n.bin: token 2 is 1099511627776, outside the vocabulary of 2147483647");
}

TEST_F(TokenFilesTest, MalformedHeadersAreRefused) {
  const std::string body = ids_of<uint16_t>(0, 8);
  const struct {
    std::string format, content, expected;
  } cases[] = {
      {"nanogpt", "", "x.bin: holds no tokens"},
      {"nanogpt", "abc", "x.bin: 3 bytes of ids are no whole number of uint16 (data.token_dtype)"},
      {"nanogpt", raw<uint16_t>({1, 2, 3}), "x.bin: 3 tokens in all, fewer than one row of 4 (data.sequence_length)"},
      {"nanogpt", llmc(20240520, 1, 8, body),
       "x.bin: expected ids without a header (data.format: nanogpt), found a file of llm.c (data.format: llmc)"},
      {"nanogpt", Megatron().index(),
       "x.bin: expected ids without a header (data.format: nanogpt), found a Megatron index (data.format: megatron)"},
      {"nanogpt", std::string("\x1f\x8b\x08\0\0\0\0\0", 8),
       "x.bin: expected ids without a header (data.format: nanogpt), found a gzip file"},
      {"llmc", "", "x.bin: has 0 bytes, the header of llm.c takes 1024"},
      {"llmc", std::string(1024, '\0'), "x.bin: magic 0, expected 20240520 or 20240801 (llm.c)"},
      {"llmc", llmc(20240520, 2, 8, body), "x.bin: version 2 behind magic 20240520, expected 1"},
      {"llmc", llmc(20240801, 1, 4, body), "x.bin: version 1 behind magic 20240801, expected 7"},
      {"llmc", llmc(20240522, 1, 8, body),
       "x.bin: is an evaluation set (multiple choice) of llm.c, expected a stream of tokens"},
      {"llmc", llmc(20240328, 2, 8, body), "x.bin: is a tokenizer of llm.c, expected a stream of tokens"},
      {"llmc", llmc(20240520, 1, 0, ""), "x.bin: holds no tokens"},
      {"llmc", llmc(20240520, 1, 9, body), "x.bin: the header says 9 tokens, the file holds 8"},
      {"llmc", llmc(20240520, 1, -8, body), "x.bin: the header says -8 tokens, the file holds 8"},
      {"llmc", llmc(20240520, 1, 8, body + "a"),
       "x.bin: 17 bytes of ids are no whole number of uint16 (data.token_dtype)"},
  };
  for (const auto& each : cases) {
    const std::string found = refusal(file("x.bin", each.content), each.format);
    EXPECT_TRUE(found.starts_with(each.expected)) << found;
  }
  const std::string path = file("x.bin", llmc(20240520, 1, 8, body));
  EXPECT_EQ(
      error_of(Exit::kUsage, [&] { open_token_rows({path}, "llmc", {.sequence_length = 4, .token_dtype = "int32"}); }),
      "data.token_dtype: int32, but " + path + " holds uint16 by its header; leave it at auto");
  EXPECT_EQ(refusal(folder_ / "none.bin", "nanogpt"), "none.bin: cannot open: No such file or directory");
  EXPECT_EQ(refusal(file("alone.bin", body), "megatron"), "alone.idx: cannot open: No such file or directory");
}

TEST_F(TokenFilesTest, MalformedMegatronIndicesAreRefused) {
  const struct {
    std::function<void(Megatron&)> change;
    std::string expected;
  } cases[] = {
      {[](Megatron& m) { m.magic[0] = 'X'; }, "m.idx: does not begin with MMIDIDX, expected an index of Megatron-LM"},
      {[](Megatron& m) { m.version = 2; }, "m.idx: version 2, expected 1"},
      {[](Megatron& m) { m.dtype = 7; }, "m.idx: dtype code 7, expected whole numbers (1 to 5, 8)"},
      {[](Megatron& m) { m.dtype = 0; }, "m.idx: dtype code 0, expected whole numbers (1 to 5, 8)"},
      {[](Megatron& m) { m.sequences = ~uint64_t{0}; },
       "m.idx: 18446744073709551615 sequences and 5 documents do not fit into 122 bytes"},
      {[](Megatron& m) { m.document_count = uint64_t{1} << 61; },
       "m.idx: 4 sequences and 2305843009213693952 documents do not fit into 122 bytes"},
      {[](Megatron& m) { m.sequences = 3; }, "m.idx: 3 sequences and 5 documents take 110 bytes, the file has 122"},
      {[](Megatron& m) { m.modes = "abc"; }, "m.idx: 4 sequences and 5 documents take 122 bytes, the file has 125"},
      {[](Megatron& m) { m.lengths = {}, m.pointers = {}, m.documents = {0}; },
       "m.idx: 0 sequences and 1 document offsets, expected at least 1 and 2"},
      {[](Megatron& m) { m.lengths[1] = -1; }, "m.idx: sequence 1 has a length of -1"},
      {[](Megatron& m) { m.lengths[2] = INT32_MAX; }, "m.idx: sequence 2 ends at byte 4294967300, "},
      {[](Megatron& m) { m.pointers[2] = 8; },
       "m.idx: sequence 2 begins at byte 8, expected 6: sequences lie end to end"},
      {[](Megatron& m) { m.pointers[0] = -2; },
       "m.idx: sequence 0 begins at byte -2, expected 0: sequences lie end to end"},
      {[](Megatron& m) { m.lengths[3] = 2; }, "m.idx: the sequences end at byte 18, "},
      {[](Megatron& m) { m.documents[0] = 1; }, "m.idx: document 0 begins at sequence 1, expected 0"},
      {[](Megatron& m) { m.documents[2] = 0; }, "m.idx: document 2 begins at sequence 0, expected 1 to 4"},
      {[](Megatron& m) { m.documents[3] = INT64_MAX; },
       "m.idx: document 3 begins at sequence 9223372036854775807, expected 1 to 4"},
      {[](Megatron& m) { m.documents[4] = 3; }, "m.idx: the documents end at sequence 3 of 4"},
      {[](Megatron& m) { m.dtype = 4; }, "m.idx: sequence 1 begins at byte 6, expected 12: sequences lie end to end"},
  };
  for (const auto& each : cases) {
    Megatron index;
    each.change(index);
    const std::string found = refusal(megatron(index), "megatron");
    EXPECT_TRUE(found.starts_with(each.expected)) << found;
  }
  const std::string whole = Megatron().index();
  for (size_t size = 0; size < whole.size(); ++size) {
    megatron(Megatron());
    file("m.idx", whole.substr(0, size));
    EXPECT_NE(refusal(folder_ / "m.bin", "megatron"), "") << size;
  }
}

// Bytes of valid files changed at random: only Error may come out of reading them.
TEST_F(TokenFilesTest, MutationsNeverCrash) {
  const std::string llmc_file = llmc(20240520, 1, 12, ids_of<uint16_t>(0, 12)), index = Megatron().index();
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const bool of_llmc = round % 2 == 0;
    std::string bytes = of_llmc ? llmc_file : index;
    const size_t reach = of_llmc ? 16 : bytes.size();
    for (uint32_t n = random() % 4 + 1; n > 0; --n) {
      const size_t at = random() % reach;
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(random() % 2 == 0 ? 0xff : 0x7f);
          break;
        case 2:
          bytes[at] = static_cast<char>(bytes[at] + 1);
          break;
        default:
          bytes.resize(std::max<size_t>(reach, random() % (bytes.size() + 8)));
          break;
      }
    }
    file(of_llmc ? "f.bin" : "f.idx", bytes);
    if (!of_llmc) file("f.bin", ids_of<uint16_t>(100, 110));
    try {
      const std::string path = folder_ / "f.bin";
      const std::string format = of_llmc ? "llmc" : "megatron";
      const TokenSource source = open_token_rows({path}, format, {.sequence_length = 4});
      Batch batch;
      for (int64_t row = 0; row < source.rows->rows(); ++row) source.rows->append_row(row, batch);
      EXPECT_EQ(batch.segments.back(), source.rows->rows() * 4);
      documents({path}, format);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kInput) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
}

TEST_F(TokenFilesTest, LargeFilesAreSampled) {
  const std::string path = folder_ / "large.bin";
  std::FILE* out = std::fopen(path.c_str(), "wb");
  ASSERT_EQ(std::fseek(out, (int64_t{256} << 20) + 7, SEEK_SET), 0);
  std::fputc('a', out);
  std::fclose(out);
  const std::string before = fingerprint({path})[0].sha256;
  EXPECT_TRUE(before.starts_with("sampled:"));
  EXPECT_EQ(before.size(), 8u + 64);
  out = std::fopen(path.c_str(), "r+b");
  std::fseek(out, -1, SEEK_END);
  std::fputc('b', out);
  std::fclose(out);
  EXPECT_NE(fingerprint({path})[0].sha256, before);
}

}  // namespace
}  // namespace mantissa
