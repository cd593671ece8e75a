// What the verbs write stays within what is theirs: run folders, their locks, and places that a user names.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "base/folder_lock.h"
#include "base/safetensors.h"
#include "base/signal.h"
#include "tests/app/real_program.h"
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::ProgramResult;
using testing::run_program;
using testing::run_verb;
using testing::VerbResult;

std::string golden(const std::string& model) { return std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/" + model; }

mode_t kind_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

class OwnFiles : public testing::VerbTest {
 protected:
  static std::vector<std::string> brief() {
    return {"--train.steps=1", "--schedule.warmup_steps=0", "--train.eval_rows=1"};
  }
  static std::vector<std::string> few_rows() {
    return {"--train.steps=1", "--schedule.warmup_steps=0", "--train.eval_rows=1", "--compare.weights=[fp32]",
            "--precision.recipes=[mxfp8]"};
  }
  static std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void put_model(const std::string& place) const {
    make_dirs(place);
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(golden("qwen3") + "/" + name, place + "/" + name);
  }
  // The model of the folder trains: its sizes take the place of the config's.
  std::string config_of_model(const std::string& place) const {
    return "run: {dir: " + (folder / "run") + "}\nmodel: {init: " + place +
           "}\ndevice: {name: cpu}\ndata: {train: " + (folder / "text.txt") +
           ", tokenizer: bytes, sequence_length: 32, validation_fraction: 0.05}\nbatch: {tokens: 64}\n"
           "schedule: {name: constant, warmup_steps: 0}\ntrain: {steps: 1, eval_rows: 1}\nlog: {console: false}\n";
  }
};

TEST_F(OwnFiles, AForeignModelInTheFolderOfTheRun) {
  put_model(folder / "run/model");
  const std::string weights = read_text(folder / "run/model/model.safetensors");
  const std::string path = write_config(config_of_model(folder / "run/model"));
  expect_refused(run_verb({"train", path}), Exit::kUsage, {"run/model", "no record of a run"});
  EXPECT_TRUE(read_text(folder / "run/model/model.safetensors") == weights);
  EXPECT_FALSE(exists(folder / "run/config.yaml"));
  // Through a link at `model` its target stays as it is.
  std::filesystem::rename(folder / "run/model", folder / "dear");
  std::filesystem::create_directory_symlink(folder / "dear", folder / "run/model");
  expect_refused(run_verb({"train", path}), Exit::kStorage, {"run/model", "link"});
  EXPECT_TRUE(read_text(folder / "dear/model.safetensors") == weights);
  // Elsewhere it is a model to start from, and a run goes on from its own weights.
  ASSERT_EQ(run_verb({"train", path, "--run.dir=" + (folder / "own"), "--model.init=" + (folder / "dear")}).code, 0);
  const std::string trained = read_text(folder / "own/model/model.safetensors");
  EXPECT_TRUE(trained != weights);
  const VerbResult again =
      run_verb({"train", path, "--restart", "--run.dir=" + (folder / "own"), "--model.init=" + (folder / "own/model")});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(read_text(folder / "own/model/model.safetensors") != trained);
  EXPECT_EQ(read_json(folder / "own/run.json")["model"]["init"], folder / "own/model");
}

// A start that fails before its first step leaves the finished run as it was.
TEST_F(OwnFiles, ARestartThatCannotLoadItsModel) {
  put_model(folder / "dear");
  const std::string path = write_config(config_of_model(folder / "dear"));
  ASSERT_EQ(run_verb({"train", path}).code, 0);
  const std::string model = read_text(folder / "run/model/model.safetensors");
  std::filesystem::resize_file(folder / "dear/model.safetensors", 1000);
  expect_refused(run_verb({"train", path, "--restart"}), Exit::kInput, {"dear/model.safetensors"});
  EXPECT_TRUE(read_text(folder / "run/model/model.safetensors") == model);
  for (const char* name : {"result.json", "config.yaml", "metrics.jsonl"})
    EXPECT_TRUE(exists(folder / ("run/" + std::string(name)))) << name;
}

TEST_F(OwnFiles, ForeignFilesInTheFolderOfAComparison) {
  make_dirs(folder / "run/rows/survey");
  write_atomic(folder / "run/rows/survey/table.csv", "mine");
  write_atomic(folder / "run/config.yaml", "mine: true\n");
  expect_refused(run("compare", with(few_rows(), {"--restart"})), Exit::kUsage, {"run/config.yaml", "no record"});
  EXPECT_EQ(read_text(folder / "run/rows/survey/table.csv"), "mine");
  EXPECT_EQ(read_text(folder / "run/config.yaml"), "mine: true\n");
}

// As with run.dir: . beside one's own config.yaml.
TEST_F(OwnFiles, TheConfigThatARunIsStartedWith) {
  make_dirs(folder / "run");
  write_atomic(folder / "run/config.yaml", "# mine\n" + config());
  expect_refused(run_verb({"train", folder / "run/config.yaml"}), Exit::kUsage, {"run/config.yaml", "no record"});
  EXPECT_EQ(read_text(folder / "run/config.yaml"), "# mine\n" + config());
}

TEST_F(OwnFiles, MetricsAreAFileOfTheRun) {
  make_dirs(folder / "run");
  write_atomic(folder / "dear.txt", "mine");
  std::filesystem::create_symlink(folder / "dear.txt", folder / "run/metrics.jsonl");
  expect_refused(run("train", brief()), Exit::kStorage, {"run/metrics.jsonl", "link"});
  EXPECT_EQ(read_text(folder / "dear.txt"), "mine");
  std::filesystem::remove(folder / "run/metrics.jsonl");
  ASSERT_EQ(::mkfifo((folder / "run/metrics.jsonl").c_str(), 0600), 0);
  expect_refused(run("train", brief()), Exit::kStorage, {"run/metrics.jsonl", "FIFO"});
}

TEST_F(OwnFiles, ANameIsNoPath) {
  for (const char* name : {"..", ".", "../../x", "a/b", "/tmp/x", ""})
    for (const char* verb : {"train", "compare", "plan"})
      expect_refused(run(verb, {std::string("--run.name=") + name}), Exit::kUsage, {"run.name", "name of one folder"});
  expect_refused(run("train", {"--run.name=" + std::string(300, 'x')}), Exit::kUsage, {"run.name"});
  EXPECT_EQ(run("train", with(brief(), {"--run.name=a.b-c d"})).code, 0);
}

TEST_F(OwnFiles, OneProcessAtATime) {
  make_dirs(folder / "run");
  const std::string process = fmt::format("process {} on ", ::getpid());
  {
    const FolderLock lock(folder / "run");
    expect_refused(run("train", brief()), Exit::kUsage, {process, "run.dir"});
    expect_refused(run("compare", few_rows()), Exit::kUsage, {process, "run.dir"});
    EXPECT_FALSE(exists(folder / "run/config.yaml"));
  }
  ASSERT_EQ(run("train", brief()).code, 0);
  EXPECT_FALSE(exists(folder / "run/run.lock"));
  // A finished run is told without the lock, as on a disk that cannot be written.
  const FolderLock lock(folder / "run");
  EXPECT_EQ(run("train", brief()).code, 0);
}

// The model of a run before stands in the folder while the next one trains; it is not that one's.
TEST_F(OwnFiles, TheModelOfARunThatDidNotEnd) {
  ASSERT_EQ(run("train", brief()).code, 0);
  std::filesystem::remove(folder / "run/result.json");
  expect_refused(run_verb({"sample", folder / "run", "--prompt=a"}), Exit::kInput, {"run", "did not end", "run/model"});
  EXPECT_EQ(run_verb({"sample", folder / "run/model", "--prompt=a", "--max-new-tokens=1"}).code, 0);
}

class Outputs : public OwnFiles {
 protected:
  Outputs() {
    std::vector<float> values(32 * 32, 1.5f);
    safetensors::write(folder / "in.safetensors", {{"x", "F32", {32, 32}, std::as_bytes(std::span(values))}});
    std::vector<int64_t> ids = {1, 2, 3, 4};
    safetensors::write(folder / "ids.safetensors", {{"input_ids", "I64", {1, 4}, std::as_bytes(std::span(ids))}});
  }
  // What reaches a FIFO at `path`, and that it is still one.
  std::string through_fifo(const std::vector<std::string>& args) const {
    const std::string path = folder / "pipe";
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    std::string read;
    std::thread reader([&] {
      std::ifstream in(path);
      read.assign(std::istreambuf_iterator<char>(in), {});
    });
    std::vector<std::string> all = args;
    all.push_back(path);
    const VerbResult r = run_verb(all);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(kind_of(path), mode_t{S_IFIFO});
    if (kind_of(path) != S_IFIFO) std::ofstream(folder / "pipe", std::ios::app);
    reader.join();
    std::filesystem::remove(path);
    return read;
  }
};

TEST_F(Outputs, GoThroughAFifo) {
  ASSERT_EQ(run("train", brief()).code, 0);
  EXPECT_NE(through_fifo({"report", folder / "run", "--output"}).find("<!doctype html>"), std::string::npos);
  const std::vector<std::string> quantize = {"quantize", "--recipe=mxfp8", "--role=input",
                                             "--input=" + (folder / "in.safetensors"), "--output"};
  EXPECT_NE(through_fifo(quantize).find("x.rowwise"), std::string::npos);
  EXPECT_NE(
      through_fifo({"probe", golden("qwen3"), "--input=" + (folder / "ids.safetensors"), "--output"}).find("logits"),
      std::string::npos);
  EXPECT_NE(through_fifo({"bench", "step", write_config(config()), "--random", "--seconds=0.01", "--json"}).find("mfu"),
            std::string::npos);
  // A device and a link that leads to a file.
  ASSERT_EQ(run_verb({"report", folder / "run", "--output", "/dev/null"}).code, 0);
  EXPECT_EQ(kind_of("/dev/null"), mode_t{S_IFCHR});
  write_atomic(folder / "page.html", "old");
  std::filesystem::create_symlink("page.html", folder / "link.html");
  ASSERT_EQ(run_verb({"report", folder / "run", "--output", folder / "link.html"}).code, 0);
  EXPECT_EQ(kind_of(folder / "link.html"), mode_t{S_IFLNK});
  EXPECT_NE(read_text(folder / "page.html").find("<!doctype html>"), std::string::npos);
  // The page in the run's own folder is the run's file.
  std::filesystem::remove(folder / "run/report.html");
  std::filesystem::create_symlink(folder / "page.html", folder / "run/report.html");
  expect_refused(run_verb({"report", folder / "run"}), Exit::kStorage, {"run/report.html", "link"});
}

// To the same file as the lines, behind them.
TEST_F(Outputs, StandardOutput) {
  const ProgramResult r = run_program(folder, {"quantize", "--recipe=mxfp8", "--role=input",
                                               "--input=" + (folder / "in.safetensors"), "--output=/dev/stdout"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("x.rowwise"), std::string::npos);
  EXPECT_NE(r.out.find("wrote /dev/stdout"), std::string::npos) << r.out;
}

TEST_F(OwnFiles, ClosedDescriptors) {
  const auto args = with({"train", write_config(config())}, with(brief(), {"--log.console=true"}));
  const ProgramResult r = run_program(folder, args, [] {
    for (int fd = 0; fd <= 2; ++fd) ::close(fd);
  });
  EXPECT_EQ(r.code, 0);
  std::ifstream metrics(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) EXPECT_TRUE(Json::accept(line)) << line;
  EXPECT_TRUE(exists(folder / "run/result.json"));
}

// A limit on a file's size stands for a full disk.
TEST_F(OwnFiles, ADiskThatIsFull) {
  const auto args = with({"train", write_config(config())}, {"--train.save_weights=false", "--train.eval_every=1"});
  const ProgramResult r = run_program(folder, args, [] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 3000, .rlim_max = 3000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  });
  EXPECT_EQ(r.code, static_cast<int>(Exit::kStorage)) << r.err;
  EXPECT_NE(r.err.find("File too large"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("cannot write "), std::string::npos) << r.err;
  EXPECT_FALSE(exists(folder / "run/result.json"));
}

// What is said of an interruption is what happens.
TEST_F(OwnFiles, AStopPromisesWhatIsKept) {
  const auto args = with({"train", write_config(config())}, {"--train.steps=1000000", "--log.console=true"});
  const pid_t child = testing::start_program(folder, args);
  const auto trains = [&] {
    const std::string lines = folder / "run/metrics.jsonl";
    return exists(lines) && read_text(lines).find('\n') != std::string::npos;
  };
  for (int i = 0; i < 3000 && !trains(); ++i) ::usleep(10'000);
  ::kill(child, SIGINT);
  const ProgramResult r = testing::wait_for(folder, child);
  EXPECT_EQ(r.code, static_cast<int>(Exit::kInterrupted)) << r.err;
  EXPECT_NE(r.err.find("which is saved; the same command goes on from there"), std::string::npos) << r.err;
  EXPECT_FALSE(exists(folder / "run/run.lock"));
  // While the data is read, and while rows are written.
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"train"}, {"compare"}, {"prepare", "--out=" + (folder / "out")}}) {
    catch_stop_signals();
    ASSERT_EQ(::raise(SIGTERM), 0);
    const VerbResult e = run_verb(
        with({verb[0], write_config(config()), "--run.dir=" + (folder / "fresh")}, {verb.begin() + 1, verb.end()}));
    clear_stop_signal();
    EXPECT_EQ(e.code, static_cast<int>(Exit::kInterrupted)) << e.err;
    EXPECT_NE(e.err.find("nothing of that is kept, the same command begins it again"), std::string::npos) << e.err;
    EXPECT_EQ(e.out, "") << "nothing is promised beside it";
    EXPECT_FALSE(exists(folder / "out"));
  }
}

}  // namespace
}  // namespace mantissa
