// A run that goes on from its progress and its engine's state is the run that was never interrupted.
#include "train/progress.h"

#include <nlohmann/json.hpp>

#include "tests/train/small_run.h"
#include "tests/train/snapshot.h"
#include "train/trainer.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::restore;
using testing::small_run;
using testing::Snapshot;
using testing::snapshot_of;
using testing::TempFolder;

TEST(Progress, EveryFieldComesBackInItsBits) {
  Json json = to_json(Progress{});
  ASSERT_GE(json.size(), 13u);
  EXPECT_TRUE(json["eval_loss"].is_null());
  double value = 1.0 / 3;
  for (auto& [key, field] : json.items())
    field = field.is_number_integer() ? Json(int64_t{1} << 53) : Json(value /= 7.0);
  EXPECT_EQ(to_json(read_progress(parse_json(json.dump(), "progress"), "progress")), json);
}

TEST(Progress, MissingAndForeignFieldsAreRefused) {
  const Json good = to_json(Progress{});
  for (const auto& [key, field] : good.items()) {
    Json json = good;
    json[key] = "three";
    EXPECT_NE(error_of(Exit::kInput, [&] { read_progress(json, "p.json"); }).find("p.json: " + key), std::string::npos);
    json.erase(key);
    EXPECT_NE(error_of(Exit::kInput, [&] { read_progress(json, "p.json"); }).find(key), std::string::npos);
  }
  Json json = good;
  json["step"] = -1;
  error_of(Exit::kInput, [&] { read_progress(json, "p.json"); });
}

// What a run leaves: metrics without times, the figures that are no speed.
struct Course {
  std::vector<std::string> lines;
  double loss = 0, eval_loss = 0;
};

Course course_of(const TrainConfig& c, const RunResult& result) {
  Course course{{}, result.loss, result.eval_loss};
  const std::string text = read_text(join_path(c.run.dir, "metrics.jsonl"));
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    Json line = parse_json(text.substr(at, end - at), "metrics.jsonl");
    for (const char* key : {"seconds", "tokens_per_s", "mfu", "data_wait_s"}) line.erase(key);
    course.lines.push_back(line.dump());
  }
  return course;
}

class GoesOn : public ::testing::TestWithParam<const char*> {};

TEST_P(GoesOn, InTheSameBitsBehindEveryStep) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "straight");
  c.precision.recipe = GetParam(), c.precision.weights = "bf16-sr", c.precision.scope = "linear+logits";
  c.batch.micro_batch = "1";
  c.train.steps = 20;  // the tail is two steps
  c.train.eval_every = 3, c.train.eval_rows = 2, c.train.save_weights = false;
  c.log.quantization_every = 4;
  c.resolve();
  const Dataset data = Dataset::load(c.data, 1);

  std::vector<std::pair<std::string, Snapshot>> saved;
  TrainHooks hooks;
  hooks.after_step = [&](const Progress& p, Engine& engine) {
    saved.emplace_back(to_json(p).dump(), snapshot_of(engine));
  };
  const Course straight = course_of(c, Trainer(c, data, {1, 1}).run(c.run.dir, hooks));
  ASSERT_EQ(saved.size(), 20u);

  for (const int64_t behind : {1, 3, 12, 19, 20}) {
    const auto& [text, snapshot] = saved[static_cast<size_t>(behind - 1)];
    const Progress progress = read_progress(parse_json(text, "progress"), "progress");
    EXPECT_EQ(progress.step, behind);
    c.run.dir = folder / ("behind" + std::to_string(behind));
    Trainer trainer(c, data, {1, 1});
    trainer.go_on([&](Engine& engine) {
      restore(engine, snapshot);
      return Behind{.progress = progress};
    });
    const Course course = course_of(c, trainer.run(c.run.dir, {}));
    ASSERT_LE(course.lines.size(), straight.lines.size());
    EXPECT_EQ(course.lines,
              std::vector<std::string>(straight.lines.end() - static_cast<std::ptrdiff_t>(course.lines.size()),
                                       straight.lines.end()))
        << behind;
    EXPECT_EQ(course.lines.empty(), behind == 20);
    EXPECT_EQ(course.loss, straight.loss) << behind;
    EXPECT_EQ(course.eval_loss, straight.eval_loss) << behind;
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, GoesOn, ::testing::Values("fp8-delayed", "nvfp4"),
                         [](const auto& test) { return std::string(test.param).substr(0, 3); });

}  // namespace
}  // namespace mantissa
