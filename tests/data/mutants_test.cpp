// Files of every format changed at random: an Error of the right kind or other data, within a gigabyte and five seconds
// of the processor each. A hundred of a format here, 2,000 in the slow form.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/file.h"
#include "base/safetensors.h"
#include "data/mds/rows.h"
#include "data/mds/verify.h"
#include "data/mds/writer.h"
#include "data/readers/parquet_module.h"
#include "data/record.h"
#include "data/token_files/token_files.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/base/child_cost.h"
#include "tests/base/support.h"
#include "tests/data/compressed.h"

namespace mantissa {
namespace {

using testing::gzip;
using testing::kSanitized;
using testing::mutated;
using testing::TempFolder;
using testing::zstd;

constexpr double kSeconds = 5;
constexpr int64_t kKibibytes = int64_t{1} << 20;

const std::string kFixtures = MANTISSA_SOURCE_DIR "/tests/fixtures/";

struct Format {
  std::string file;  // whose bytes change, in the folder of the test
  std::string good;
  std::function<void(const std::string& path)> read;
};

// One to four bytes of `good` set: other lengths are mutated()'s part.
std::string with_other_bytes(std::string good, uint32_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 77;
  const auto draw = [&state](size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state >> 33) % n);
  };
  for (size_t changes = 1 + draw(4); changes > 0 && !good.empty(); --changes) {
    char& byte = good[draw(good.size())];
    const size_t kind = draw(4);
    byte = kind == 0   ? static_cast<char>(draw(256))
           : kind == 1 ? '\xff'
           : kind == 2 ? '\0'
                       : static_cast<char>(byte ^ 1);
  }
  return good;
}

void write_plain(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // rewriting in place waits for the disk
  std::ofstream(path, std::ios::binary) << bytes;
}

// What the child says; memory that both see.
struct Said {
  uint32_t seed, slowest;
  double seconds;
  int refused;
  char wrong[1000];
};

double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void read_mutants(const Format& format, const std::string& folder, uint32_t count, Said& said) {
  for (uint32_t seed = 0; seed < count; ++seed) {
    said.seed = seed;
    const std::string bytes = seed % 2 == 0 ? mutated(format.good, seed) : with_other_bytes(format.good, seed);
    const std::string path = folder + "/" + format.file;
    write_plain(path, bytes);
    alarm(120);
    const double begin = cpu_now();
    try {
      format.read(path);
    } catch (const Error& error) {
      ++said.refused;
      const std::string text = error.what();
      const bool library = text.find("json.exception") != std::string::npos;
      if ((error.code() != Exit::kInput && error.code() != Exit::kUsage) || library ||
          text.find('\n') != std::string::npos)
        std::snprintf(said.wrong, sizeof(said.wrong), "exit %d: %s", static_cast<int>(error.code()), text.c_str());
    } catch (const std::exception& error) {
      std::snprintf(said.wrong, sizeof(said.wrong), "%s", error.what());
    }
    const double seconds = cpu_now() - begin;
    if (seconds > said.seconds) said.seconds = seconds, said.slowest = seed;
    if (said.wrong[0] != 0) return;
  }
}

class Mutants : public ::testing::Test {
 protected:
  // All mutants of a format in a process of their own.
  void survive(const Format& format, uint32_t count) {
    SCOPED_TRACE(format.file);
    void* shared = mmap(nullptr, sizeof(Said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    Said& said = *new (shared) Said{};
    const pid_t child = fork();
    if (child == 0) {
      read_mutants(format, folder_.path(), count, said);
      _exit(0);
    }
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    EXPECT_TRUE(WIFEXITED(status)) << "mutant " << said.seed << " ended by signal " << WTERMSIG(status);
    EXPECT_STREQ(said.wrong, "") << "mutant " << said.seed;
    EXPECT_GT(said.refused, 0);
    if (!kSanitized) {
      EXPECT_LT(said.seconds, kSeconds) << "mutant " << said.slowest;
      EXPECT_LT(usage.ru_maxrss, kKibibytes) << "KiB";
    }
    munmap(shared, sizeof(Said));
    write_plain(folder_ / format.file, format.good);
    EXPECT_NO_THROW(format.read(folder_ / format.file));
  }

  std::function<void(const std::string&)> records(const RecordSpec& spec, const std::string& tokenizer = "anywhere") {
    return [spec, tokenizer](const std::string& path) {
      DataConfig config;
      config.tokenizer = tokenizer;
      const auto reader = open_records(find_source(path, "", config), spec, config);
      for (Record record; reader->next(record);) {
      }
      reader->finish();
    };
  }

  void text_formats(uint32_t count);
  void token_formats(uint32_t count);
  void parquet(uint32_t count);

  TempFolder folder_;
};

void Mutants::text_formats(uint32_t count) {
  const RecordSpec text{.columns = {"text"}, .messages = ""}, chat{.columns = {}, .messages = "m"},
      pair{.columns = {"prompt", "completion"}, .messages = ""}, deep{.columns = {"a.b"}, .messages = ""};
  std::string lines, turns, pairs, array = "[";
  for (int i = 0; i < 20; ++i) {
    lines += R"({"id": 1, "text": "a \u00e9\n\ud834\udd1e b", "x": [1, {"y": null}]})"
             "\n";
    turns += R"({"m": [{"from": "human", "value": "q"}, {"role": "assistant", "content": "a"}]})"
             "\n";
    pairs += R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]})"
             "\n";
    array += R"({"a": {"b": "deep", "c": [{}]}, "text": "x"})" + std::string(i < 19 ? ",\n" : "]");
  }
  survive({"a.txt", "One line.\nAnother.\n\nA document \xe2\x9c\x93.\r\n", records(text)}, count);
  survive({"a.jsonl", lines, records(text)}, count);
  survive({"chat.jsonl", turns, records(chat)}, count);
  survive({"pairs.jsonl", pairs, records(pair)}, count);
  survive({"array.json", array, records(deep)}, count);
  survive({"a.jsonl.gz", gzip(lines), records(text)}, count);
  survive({"a.jsonl.zst", zstd(lines), records(text)}, count);
  // Two entries of a DICT database: headword, offset and length in base 64.
  write_plain(folder_ / "d.dict", "one\n   first meaning\ntwo\n   second\n");
  survive({"d.index", "one\tA\tV\ntwo\tV\tO\n", records(text)}, count);
  survive({"tokenizer.json", read_text(kFixtures + "tokenizers/chatml/tokenizer.json"),
           [](const std::string& path) { Tokenizer::open(path); }},
          count);
}

void Mutants::token_formats(uint32_t count) {
  const auto raw = [](auto... values) {
    std::string out;
    (out.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
    return out;
  };
  const auto rows_of = [](const std::string& format) {
    return [format](const std::string& path) {
      const TokenSource source = open_token_rows({path}, format, {.sequence_length = 4, .eos = 3});
      Batch batch;
      for (int64_t row = 0; row < source.rows->rows(); ++row) source.rows->append_row(row, batch);
      const auto documents = open_token_documents({path}, format, {.eos = 3});
      for (EncodedDocument document; documents->next(document);) {
      }
    };
  };
  std::string ids;
  for (uint16_t id = 0; id < 40; ++id) ids += raw(static_cast<uint16_t>(id % 9));
  std::string header = raw(int32_t{20240520}, int32_t{1}, int32_t{40});
  header.resize(1024, '\0');
  survive({"l.bin", header + ids, rows_of("llmc")}, count);
  write_plain(folder_ / "m.bin", ids);
  std::string index("MMIDIDX\0\0", 9);
  index += raw(uint64_t{1}, uint8_t{8}, uint64_t{4}, uint64_t{5});
  for (int i = 0; i < 4; ++i) index += raw(int32_t{10});
  for (int64_t i = 0; i < 4; ++i) index += raw(int64_t{20 * i});
  for (int64_t i = 0; i < 5; ++i) index += raw(i);
  survive({"m.idx", index, rows_of("megatron")}, count);

  mds::Writer writer(folder_ / "rows", {.sequence_length = 8, .vocab_size = 50, .labels = true});
  for (int i = 0; i < 5; ++i)
    writer.add(std::vector<int32_t>(8, i), std::vector<int32_t>{3, 5}, std::vector<int32_t>(8, -100));
  writer.finish({});
  const auto mds = [](const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    mds::verify(folder);
    const TokenSource source = mds::open_rows({folder}, {.sequence_length = 8});
    Batch batch;
    for (int64_t row = 0; row < source.rows->rows(); ++row) source.rows->append_row(row, batch);
  };
  for (const char* name : {"rows/index.json", "rows/mantissa.json", "rows/shard.00000.mds"})
    survive({name, read_text(folder_ / name), mds}, count);

  const std::vector<float> values(64, 0.5f);
  safetensors::write(folder_ / "w.safetensors", {{"a", "F32", {8, 8}, std::as_bytes(std::span(values))},
                                                 {"b", "F32", {64}, std::as_bytes(std::span(values))}});
  survive({"w.safetensors", read_text(folder_ / "w.safetensors"),
           [](const std::string& path) { safetensors::Reader::open(path); }},
          count);
}

void Mutants::parquet(uint32_t count) {
  if (parquet_library().module == nullptr) GTEST_SKIP() << parquet_library().absence;
  const RecordSpec text{.columns = {"text"}, .messages = ""}, chat{.columns = {}, .messages = "messages"},
      deep{.columns = {"meta.body.text"}, .messages = ""}, pair{.columns = {"prompt", "completion"}, .messages = ""};
  for (const char* name : {"snappy", "zstd_large", "dictionary", "pages_v2"})
    survive({std::string(name) + ".parquet", read_text(kFixtures + "parquet/" + name + ".parquet"), records(text)},
            count);
  survive({"messages.parquet", read_text(kFixtures + "parquet/messages.parquet"), records(chat)}, count);
  for (const RecordSpec& spec : {deep, pair})
    survive({"nested.parquet", read_text(kFixtures + "parquet/nested.parquet"), records(spec)}, count);
}

TEST_F(Mutants, OfText) { text_formats(100); }
TEST_F(Mutants, OfTokens) { token_formats(100); }
TEST_F(Mutants, OfParquet) { parquet(60); }

class SlowMutants : public Mutants {};

TEST_F(SlowMutants, OfText) { text_formats(2000); }
TEST_F(SlowMutants, OfTokens) { token_formats(2000); }
TEST_F(SlowMutants, OfParquet) { parquet(2000); }

}  // namespace
}  // namespace mantissa
