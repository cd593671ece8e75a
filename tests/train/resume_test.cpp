// A run that was stopped, killed or damaged goes on as the one that was not.
#include "train/resume.h"

#include <filesystem>
#include <fstream>

#include "tests/train/small_run.h"
#include "train/run_train.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::small_run;
using testing::TempFolder;

// Epochs of ten rows, a few documents a row, two micro-batches a step.
TrainConfig course_config(const TempFolder& folder, const std::string& name) {
  TrainConfig c = small_run(folder, name);
  c.data.max_documents = 4, c.data.packing = "best_fit";
  c.batch.micro_batch = "1";
  c.precision.recipe = "bf16", c.precision.weights = "fp32", c.precision.scope = "linear";
  c.train.steps = 10;
  c.train.checkpoint_every = "1";
  return c;
}

struct Start {
  StartOptions options;
  TrainHooks hooks;
};

// A start without the machine being measured.
RunResult start(const TrainConfig& c, const Start& start = {}) {
  RunFolder folder(c.run.dir, RunFolder::Kind::kRun);
  const std::optional<ResumePoint> point = ResumePoint::find(c, start.options);
  const Dataset data = Dataset::load(c.data, static_cast<uint64_t>(c.run.seed));
  RunHooks hooks;
  hooks.train = start.hooks;
  return train_into(folder, c, point, data, {1, 1}, nullptr, hooks);
}

// Stops behind `step`, or where `ask` says so for the n-th time that it is asked.
Start stopped_behind(int64_t step) {
  auto last = std::make_shared<int64_t>(0);
  Start s;
  s.hooks.events = [last](const Event& event) {
    if (const auto* report = std::get_if<StepReport>(&event)) *last = report->step;
  };
  s.hooks.stop = [last, step] { return *last == step; };
  return s;
}

// What a run leaves: its lines without times and speeds, its samples, its figures, its weights.
struct Course {
  std::vector<std::string> lines;
  std::string samples, figures, weights;
};

std::string read_if_there(const std::string& path) { return exists(path) ? read_text(path) : ""; }

std::vector<std::string> lines_of(const TrainConfig& c) {
  std::vector<std::string> lines;
  const std::string text = read_text(join_path(c.run.dir, "metrics.jsonl"));
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    Json line = parse_json(text.substr(at, end - at), "metrics.jsonl");
    for (const char* key : {"seconds", "tokens_per_s", "mfu", "data_wait_s"}) line.erase(key);
    lines.push_back(line.dump());
  }
  return lines;
}

Course course_of(const TrainConfig& c) {
  const Json result = read_json(join_path(c.run.dir, "result.json"));
  return {lines_of(c), read_if_there(join_path(c.run.dir, "samples.jsonl")),
          fmt::format("{} {} {}", result["loss"].dump(), result["eval_loss"].dump(), result["steps"].dump()),
          read_text(join_path(c.run.dir, "model/model.safetensors"))};
}

void expect_same_course(const TrainConfig& a, const TrainConfig& b) {
  const Course x = course_of(a), y = course_of(b);
  EXPECT_EQ(x.lines, y.lines);
  EXPECT_EQ(x.samples, y.samples);
  EXPECT_EQ(x.figures, y.figures);
  EXPECT_TRUE(x.weights == y.weights) << "weights differ";
}

CheckpointStore store_of(const TrainConfig& c) { return CheckpointStore(join_path(c.run.dir, "checkpoints")); }

void flip_bit(const std::string& path, int64_t byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(byte);
  const int value = file.get();
  file.seekp(byte);
  file.put(static_cast<char>(value ^ 4));
}

// --- behind every step ---------------------------------------------------------------------------------------------

class StopEverywhere : public ::testing::TestWithParam<std::string> {};

void stop_behind_every_step(const std::string& recipe, int64_t steps) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "straight");
  const bool full = find_recipe(recipe).full_precision();
  c.precision.recipe = recipe;
  c.precision.weights = full ? "fp32" : "bf16-sr";
  c.precision.scope = full ? "linear" : "linear+logits+norm";
  c.optimizer.state = full ? "auto" : "8bit";
  c.train.recompute = "norm+act";
  c.train.steps = steps;
  c.train.eval_every = 3, c.train.eval_rows = 2;
  c.log.quantization_every = 4;
  c.resolve();
  start(c);
  ASSERT_GT(steps * 2, Dataset::load(c.data, 1).rows(Split::kTrain)) << "within one epoch";

  TrainConfig cut = c;
  cut.run.dir = folder / "cut";
  for (int64_t step = 1; step < steps; ++step) {
    const std::string message = error_of(Exit::kInterrupted, [&] { start(cut, stopped_behind(step)); });
    EXPECT_EQ(message, fmt::format("stopped after step {} of {}, which is saved; the same command goes on from there",
                                   step, steps));
    EXPECT_FALSE(exists(join_path(cut.run.dir, "result.json")));
  }
  start(cut);
  expect_same_course(c, cut);
  const Json resumed = read_json(join_path(cut.run.dir, "run.json"))["resumed"];
  ASSERT_EQ(resumed.size(), static_cast<size_t>(steps - 1));
  EXPECT_EQ(resumed.back(), steps - 1);
}

TEST_P(StopEverywhere, GoesOnInTheSameBits) { stop_behind_every_step(GetParam(), 12); }

class SlowStopEverywhere : public StopEverywhere {};
TEST_P(SlowStopEverywhere, OfSixtySteps) { stop_behind_every_step(GetParam(), 60); }

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const RecipeEntry& recipe : recipe_table()) names.push_back(recipe.name);
  return names;
}
std::string recipe_of(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Recipes, StopEverywhere, ::testing::ValuesIn(recipe_names()), recipe_of);
INSTANTIATE_TEST_SUITE_P(SlowRecipes, SlowStopEverywhere, ::testing::ValuesIn(recipe_names()), recipe_of);

// --- where a stop comes --------------------------------------------------------------------------------------------

// Each time that a stop can be asked for, one run is stopped there: between steps, in evaluations, between samples.
TEST(Resume, StoppedWhereverItIsAsked) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "straight");
  c.train.steps = 4, c.train.eval_every = 2, c.train.eval_rows = 3, c.train.sample_every = 2;
  c.sample.prompts = {"ab", "c"}, c.sample.max_new_tokens = 3;
  c.resolve();
  int64_t asked = 0;
  Start counting;
  counting.hooks.stop = [&] { return ++asked, false; };
  start(c, counting);
  ASSERT_GT(asked, 14);
  for (int64_t stop_at = 1; stop_at <= asked; ++stop_at) {
    TrainConfig cut = c;
    cut.run.dir = folder / ("cut" + std::to_string(stop_at));
    Start once;
    once.hooks.stop = [&, n = int64_t{0}]() mutable { return ++n == stop_at; };
    const std::string message = error_of(Exit::kInterrupted, [&] { start(cut, once); });
    EXPECT_NE(message.find("the same command"), std::string::npos) << message;
    start(cut);
    expect_same_course(c, cut);
  }
}

TEST(Resume, FilesInTheFolderAskToo) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "run");
  c.train.checkpoint_every = "1h";
  make_dirs(c.run.dir);
  Start ask;
  ask.hooks.events = [&](const Event& event) {
    const auto* report = std::get_if<StepReport>(&event);
    if (report != nullptr && report->step == 2) write_atomic(join_path(c.run.dir, RunCheckpoints::kSaveNow), "");
    if (report != nullptr && report->step == 5) write_atomic(join_path(c.run.dir, RunCheckpoints::kStop), "");
  };
  const std::string message = error_of(Exit::kInterrupted, [&] { start(c, ask); });
  EXPECT_NE(message.find("stopped after step 5 of 10"), std::string::npos) << message;
  EXPECT_EQ(store_of(c).steps(), (std::vector<int64_t>{2, 5}));
  EXPECT_FALSE(exists(join_path(c.run.dir, RunCheckpoints::kSaveNow)));
  EXPECT_FALSE(exists(join_path(c.run.dir, RunCheckpoints::kStop)));
  start(c);
  EXPECT_EQ(lines_of(c).size(), 11u) << "ten steps and an evaluation";
}

TEST(Resume, WithoutCheckpointsAStopSaysThatNothingIsKept) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "run");
  c.train.checkpoint_every = "0";
  const std::string message = error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(3)); });
  EXPECT_NE(message.find("nothing is kept of it (train.checkpoint_every is 0)"), std::string::npos) << message;
  EXPECT_FALSE(exists(store_of(c).folder()));
  start(c);
  EXPECT_FALSE(exists(store_of(c).folder()));
}

// --- which checkpoints there are -----------------------------------------------------------------------------------

TEST(Resume, CheckpointsStayByTheirKeys) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "run");
  c.train.checkpoint_every = "2", c.train.keep_last = 1, c.train.keep_every = 4;
  std::vector<int64_t> saved;
  Start s;
  s.hooks.events = [&](const Event& event) {
    if (const auto* r = std::get_if<CheckpointSaved>(&event)) saved.push_back(r->step);
  };
  start(c, s);
  EXPECT_EQ(saved, (std::vector<int64_t>{2, 4, 6, 8, 10}));
  EXPECT_EQ(store_of(c).steps(), (std::vector<int64_t>{4, 8, 10}));

  // The lowest of the evaluations stays, and is saved for that alone.
  c.run.dir = folder / "best";
  c.train.checkpoint_every = "1h", c.train.keep_every = 0, c.train.keep_best = true, c.train.eval_every = 1;
  c.optimizer.adamw.lr = 0.3;  // rises again
  int64_t best = 0;
  double lowest = INFINITY;
  s.hooks.events = [&](const Event& event) {
    if (const auto* r = std::get_if<EvalReport>(&event); r != nullptr && r->loss < lowest)
      lowest = r->loss, best = r->step;
  };
  start(c, s);
  ASSERT_LT(best, 10);
  EXPECT_EQ(store_of(c).steps(), (std::vector<int64_t>{best, 10}));
}

// --- damage ---------------------------------------------------------------------------------------------------------

TEST(Resume, TheNewestWholeOneIsTakenAndTheOthersAreNamed) {
  const TempFolder folder;
  const TrainConfig c = course_config(folder, "straight");
  start(c);
  TrainConfig cut = c;
  cut.run.dir = folder / "cut";
  error_of(Exit::kInterrupted, [&] { start(cut, stopped_behind(6)); });
  ASSERT_EQ(store_of(cut).steps(), (std::vector<int64_t>{5, 6}));
  const std::string state = store_of(cut).place(6) + "/state-00001.safetensors";
  flip_bit(state, static_cast<int64_t>(file_size(state)) - 9);
  std::vector<std::string> warnings;
  int64_t behind = 0;
  Start s;
  s.hooks.events = [&](const Event& event) {
    if (const auto* w = std::get_if<Warning>(&event)) warnings.push_back(w->text);
    if (const auto* r = std::get_if<Resumed>(&event)) behind = r->step;
  };
  start(cut, s);
  EXPECT_EQ(behind, 5);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("checkpoint passed over: " + state + ": tensor "), std::string::npos) << warnings[0];
  expect_same_course(c, cut);
}

TEST(Resume, WhereAllAreDamagedNothingBeginsAnew) {
  const TempFolder folder;
  const TrainConfig c = course_config(folder, "run");
  error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(3)); });
  const std::vector<std::string> before = lines_of(c);
  for (const char* file : {"state-00001.safetensors", "manifest.json"}) {
    for (const int64_t step : store_of(c).steps()) flip_bit(join_path(store_of(c).place(step), file), 700);
    const std::string message = error_of(Exit::kInput, [&] { start(c); });
    EXPECT_NE(message.find("none of its checkpoints can be read"), std::string::npos) << message;
    EXPECT_NE(message.find("--restart trains anew"), std::string::npos) << message;
    EXPECT_EQ(lines_of(c), before);
  }
  start(c, {.options = {.restart = true}});
  EXPECT_EQ(lines_of(c).size(), 11u);
}

TEST(Resume, LinesThatWentAreNamed) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "run");
  error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(3)); });
  const std::string metrics = join_path(c.run.dir, "metrics.jsonl"), whole = read_text(metrics);
  write_atomic(metrics, whole.substr(0, whole.size() / 2));
  EXPECT_NE(error_of(Exit::kInput, [&] { start(c); }).find(metrics + ": holds "), std::string::npos);
  fs::remove(metrics);
  const std::string message = error_of(Exit::kInput, [&] { start(c); });
  EXPECT_NE(message.find(metrics + ": is not there; put it back"), std::string::npos) << message;
  // The way out that it names.
  const std::string from = store_of(c).place(3);
  ASSERT_NE(message.find("--resume=" + from), std::string::npos) << message;
  c.run.dir = folder / "other";
  start(c, {.options = {.resume = from}});
  EXPECT_EQ(lines_of(c).size(), 8u);
}

// --- what the user asks for ----------------------------------------------------------------------------------------

TEST(Resume, GoesBackOnWish) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "run");
  c.train.checkpoint_every = "2", c.train.keep_last = 10;
  start(c);
  const Course straight = course_of(c);
  const std::string from = store_of(c).place(4);
  TrainConfig fork = c;
  fork.run.dir = folder / "fork";
  start(fork, {.options = {.resume = from}});
  expect_same_course(c, fork);
  EXPECT_EQ(store_of(fork).steps(), (std::vector<int64_t>{6, 8, 10}));

  int64_t behind = 0;
  Start back{.options = {.resume = from}};
  back.hooks.events = [&](const Event& event) {
    if (const auto* r = std::get_if<Resumed>(&event)) behind = r->step;
  };
  start(c, back);
  EXPECT_EQ(behind, 4);
  EXPECT_EQ(course_of(c).lines, straight.lines);
  EXPECT_TRUE(course_of(c).weights == straight.weights);

  EXPECT_NE(error_of(Exit::kUsage, [&] { start(c, {.options = {.resume = store_of(fork).place(6)}}); })
                .find("is of another run than"),
            std::string::npos);
  EXPECT_NE(error_of(Exit::kInput, [&] { start(c, {.options = {.resume = folder / "none"}}); }).find("is not there"),
            std::string::npos);
  error_of(Exit::kUsage, [&] { start(c, {.options = {.restart = true, .resume = from}}); });

  start(c, {.options = {.restart = true}});
  EXPECT_EQ(read_json(join_path(c.run.dir, "run.json")).contains("resumed"), false);
  EXPECT_TRUE(course_of(c).weights == straight.weights);
}

TEST(Resume, AnotherRunIsRefusedByName) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "run");
  error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(3)); });
  const auto refused = [&](const TrainConfig& changed, Exit code) { return error_of(code, [&] { start(changed); }); };
  const auto change = [&](auto f) {
    TrainConfig changed = c;
    f(changed);
    return changed;
  };
  const std::vector<std::string> before = lines_of(c);
  for (const auto& [key, changed] : std::vector<std::pair<std::string, TrainConfig>>{
           {"optimizer.lr", change([](TrainConfig& x) { x.optimizer.adamw.lr *= 2; })},
           {"precision.recipe", change([](TrainConfig& x) { x.precision.recipe = "mxfp8"; })},
           {"model.hidden_size", change([](TrainConfig& x) { x.model.hidden_size = 128; })},
           {"run.seed", change([](TrainConfig& x) { x.run.seed = 1; })},
           {"data.packing", change([](TrainConfig& x) { x.data.packing = "truncate"; })},
           {"batch.tokens", change([](TrainConfig& x) { x.batch.tokens *= 2; })}}) {
    const std::string message = refused(changed, Exit::kUsage);
    EXPECT_NE(message.find("of a run of another config: " + key + " is "), std::string::npos) << message;
  }
  // The same files under another path are the same data; other ones under the same path are not.
  TrainConfig moved = change([&](TrainConfig& x) { x.data.train = folder / "moved.txt"; });
  fs::copy(c.data.train, moved.data.train);
  const std::string text = read_text(c.data.train);
  write_atomic(c.data.train, "x" + text);
  const std::string message = refused(c, Exit::kInput);
  EXPECT_NE(message.find("data: " + c.data.train + " has another content"), std::string::npos) << message;
  EXPECT_EQ(lines_of(c), before);
  moved.run.name = "other", moved.log.every = 7, moved.log.quantization_every = 3, moved.train.eval_every = 5;
  moved.train.keep_last = 1, moved.train.checkpoint_every = "3", moved.train.recompute = "block";
  moved.train.save_weights = false;
  start(moved);
  EXPECT_GT(lines_of(c).size(), before.size());
}

// --- length and layout ---------------------------------------------------------------------------------------------

// Where the schedule was the same so far, the longer run is the one that was longer from the beginning.
TEST(Resume, ALongerRunGoesOn) {
  for (const char* schedule : {"constant", "wsd"}) {
    const TempFolder folder;
    TrainConfig longer = course_config(folder, "longer");
    longer.train.save_weights = true;
    longer.schedule.name = schedule, longer.schedule.warmup_steps = 2, longer.schedule.decay_fraction = 0.2;
    longer.train.steps = 44;
    start(longer);
    TrainConfig c = longer;
    c.run.dir = folder / "run";
    c.train.steps = 40;
    if (std::string(schedule) == "constant")
      start(c);  // its end lies in the last tenth of the longer one
    else
      error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(30)); });
    c.train.steps = 44;
    if (std::string(schedule) == "constant") {
      RunHooks hooks;
      EXPECT_TRUE(run_train(c, {}, hooks).has_value()) << "a finished run";
    } else {
      start(c);
    }
    EXPECT_EQ(read_json(join_path(c.run.dir, "result.json"))["loss"],
              read_json(join_path(longer.run.dir, "result.json"))["loss"])
        << schedule;
    EXPECT_TRUE(course_of(c).weights == course_of(longer).weights) << schedule;
  }
}

TEST(Resume, AnotherLengthIsRefusedWhereTheScheduleWasAnother) {
  const TempFolder folder;
  TrainConfig c = course_config(folder, "run");
  for (const char* schedule : {"cosine", "linear"}) {
    c.schedule.name = schedule;
    c.run.dir = folder / schedule;
    error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(3)); });
    TrainConfig longer = c;
    longer.train.steps = 20;
    const std::string message = error_of(Exit::kUsage, [&] { start(longer); });
    EXPECT_NE(message.find("of a run of 10 steps, 20 here (train.steps)"), std::string::npos) << message;
  }
  c.schedule.name = "wsd", c.run.dir = folder / "wsd";
  error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(9)); });
  TrainConfig longer = c;
  longer.train.steps = 20;
  EXPECT_NE(error_of(Exit::kUsage, [&] { start(longer); }).find("step 9 had"), std::string::npos);
  TrainConfig shorter = c;
  shorter.train.steps = 8;
  EXPECT_NE(error_of(Exit::kUsage, [&] { start(shorter); }).find("is behind step 9"), std::string::npos);
}

TEST(Resume, AnotherMicroBatch) {
  const TempFolder folder;
  for (const char* recipe : {"fp32", "bf16", "mxfp8"}) {
    TrainConfig c = course_config(folder, std::string("run-") + recipe);
    c.precision.recipe = recipe;
    c.schedule.name = "constant", c.optimizer.adamw.lr = 1e-3;
    c.resolve();
    error_of(Exit::kInterrupted, [&] { start(c, stopped_behind(5)); });
    TrainConfig straight = c;
    straight.run.dir = folder / (std::string("straight-") + recipe);
    start(straight);

    TrainConfig two = c;
    two.batch.micro_batch = "2";
    if (std::string(recipe) == "mxfp8") {
      const std::string message = error_of(Exit::kUsage, [&] { start(two); });
      EXPECT_NE(message.find("batch.micro_batch was 1 rows, is 2; recipe mxfp8"), std::string::npos) << message;
      two.batch.micro_batch = "auto";  // takes what the run had
      start(two);
      EXPECT_TRUE(course_of(two).weights == course_of(straight).weights);
      continue;
    }
    start(two);
    const auto final_loss = [](const TrainConfig& x) {
      return read_json(join_path(x.run.dir, "result.json"))["loss"].get<double>();
    };
    // Sums of another order: 2^-8 of a loss of a few nats in BF16, far less in FP32.
    EXPECT_NEAR(final_loss(two), final_loss(straight), std::string(recipe) == "fp32" ? 1e-4 : 2e-2);
    EXPECT_EQ(lines_of(two).size(), lines_of(straight).size());
  }
}

// --- a disk that refuses -------------------------------------------------------------------------------------------

TEST(Resume, ADiskThatRefusesEndsTheRunBehindItsLastCheckpoint) {
  const TempFolder folder;
  const TrainConfig straight = course_config(folder, "straight");
  start(straight);
  TrainConfig c = straight;
  c.run.dir = folder / "run";
  c.train.checkpoint_every = "4";
  const std::string in_the_way = fmt::format("{}.tmp-{}", store_of(c).place(8), ::getpid());
  Start s;
  c.train.disk_patience = 0.02;
  std::vector<std::string> warnings;
  s.hooks.events = [&](const Event& event) {
    if (const auto* w = std::get_if<Warning>(&event)) warnings.push_back(w->text);
    if (const auto* r = std::get_if<StepReport>(&event); r != nullptr && r->step == 7) write_atomic(in_the_way, "x");
  };
  const std::string message = error_of(Exit::kStorage, [&] { start(c, s); });
  EXPECT_NE(message.find("the checkpoint of step 8 was not saved"), std::string::npos) << message;
  EXPECT_NE(message.find("that of step 4 stands, and the same command goes on from it"), std::string::npos) << message;
  EXPECT_EQ(store_of(c).steps(), std::vector<int64_t>{4});
  EXPECT_FALSE(exists(join_path(c.run.dir, "result.json")));
  fs::remove(in_the_way);
  start(c);
  expect_same_course(straight, c);
}

}  // namespace
}  // namespace mantissa
