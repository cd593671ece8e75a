// The program as a process that is killed and told to stop, at random times and in the midst of a save: what it left
// goes on as the run that nobody touched; and of the bits of its checkpoints none can change unseen. MANTISSA_KILLS=N
// kills N times at random and N/4 times inside a save, MANTISSA_FLIPS=N changes N bits (./run faults).
#include <dirent.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "tests/app/real_program.h"
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::ProgramResult;
using testing::run_program;
using testing::start_program;
using testing::VerbTest;
using testing::wait_for;

int wanted(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}
int kills_wanted() { return wanted("MANTISSA_KILLS", 4); }

class Survive : public VerbTest {
 protected:
  // Some short steps, with evaluations and samples, of a recipe that draws random bits.
  std::vector<std::string> args(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"train",
                                    write_config(config()),
                                    "--run.dir=" + (folder / name),
                                    "--train.steps=160",
                                    "--train.eval_every=20",
                                    "--train.sample_every=60",
                                    "--sample.max_new_tokens=4",
                                    "--train.checkpoint_every=7",
                                    "--precision.recipe=nvfp4",
                                    "--precision.weights=bf16-sr",
                                    "--optimizer.state=8bit",
                                    "--precision.rules=[{match: head, recipe: bf16}]",
                                    "--batch.micro_batch=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::vector<std::string> lines(const std::string& name) {
    std::vector<std::string> found;
    const std::string text = read_text(folder / (name + "/metrics.jsonl"));
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      Json line = parse_json(text.substr(at, end - at), "metrics.jsonl");
      for (const char* key : {"seconds", "tokens_per_s", "mfu", "data_wait_s"}) line.erase(key);
      found.push_back(line.dump());
    }
    return found;
  }
  void expect_same(const std::string& a, const std::string& b) {
    EXPECT_EQ(lines(a), lines(b));
    for (const char* file : {"/samples.jsonl", "/model/model.safetensors"})
      EXPECT_TRUE(read_text(folder / (a + file)) == read_text(folder / (b + file))) << file;
    const Json x = read_json(folder / (a + "/result.json")), y = read_json(folder / (b + "/result.json"));
    for (const char* key : {"loss", "eval_loss", "steps", "tokens"}) EXPECT_EQ(x[key], y[key]) << key;
  }
  // Whether a checkpoint is being written.
  bool saving(const std::string& name) {
    DIR* open = ::opendir((folder / (name + "/checkpoints")).c_str());
    bool found = false;
    while (open != nullptr && !found) {
      const dirent* entry = ::readdir(open);
      if (entry == nullptr) break;
      found = std::string(entry->d_name).find(".tmp-") != std::string::npos;
    }
    if (open != nullptr) ::closedir(open);
    return found;
  }
  bool running(pid_t child) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  // Until the program writes a checkpoint. False: it ended before.
  bool wait_for_save(const std::string& name, pid_t child) {
    while (running(child))
      if (saving(name)) return true;
    return false;
  }
  double seconds_of(const std::string& name) {
    return read_json(folder / (name + "/result.json"))["seconds"].get<double>() + 0.6;  // start and machine rates
  }

  std::mt19937 random_{20};
};

TEST_F(Survive, KilledAtRandomTimes) {
  ASSERT_EQ(run_program(folder, args("whole")).code, 0);
  const double longest = 0.8 * seconds_of("whole");
  int kills = 0;
  for (int runs = 0; kills < kills_wanted(); ++runs) {
    const std::string name = "cut" + std::to_string(runs);
    for (;;) {
      const pid_t child = start_program(folder, args(name));
      if (kills < kills_wanted())
        ::usleep(static_cast<useconds_t>(1e6 * longest * std::uniform_real_distribution(0.1, 1.0)(random_)));
      const bool killed = kills < kills_wanted() && running(child);
      if (killed) ::kill(child, SIGKILL), ++kills;
      const ProgramResult r = wait_for(folder, child);
      if (killed) continue;
      ASSERT_EQ(r.code, 0) << r.err;
      break;
    }
    expect_same("whole", name);
  }
}

TEST_F(Survive, KilledInsideASave) {
  ASSERT_EQ(run_program(folder, args("whole")).code, 0);
  const int wanted = std::max(2, kills_wanted() / 4);
  int kills = 0;
  for (int runs = 0; kills < wanted; ++runs) {
    const std::string name = "cut" + std::to_string(runs);
    for (;;) {
      const pid_t child = start_program(folder, args(name, {"--train.checkpoint_every=1"}));
      bool killed = false;
      // Not the first one each time: a while of the run lies between two kills.
      for (int skip = static_cast<int>(random_() % 20); skip >= 0 && kills < wanted; --skip) {
        if (!wait_for_save(name, child)) break;
        if (skip > 0)
          while (running(child) && saving(name)) ::usleep(50);
        else
          ::kill(child, SIGKILL), killed = true, ++kills;
      }
      const ProgramResult r = wait_for(folder, child);
      if (killed) continue;
      ASSERT_EQ(r.code, 0) << r.err;
      break;
    }
    EXPECT_FALSE(saving(name)) << "what a killed save left goes at the next start";
    expect_same("whole", name);
  }
}

// In whatever phase they come: 75 and one line, or the run was at its end; the same command goes on.
TEST_F(Survive, StoppedBySignalsAtRandomTimes) {
  ASSERT_EQ(run_program(folder, args("whole")).code, 0);
  const double longest = seconds_of("whole");
  int stops = 0;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGTERM, SIGUSR1}) {
    const pid_t child = start_program(folder, args("cut"));
    ::usleep(static_cast<useconds_t>(1e6 * longest * std::uniform_real_distribution(0.25, 0.6)(random_)));
    ::kill(child, number);
    const ProgramResult r = wait_for(folder, child);
    if (r.code == 0) continue;
    ++stops;
    EXPECT_EQ(r.code, 75) << r.err;
    EXPECT_NE(r.err.find("the same command"), std::string::npos) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
  EXPECT_GT(stops, 0);
  ASSERT_EQ(run_program(folder, args("cut")).code, 0);
  expect_same("whole", "cut");
}

TEST_F(Survive, ASecondSignalLeavesAtOnceInsideASave) {
  ASSERT_EQ(run_program(folder, args("whole")).code, 0);
  int code = 0;
  for (int tries = 0; tries < 20 && code != 128 + SIGINT && code != 128 + SIGTERM; ++tries) {
    const pid_t child = start_program(folder, args("cut", {"--train.checkpoint_every=1"}));
    if (wait_for_save("cut", child)) ::kill(child, SIGTERM), ::kill(child, SIGINT);
    code = wait_for(folder, child).code;
  }
  EXPECT_TRUE(code == 128 + SIGINT || code == 128 + SIGTERM) << code;
  ASSERT_EQ(run_program(folder, args("cut")).code, 0);
  expect_same("whole", "cut");
}

// Each in a file drawn by its size: verify says exit 3 and names it, and where the bit lies in a tensor, that.
TEST_F(Survive, NoBitOfACheckpointChangesUnseen) {
  ASSERT_EQ(run_program(folder, args("run", {"--train.steps=2"})).code, 0);
  const std::string place = folder / "run/checkpoints/step_2";
  ASSERT_EQ(testing::run_verb({"verify", place}).code, 0);
  const std::vector<std::string> files = {place + "/manifest.json", place + "/state-00001.safetensors"};
  uint64_t header = 0;  // of the tensors' file
  std::memcpy(&header, read_text(files[1]).data(), sizeof header);
  for (int flip = wanted("MANTISSA_FLIPS", 60); flip > 0; --flip) {
    const std::string& file = files[flip % 4 == 0 ? 0 : 1];
    const auto byte = static_cast<std::streamoff>(random_() % file_size(file));
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto change = [&, bit = 1 << random_() % 8] {
      stream.seekg(byte);
      const int was = stream.get();
      stream.seekp(byte);
      stream.put(static_cast<char>(was ^ bit)).flush();
    };
    change();
    const testing::VerbResult r = testing::run_verb({"verify", place});
    const std::string where = fmt::format("byte {} of {}", byte, file);
    EXPECT_EQ(r.code, 3) << where << r.err;
    EXPECT_NE(r.err.find(file), std::string::npos) << where << r.err;
    if (file == files[1] && byte >= static_cast<std::streamoff>(8 + header)) {
      EXPECT_NE(r.err.find(": tensor "), std::string::npos) << where << r.err;
    }
    change();
  }
  EXPECT_EQ(testing::run_verb({"verify", place}).code, 0);
}

TEST_F(Survive, FilesAskAndTheConsoleSays) {
  std::filesystem::create_directories(folder / "run");
  write_atomic(folder / "run/STOP", "");
  const ProgramResult stopped = run_program(folder, args("run", {"--log.console=true"}));
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_NE(stopped.err.find("stopped after step 1 of 160, which is saved"), std::string::npos) << stopped.err;
  EXPECT_FALSE(exists(folder / "run/STOP"));
  EXPECT_NE(stopped.out.find("saved     step 1 · "), std::string::npos) << stopped.out;
  const ProgramResult on = run_program(folder, args("run", {"--log.console=true", "--train.steps=160"}));
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_NE(on.out.find("goes on   behind step 1 of 160 · "), std::string::npos) << on.out;
  const ProgramResult ended = run_program(folder, args("run", {"--log.console=true"}));
  EXPECT_NE(ended.out.find("holds a finished run"), std::string::npos) << ended.out;
  const testing::VerbResult verified = testing::run_verb({"verify", folder / "run"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  const ProgramResult other =
      run_program(folder, args("run", {"--optimizer.lr=1e-3", "--resume=" + (folder / "run/checkpoints/step_160")}));
  expect_refused({other.code, other.out, other.err}, Exit::kUsage,
                 {"step_160: of a run of another config: optimizer.lr"});
}

}  // namespace
}  // namespace mantissa
