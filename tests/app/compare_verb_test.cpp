// mantissa compare, inspect, report and plan on small models.
#include <signal.h>

#include <cmath>

#include "base/safetensors.h"
#include "base/signal.h"
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

using Comparison = testing::VerbTest;

Json rows_of(const std::string& folder) { return read_json(folder + "/compare.json")["rows"]; }

std::vector<double> losses_of(const std::string& folder) {
  std::vector<double> losses;
  for (const Json& row : rows_of(folder)) losses.push_back(row["loss"].get<double>());
  return losses;
}

TEST_F(Comparison, TwentyRows) {
  const VerbResult r = run("compare", {"--train.steps=3", "--log.console=true"});
  ASSERT_EQ(r.code, 0) << r.err;
  const Json json = read_json(folder / "run/compare.json");
  const Json& rows = json["rows"];
  // Both baselines, then scope by scope, recipe by recipe, fp32 before bf16 weights.
  std::vector<std::vector<std::string>> expected = {{"fp32", "bf16", "none"}, {"bf16", "bf16", "none"}};
  for (const char* scope : {"linear", "linear+logits", "linear+logits+norm"})
    for (const char* recipe : {"fp8-delayed", "mxfp8", "nvfp4"})
      for (const char* weights : {"fp32", "bf16"}) expected.push_back({weights, recipe, scope});
  ASSERT_EQ(rows.size(), 20u);
  ASSERT_EQ(expected.size(), 20u);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    SCOPED_TRACE(row["name"].get<std::string>());
    EXPECT_EQ(row["weights"], expected[i][0]);
    EXPECT_EQ(row["recipe"], expected[i][1]);
    EXPECT_EQ(row["scope"], expected[i][2]);
    EXPECT_EQ(row["path"], expected[i][2] == "none" ? "native" : "emulated");
    for (const char* key : {"loss", "eval_loss", "delta_loss", "tokens_per_s", "mfu", "nanogpt_legacy_v1",
                            "combined_formula_v2", "component_summation_v2025", "memory_pct", "seconds"})
      ASSERT_TRUE(row[key].is_number_float()) << key << ": " << row[key];
    for (const char* key : {"loss", "eval_loss", "tokens_per_s", "mfu", "nanogpt_legacy_v1", "combined_formula_v2",
                            "component_summation_v2025", "memory_pct", "seconds"})
      EXPECT_GT(row[key].get<double>(), 0) << key;
    EXPECT_TRUE(row["loss_spread"].is_null()) << "one seed has no spread";
    EXPECT_EQ(row["delta_loss"].get<double>(),
              row["loss"].get<double>() - rows[row["weights"] == "fp32" ? 0 : 1]["loss"].get<double>());
    EXPECT_LT(row["memory_pct"].get<double>(), 100);
    EXPECT_LT(row["loss"].get<double>(), 6.5) << "about log 256 at the start";
    const std::string dir = folder / "run/" + row["dir"].get<std::string>();
    for (const char* file : {"config.yaml", "run.json", "metrics.jsonl", "result.json"})
      EXPECT_TRUE(exists(dir + "/" + file)) << file;
    // With and without the fused norm: the same bits, but for the recipe that casts the unrounded value.
    if (row["scope"] == "linear+logits+norm" && row["recipe"] != "fp8-delayed") {
      EXPECT_EQ(row["loss"], rows[i - 6]["loss"]);
    }
    EXPECT_EQ(row["scope"] == "none", row["delta_loss"].get<double>() == 0) << "every precision moves the loss";
  }
  const std::string html = read_text(folder / "run/report.html");
  EXPECT_NE(html.find("nvfp4"), std::string::npos);
  EXPECT_NE(r.out.find("linear+logits+norm"), std::string::npos) << "no table was printed";
  // Rows stand below their head as they end; the last one leaves nothing.
  const size_t head = r.out.find("row  weights"), first = r.out.find(" 1/20  fp32     bf16"),
               last = r.out.find("20/20");
  EXPECT_TRUE(head < first && first < last && last != std::string::npos) << r.out;
  EXPECT_NE(r.out.substr(first, r.out.find('\n', first) - first).find("about "), std::string::npos) << r.out;
  EXPECT_EQ(r.out.substr(last, r.out.find('\n', last) - last).find("about "), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("time   "), std::string::npos) << "three steps are not timed in advance";

  // Finished: it says so, trains nothing, keeps the figures.
  const std::string before = read_text(folder / "run/compare.json");
  const VerbResult again = run("compare", {"--train.steps=3", "--log.console=true"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("--restart"), std::string::npos) << again.out;
  EXPECT_NE(again.out.find("linear+logits+norm"), std::string::npos) << "the table is printed again";
  EXPECT_EQ(read_text(folder / "run/compare.json"), before);

  // Another config is refused and the rows stay.
  expect_refused(run("compare", {"--train.steps=3", "--optimizer.lr=1e-3"}), Exit::kUsage,
                 {"another config", "--restart"});
  EXPECT_EQ(read_text(folder / "run/compare.json"), before);
  // A restart that cannot begin leaves them too.
  expect_refused(run("compare", {"--restart", "--schedule.warmup_steps=9"}), Exit::kUsage, {"warmup_steps"});
  EXPECT_EQ(read_text(folder / "run/compare.json"), before);
  // A comparison is not overwritten by a run.
  expect_refused(run("train", {"--train.steps=3"}), Exit::kUsage, {"comparison"});

  // A second comparison elsewhere, in an empty folder that is there already, has the same bits.
  std::filesystem::create_directory(folder / "other");
  ASSERT_EQ(run("compare", {"--train.steps=3", "--run.dir=" + (folder / "other")}).code, 0);
  EXPECT_EQ(losses_of(folder / "other"), losses_of(folder / "run"));

  // inspect and report read the folder.
  const VerbResult inspected = run_verb({"inspect", folder / "run"});
  EXPECT_EQ(inspected.code, 0);
  EXPECT_NE(inspected.out.find("fp8-delayed"), std::string::npos);
  const VerbResult reported = run_verb({"report", folder / "run", "--output", folder / "page.html"});
  EXPECT_EQ(reported.code, 0) << reported.err;
  EXPECT_NE(read_text(folder / "page.html").find("fp8-delayed"), std::string::npos);
}

TEST_F(Comparison, MoreRecipesMoreRows) {
  const VerbResult r = run("compare", {"--train.steps=1", "--schedule.warmup_steps=0", "--train.eval_rows=1",
                                       "--precision.recipes=[fp8-delayed,mxfp8,nvfp4,fp8-tensorwise,fp8-blockwise]"});
  ASSERT_EQ(r.code, 0) << r.err;
  const Json rows = rows_of(folder / "run");
  ASSERT_EQ(rows.size(), 32u);
  EXPECT_EQ(rows[8]["recipe"], "fp8-tensorwise");
  EXPECT_EQ(rows[31]["name"], "bf16-fp8-blockwise-linear+logits+norm");
  for (size_t i = 24; i < 32; ++i) EXPECT_EQ(rows[i]["loss"], rows[i - 10]["loss"]) << rows[i]["name"];
}

// A row is not what its name says where rules took its layers.
TEST_F(Comparison, RulesThatUndoARecipeStandInItsRow) {
  const std::string path = write_config(config() +
                                        "precision: {recipes: [mxfp8], rules: [{match: 'layers.*', recipe: "
                                        "nvfp4}]}\n");
  const std::vector<std::string> few = {"--train.steps=2", "--compare.weights=[fp32]", "--log.console=true"};
  const VerbResult r = run_verb({"compare", path, few[0], few[1], few[2]});
  ASSERT_EQ(r.code, 0) << r.err;
  const Json rows = rows_of(folder / "run");
  ASSERT_EQ(rows.size(), 4u);
  const std::string taken = "precision.rules put 4 of 5 layers under nvfp4", none = "no layer runs mxfp8: " + taken;
  EXPECT_EQ(rows[0]["note"], taken) << "the baseline";
  EXPECT_EQ(rows[1]["note"], none) << "scope linear";
  EXPECT_EQ(rows[2]["note"], "") << "the head is left to it";
  EXPECT_EQ(read_json(folder / "run/rows/02-fp32-mxfp8-linear/run.json")["precision"]["note"], none);
  for (const std::string& part : std::vector<std::string>{"bf16 [1]", "mxfp8 [2]", "[1] " + taken + ".", "[2] " + none})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << " in: " << r.out;
}

TEST_F(Comparison, TheTableIsTheResultAndNotProgress) {
  const std::vector<std::string> few = {"--train.steps=2", "--compare.weights=[fp32]", "--precision.recipes=[]"};
  const VerbResult first = run("compare", few), again = run("compare", few);
  for (const VerbResult& r : {first, again}) {
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("Δ loss"), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("report "), std::string::npos) << r.out;
  }
}

// What goes to the console alone makes no other run.
TEST_F(Comparison, LogEveryThinsLinesAndIsNoIdentity) {
  const VerbResult r = run("train", {"--log.console=true", "--log.every=3"});
  ASSERT_EQ(r.code, 0) << r.err;
  std::vector<bool> shown;
  for (int step = 1; step <= 6; ++step)
    shown.push_back(r.out.find(fmt::format("step {:>5}/6", step)) != std::string::npos);
  EXPECT_EQ(shown, (std::vector<bool>{true, false, true, false, false, true})) << r.out;
  const std::string metrics = read_text(folder / "run/metrics.jsonl");
  for (int step = 1; step <= 6; ++step)
    EXPECT_NE(metrics.find(fmt::format("\"step\":{},", step)), std::string::npos) << step;
  const VerbResult again = run("train", {"--log.every=2", "--log.console=true"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("holds a finished run"), std::string::npos);
  expect_refused(run("train", {"--log.quantization_every=2"}), Exit::kUsage,
                 {"another config: log.quantization_every is 0 there, 2 here"});
  const std::vector<std::string> few = {"--train.steps=2", "--compare.weights=[fp32]", "--precision.recipes=[]",
                                        "--run.dir=" + (folder / "c")};
  ASSERT_EQ(run("compare", few).code, 0);
  std::vector<std::string> more = few;
  more.push_back("--log.every=5");
  EXPECT_EQ(run("compare", more).code, 0);
  more.push_back("--optimizer.lr=1e-3");
  expect_refused(run("compare", more), Exit::kUsage, {"another config: optimizer.lr is 0.01 there, 0.001 here"});
}

// A folder of a version with other keys goes on, or says which key is another.
TEST_F(Comparison, ConfigsOfOtherVersions) {
  ASSERT_EQ(run("train").code, 0);
  const std::string path = folder / "run/config.yaml";
  std::string text = read_text(path);
  const std::string every = "  every: 1\n";
  ASSERT_NE(text.find(every), std::string::npos);
  text.erase(text.find(every), every.size());
  write_atomic(path, text);
  EXPECT_EQ(run("train").code, 0) << "a key that is not there has its default";
  write_atomic(path, text + "later:\n  key: 1\n");
  expect_refused(run("train"), Exit::kUsage, {"later.key is 1 there, nothing here"});
}

TEST_F(Comparison, StepsThatOverrideEpochsAreSaid) {
  const VerbResult r = run("train", {"--train.epochs=3"});
  EXPECT_EQ(r.code, 0);
  EXPECT_NE(r.err.find("c.yaml:17: train.steps counts, train.epochs (3) does not"), std::string::npos) << r.err;
  EXPECT_EQ(run("train", {"--restart"}).err, "");
  // A dump, which names both, reads back.
  EXPECT_EQ(run_verb({"train", folder / "run/config.yaml"}).code, 0);
}

TEST_F(Comparison, DropoutOfAModelIsSaid) {
  const std::string golden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/gpt2";
  std::filesystem::copy(golden, folder / "gpt2");
  const auto trained = [&](const std::string& more) {
    Json json = read_json(golden + "/config.json");
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = 0.0;
    json.update(Json::parse(more));
    write_atomic(folder / "gpt2/config.json", json.dump());
    const VerbResult r = run_verb(
        {"train",
         write_config("run: {dir: " + (folder / "run") + "}\ndevice: {name: cpu}\nmodel: {init: " + (folder / "gpt2") +
                      "}\ndata: {train: " + (folder / "text.txt") +
                      ", sequence_length: 64}\nbatch: {tokens: 128}\ntrain: {steps: 1}\nlog: {console: false}\n"),
         "--restart"});
    EXPECT_EQ(r.code, 0) << r.err;
    return r.err;
  };
  EXPECT_EQ(trained("{}"), "");
  EXPECT_NE(
      trained("{\"attn_pdrop\": 0.25, \"embd_pdrop\": null}")
          .find("config.json: asks for dropout (embd_pdrop 0.1 (its default), attn_pdrop 0.25); training here has "
                "none"),
      std::string::npos);
}

TEST_F(Comparison, PrintedConfigsReadBack) {
  const std::string golden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/llama";
  const std::string yaml = "model: {init: " + golden + "}\ndata: {train: " + (folder / "text.txt") + "}\n";
  const VerbResult printed = run_verb({"train", write_config(yaml), "--print-config"});
  ASSERT_EQ(printed.code, 0) << printed.err;
  const VerbResult again = run_verb({"train", write_config(printed.out), "--print-config"});
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(Comparison, SeedsGiveASpread) {
  const std::vector<std::string> few = {"--train.steps=2", "--compare.seeds=2", "--compare.weights=[fp32]",
                                        "--precision.recipes=[mxfp8]"};
  ASSERT_EQ(run("compare", few).code, 0);
  const Json json = read_json(folder / "run/compare.json");
  EXPECT_EQ(json["seeds"], (std::vector<int64_t>{5, 6}));
  ASSERT_EQ(json["rows"].size(), 4u);
  for (const Json& row : json["rows"]) {
    const std::vector<double> losses = row["losses"];
    ASSERT_EQ(losses.size(), 2u);
    EXPECT_NE(losses[0], losses[1]);
    EXPECT_DOUBLE_EQ(row["loss"].get<double>(), (losses[0] + losses[1]) / 2);
    EXPECT_NEAR(row["loss_spread"].get<double>(), std::fabs(losses[0] - losses[1]) / std::sqrt(2.0), 1e-12);
  }
}

TEST_F(Comparison, ASignalStopsAndTheSameCommandGoesOn) {
  const std::vector<std::string> few = {"--train.steps=3", "--compare.weights=[fp32]", "--precision.recipes=[mxfp8]"};
  catch_stop_signals();
  ASSERT_EQ(raise(SIGTERM), 0);
  const VerbResult stopped = run("compare", few);
  clear_stop_signal();
  EXPECT_EQ(stopped.code, static_cast<int>(Exit::kInterrupted)) << stopped.err;
  EXPECT_NE(stopped.err.find("stopped"), std::string::npos) << stopped.err;
  EXPECT_EQ(run("compare", few).code, 0);
  EXPECT_EQ(rows_of(folder / "run").size(), 4u);
  ASSERT_EQ(raise(SIGINT), 0);
  EXPECT_EQ(run("train", {"--run.dir=" + (folder / "single")}).code, static_cast<int>(Exit::kInterrupted));
  clear_stop_signal();
  EXPECT_FALSE(exists(folder / "single/result.json"));
}

TEST_F(Comparison, ChangedDataIsRefused) {
  const std::vector<std::string> few = {"--train.steps=1", "--schedule.warmup_steps=0", "--compare.weights=[fp32]",
                                        "--precision.recipes=[mxfp8]"};
  ASSERT_EQ(run("compare", few).code, 0);
  Json json = read_json(folder / "run/compare.json");
  json["rows"].erase(3);  // as if it had been stopped before its last row
  write_atomic(folder / "run/compare.json", json.dump());
  write_atomic(folder / "text.txt", testing::sample_text(50'000));
  expect_refused(run("compare", few), Exit::kUsage, {"text.txt", "another content", "--restart"});
  // On the data as it was, the head tells of the row that is trained.
  write_atomic(folder / "text.txt", testing::sample_text(40'000));
  std::vector<std::string> loud = few;
  loud.push_back("--log.console=true");
  const VerbResult rest = run("compare", loud);
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(rest.out.find(" 3/4  fp32-mxfp8-linear+logits is there already"), std::string::npos) << rest.out;
  EXPECT_NE(rest.out.find("mxfp8 (emulated) · scope linear+logits+norm"), std::string::npos) << rest.out;
  std::vector<std::string> anew = few;
  anew.push_back("--restart");
  EXPECT_EQ(run("compare", anew).code, 0);
  EXPECT_EQ(rows_of(folder / "run").size(), 4u);
}

TEST_F(Comparison, TrainInspectReport) {
  const VerbResult trained =
      run("train", {"--train.eval_every=2", "--precision.recipe=mxfp8", "--log.quantization_every=3"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Json result = read_json(folder / "run/result.json");
  EXPECT_EQ(result["path"], "emulated");
  EXPECT_EQ(result["steps"], 6);
  EXPECT_EQ(result["tokens"], 6 * 128);
  const VerbResult inspected = run_verb({"inspect", folder / "run"});
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  for (const char* part : {"\n  state                 finished\n", "\n  steps                 6, loss ",
                           "\n  evaluations           3, loss ",
                           "\n  quantization          36 errors of tensors, "})  // 3 steps, 4 layers, 3 tensors
    EXPECT_NE(inspected.out.find(part), std::string::npos) << part << "\n" << inspected.out;
  const VerbResult reported = run_verb({"report", folder / "run"});
  EXPECT_EQ(reported.code, 0) << reported.err;
  EXPECT_TRUE(exists(folder / "run/report.html"));
  expect_refused(run_verb({"report", folder / "none"}), Exit::kInput, {"none"});
  // The same command again writes the page that is not there.
  std::filesystem::remove(folder / "run/report.html");
  ASSERT_EQ(run("train", {"--train.eval_every=2", "--precision.recipe=mxfp8", "--log.quantization_every=3"}).code, 0);
  EXPECT_TRUE(exists(folder / "run/report.html"));
  // What the run wrote as its config trains the same run.
  const VerbResult again = run_verb({"train", folder / "run/config.yaml", "--run.dir=" + (folder / "again")});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_json(folder / "again/result.json")["loss"], result["loss"]);
  EXPECT_EQ(read_json(folder / "again/result.json")["eval_loss"], result["eval_loss"]);
}

TEST_F(Comparison, InspectModelsAndFiles) {
  for (const char* model : {"gpt2", "llama", "qwen2", "qwen3"}) {
    const std::string path = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/" + model;
    const VerbResult whole = run_verb({"inspect", path});
    EXPECT_EQ(whole.code, 0) << whole.err;
    EXPECT_NE(whole.out.find(model), std::string::npos);
    EXPECT_NE(whole.out.find("every tensor that the config names is there"), std::string::npos) << whole.out;
    const VerbResult file = run_verb({"inspect", path + "/golden.safetensors"});
    EXPECT_EQ(file.code, 0) << file.err;
    EXPECT_NE(file.out.find("adamw.losses"), std::string::npos);
    EXPECT_NE(file.out.find("structure checked"), std::string::npos);
  }
  expect_refused(run_verb({"inspect", folder / "none"}), Exit::kInput, {"none"});
  write_atomic(folder / "torn", "not a tensor file");
  expect_refused(run_verb({"inspect", folder / "torn"}), Exit::kInput, {"torn"});
  std::filesystem::create_directory(folder / "empty");
  expect_refused(run_verb({"inspect", folder / "empty"}), Exit::kInput, {"config.json", "run.json", "compare.json"});
}

TEST_F(Comparison, PlanCountsFlops) {
  const VerbResult r = run("plan", {"--data.train=" + (folder / "elsewhere"), "--data.tokens=1280000",
                                    "--train.steps=0", "--train.epochs=2", "--tokens-per-s=1000"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* part :
       {"mfu", "nanogpt_legacy_v1", "combined_formula_v2", "component_summation_v2025", "1,280,000 tokens a pass",
        "20,000 of 128 tokens = 2,560,000 tokens", "data.tokens", "at 1,000 tok/s"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << " in:\n" << r.out;
  EXPECT_FALSE(exists(folder / "run")) << "plan wrote a run folder";
  // From the data itself.
  const VerbResult real = run("plan");
  EXPECT_EQ(real.code, 0) << real.err;
  EXPECT_NE(real.out.find("text.txt"), std::string::npos);
  expect_refused(run("plan", {"--data.train=" + (folder / "elsewhere"), "--train.steps=0"}), Exit::kUsage,
                 {"elsewhere", "data.tokens"});
}

}  // namespace
}  // namespace mantissa
