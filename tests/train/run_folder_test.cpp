// Whose files a run's folder holds: what is refused, what is replaced, and when.
#include "train/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "tests/base/support.h"
#include "train/config.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;
using Kind = RunFolder::Kind;

// Every file below a folder with its content, links as what they say; run.lock aside.
std::map<std::string, std::string> content(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (entry.is_symlink())
      files[path] = "-> " + std::filesystem::read_symlink(entry).string();
    else
      files[path] = entry.is_regular_file() ? read_text(path) : "";
  }
  return files;
}

class Ownership : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder / ("run/" + name);
    make_dirs(path.parent_path().string());
    write_atomic(path.string(), text);
  }
  std::string text(const std::string& name) const { return read_text(folder / ("run/" + name)); }
  // A run that has ended with these weights.
  void run(const std::string& weights) const {
    RunFolder mine(folder / "run", Kind::kRun);
    mine.begin("config of " + weights);
    write("config.yaml", "config of " + weights);
    write("metrics.jsonl", "{}\n");
    place(mine, weights);
    write("result.json", "{}");
  }
  static void place(RunFolder& mine, const std::string& weights) {
    make_dirs(mine.new_model());
    write_atomic(join_path(mine.new_model(), "config.json"), "{}");
    write_atomic(join_path(mine.new_model(), "model.safetensors"), weights);
    mine.place_model();
  }
  // Refused, as run or comparison, and not a byte or name changed.
  void refused(Kind kind, Exit code, const std::vector<std::string>& parts) const {
    const auto before = content(folder.path());
    const std::string message = error_of(code, [&] { RunFolder(folder / "run", kind).begin("c"); });
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
    EXPECT_EQ(content(folder.path()), before);
  }

  TempFolder folder;
};

TEST_F(Ownership, FilesOfOthersAreRefusedByName) {
  for (const char* name : {"result.json", "metrics.jsonl", "samples.jsonl", "run.json", "config.yaml", "report.html",
                           "model/model.safetensors"}) {
    SCOPED_TRACE(name);
    write(name, "{\"mine\": 1}");
    refused(Kind::kRun, Exit::kUsage, {"run/" + std::string(name).substr(0, 5), "no record of a run"});
    std::filesystem::remove_all(folder / "run");
  }
  for (const char* name : {"compare.json", "config.yaml", "report.html", "rows/notes.txt", "rows/01-a/run.json"}) {
    SCOPED_TRACE(name);
    write(name, "{\"mine\": 1}");
    refused(Kind::kComparison, Exit::kUsage, {"run/" + std::string(name).substr(0, 4), "no record of a run"});
    std::filesystem::remove_all(folder / "run");
  }
  write("record.json", "{\"artist\": \"mine\"}");
  refused(Kind::kRun, Exit::kUsage, {"record.json", "is not the record of a run"});
}

TEST_F(Ownership, OtherNamesStay) {
  write("notes.txt", "mine");
  run("a");
  run("b");
  EXPECT_EQ(text("notes.txt"), "mine");
  EXPECT_EQ(text("model/model.safetensors"), "b");
}

TEST_F(Ownership, LinksPipesAndFoldersAreRefused) {
  make_dirs(folder / "else");
  write_atomic(folder / "else/model.safetensors", "mine");
  for (const char* name : {"metrics.jsonl", "result.json", "config.yaml", "record.json", "model"}) {
    SCOPED_TRACE(name);
    make_dirs(folder / "run");
    std::filesystem::create_symlink(name == std::string("model") ? folder / "else" : folder / "else/model.safetensors",
                                    folder / ("run/" + std::string(name)));
    refused(Kind::kRun, Exit::kStorage, {"run/" + std::string(name)});
    std::filesystem::remove_all(folder / "run");
    make_dirs(folder / "run");
    ASSERT_EQ(::mkfifo((folder / ("run/" + std::string(name))).c_str(), 0600), 0);
    EXPECT_NE(error_of(Exit::kStorage, [&] { RunFolder(folder / "run", Kind::kRun); }).find(name), std::string::npos);
    std::filesystem::remove_all(folder / "run");
  }
  EXPECT_EQ(read_text(folder / "else/model.safetensors"), "mine");
}

// People link runs to scratch disks.
TEST_F(Ownership, ALinkAtTheFolderIsFollowed) {
  make_dirs(folder / "scratch");
  std::filesystem::create_directory_symlink(folder / "scratch", folder / "run");
  run("a");
  run("b");
  EXPECT_EQ(read_text(folder / "scratch/model/model.safetensors"), "b");
}

TEST_F(Ownership, AModelThatTheRunDidNotWriteSo) {
  run("a");
  write("model/notes.txt", "mine");
  refused(Kind::kRun, Exit::kUsage, {"run/model: holds notes.txt"});
  std::filesystem::remove(folder / "run/model/notes.txt");
  write("model/model.safetensors", "c");  // as large
  refused(Kind::kRun, Exit::kUsage, {"run/model: holds model.safetensors"});
  std::filesystem::remove(folder / "run/model/model.safetensors");
  write_atomic(folder / "weights", "a");
  std::filesystem::create_symlink(folder / "weights", folder / "run/model/model.safetensors");
  refused(Kind::kRun, Exit::kUsage, {"run/model: holds model.safetensors"});
}

TEST_F(Ownership, AnEditedConfigIsNotReplaced) {
  run("a");
  write("config.yaml", "config of a, edited");
  refused(Kind::kRun, Exit::kUsage, {"config.yaml", "is not as the run wrote it"});
}

TEST_F(Ownership, TheOldModelStandsUntilTheNewOneDoes) {
  run("old");
  RunFolder mine(folder / "run", Kind::kRun);
  mine.begin("new");
  EXPECT_FALSE(exists(folder / "run/result.json")) << "a run that begins does not look finished";
  EXPECT_FALSE(exists(folder / "run/metrics.jsonl"));
  EXPECT_EQ(text("model/model.safetensors"), "old");
  make_dirs(mine.new_model());
  write_atomic(join_path(mine.new_model(), "model.safetensors"), "new");
  EXPECT_EQ(text("model/model.safetensors"), "old");
  mine.place_model();
  EXPECT_EQ(text("model/model.safetensors"), "new");
  EXPECT_FALSE(exists(mine.new_model()));
}

// What a run that was killed at any point leaves, the next one takes as its own.
TEST_F(Ownership, LeftoversOfAKilledRunGo) {
  run("old");
  {
    RunFolder killed(folder / "run", Kind::kRun);
    killed.begin("new");
    make_dirs(killed.new_model() + ".tmp-1");
    write_atomic(killed.new_model() + ".tmp-1/model.safetensors", "half");
    // Without an exchange of names the old model has stepped aside.
    std::string old = killed.new_model();
    old.replace(old.find("model.new"), 9, "model.old");
    std::filesystem::rename(folder / "run/model", old);
  }
  {
    RunFolder next(folder / "run", Kind::kRun);
    next.begin("newer");
    EXPECT_EQ(text("model/model.safetensors"), "old") << "it is back";
    for (const auto& entry : std::filesystem::directory_iterator(folder / "run"))
      EXPECT_FALSE(entry.path().filename().string().starts_with("model.")) << entry.path();
    place(next, "newer");
  }
  EXPECT_EQ(text("model/model.safetensors"), "newer");
}

TEST_F(Ownership, AModelThatChangesDuringTheRunStays) {
  run("old");
  RunFolder mine(folder / "run", Kind::kRun);
  mine.begin("new");
  write("model/model.safetensors", "dear");
  const std::string message = error_of(Exit::kUsage, [&] { place(mine, "new"); });
  EXPECT_NE(message.find(mine.new_model()), std::string::npos) << message;
  EXPECT_EQ(text("model/model.safetensors"), "dear");
  EXPECT_EQ(read_text(join_path(mine.new_model(), "model.safetensors")), "new");
}

TEST_F(Ownership, OneKindIsNotTheOther) {
  run("a");
  refused(Kind::kComparison, Exit::kUsage, {"holds a single run"});
  RunFolder(folder / "both", Kind::kComparison).begin("c");
  EXPECT_NE(error_of(Exit::kUsage, [&] { RunFolder(folder / "both", Kind::kRun); }).find("holds a comparison"),
            std::string::npos);
}

TEST_F(Ownership, RowsOfAComparison) {
  RunFolder(folder / "run", Kind::kComparison).begin("c");
  for (const char* row : {"01-a", "02-b"}) {
    RunFolder mine(folder / ("run/rows/" + std::string(row)), Kind::kRun);
    mine.begin(row);
    place(mine, row);
  }
  write("rows/02-b/notes.txt", "mine");
  write("rows/data/notes.txt", "mine");
  {
    RunFolder again(folder / "run", Kind::kComparison);
    again.begin("d");
    again.drop_rows({"01-a"});
  }
  EXPECT_TRUE(exists(folder / "run/rows/01-a/model")) << "replaced by its row, when that has ended";
  EXPECT_FALSE(exists(folder / "run/rows/02-b/model"));
  EXPECT_FALSE(exists(folder / "run/rows/02-b/record.json"));
  EXPECT_EQ(text("rows/02-b/notes.txt"), "mine");
  EXPECT_EQ(text("rows/data/notes.txt"), "mine");
  // A foreign model in a row stops before anything goes.
  write("rows/01-a/model/model.safetensors", "mine");
  refused(Kind::kComparison, Exit::kUsage, {"rows/01-a/model: holds model.safetensors"});
  std::filesystem::remove_all(folder / "run/rows/01-a");
  std::filesystem::create_directory_symlink(folder / "run", folder / "run/rows/01-a");
  refused(Kind::kComparison, Exit::kStorage, {"rows/01-a"});
}

// Folders of versions that wrote no record (docs/run_folder.md).
TEST_F(Ownership, ARunOfAnEarlierVersion) {
  const std::string golden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/qwen3";
  const Json config = read_json(golden + "/config.json");
  const Json info = {{"version", "0.1"},
                     {"started", ""},
                     {"machine", Json::object()},
                     {"precision", Json::object()},
                     {"steps", 1},
                     {"model",
                      {{"arch", "qwen3"},
                       {"layers", config["num_hidden_layers"]},
                       {"hidden", config["hidden_size"]},
                       {"vocab", config["vocab_size"]},
                       {"intermediate", config["intermediate_size"]}}}};
  const auto earlier = [&] {
    std::filesystem::remove_all(folder / "run");
    write("run.json", info.dump());
    write("config.yaml", "run: {name: a}");
    write("metrics.jsonl", "{}\n");
    write("result.json", "{}");
    make_dirs(folder / "run/model");
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(golden + "/" + name, folder / ("run/model/" + std::string(name)));
  };
  earlier();
  run("new");
  EXPECT_EQ(text("model/model.safetensors"), "new");
  // Another's model: of other sizes, with other files, or beside a run that did not end.
  earlier();
  write("model/notes.txt", "mine");
  refused(Kind::kRun, Exit::kUsage, {"run/model: holds"});
  earlier();
  Json other = info;
  other["model"]["layers"] = 99;
  write("run.json", other.dump());
  refused(Kind::kRun, Exit::kUsage, {"run/model: holds"});
  earlier();
  std::filesystem::remove(folder / "run/result.json");
  refused(Kind::kRun, Exit::kUsage, {"run/model: holds"});
  // A run.json of something else proves nothing.
  earlier();
  write("run.json", "{\"version\": 1}");
  refused(Kind::kRun, Exit::kUsage, {"result.json", "no record of a run"});
}

TEST_F(Ownership, AComparisonOfAnEarlierVersion) {
  const Json compare = {{"version", "0.1"}, {"config", "c"}, {"rows", Json::array()}, {"rows_planned", 4}};
  write("config.yaml", "c");
  write("compare.json", compare.dump());
  RunFolder(folder / "run", Kind::kComparison).go_on("c");
  EXPECT_EQ(text("compare.json"), compare.dump());
  RunFolder(folder / "run", Kind::kComparison).begin("d");
  EXPECT_FALSE(exists(folder / "run/compare.json"));
  // One that ended no row is recognised by its config.
  std::filesystem::remove_all(folder / "run");
  write("config.yaml", "c");
  write("rows/01-a/config.yaml", "r");
  write("rows/01-a/run.json",
        Json({{"version", ""}, {"started", ""}, {"machine", 1}, {"model", 1}, {"precision", 1}, {"steps", 1}}).dump());
  refused(Kind::kComparison, Exit::kUsage, {"config.yaml", "no record of a run"});
  RunFolder(folder / "run", Kind::kComparison, "c").go_on("c");
  EXPECT_TRUE(exists(folder / "run/record.json"));
}

// Its text of the config lacks keys that came later, or has one that is no part of an identity.
TEST_F(Ownership, AnUnfinishedComparisonWhoseConfigHasOtherKeys) {
  const std::string identity = identity_of("");
  const std::string key = "  every: 1\n";
  ASSERT_NE(identity.find(key), std::string::npos);
  for (const std::string other : {"", "  every: 7\n"}) {
    SCOPED_TRACE(other);
    std::string earlier = identity;
    earlier.replace(earlier.find(key), key.size(), other);
    write("config.yaml", earlier);
    refused(Kind::kComparison, Exit::kUsage, {"config.yaml", "no record of a run"});
    {
      RunFolder mine(folder / "run", Kind::kComparison, identity);
      EXPECT_EQ(text("config.yaml"), earlier) << "nothing is replaced before it begins";
      mine.go_on(identity);
    }
    write("config.yaml", identity);
    RunFolder(folder / "run", Kind::kComparison).go_on(identity);
    // A later version whose text is another goes on too, and what it writes is its own.
    RunFolder(folder / "run", Kind::kComparison).go_on(identity + "# more\n");
    EXPECT_FALSE(exists(folder / "run/config.yaml"));
    write("config.yaml", identity + "# more\n");
    RunFolder(folder / "run", Kind::kComparison).go_on(identity + "# more\n");
    std::filesystem::remove_all(folder / "run");
  }
  std::string differs = identity;
  const std::string seed = "  seed: 0\n";
  ASSERT_NE(differs.find(seed), std::string::npos);
  differs.replace(differs.find(seed), seed.size(), "  seed: 1\n");
  write("config.yaml", differs);
  const std::string message =
      error_of(Exit::kUsage, [&] { RunFolder(folder / "run", Kind::kComparison, identity).go_on(identity); });
  EXPECT_NE(message.find("no record of a run"), std::string::npos) << message;
}

TEST_F(Ownership, AFolderThatNobodyFilledGoes) {
  { RunFolder(folder / "run", Kind::kRun).claim(); }
  EXPECT_FALSE(exists(folder / "run"));
  make_dirs(folder / "run");
  { RunFolder(folder / "run", Kind::kRun).claim(); }
  EXPECT_TRUE(exists(folder / "run"));
}

}  // namespace
}  // namespace mantissa
