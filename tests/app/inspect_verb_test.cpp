// mantissa inspect RUN: a page of text; --json the records.
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

class InspectVerb : public testing::VerbTest {};

TEST_F(InspectVerb, ARunIsAPageOfText) {
  ASSERT_EQ(run("train", {"--precision.recipe=mxfp8", "--log.quantization_every=3", "--train.save_weights=false"}).code,
            0);
  const VerbResult r = run_verb({"inspect", folder / "run"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.find('{'), std::string::npos) << r.out;  // no JSON
  const Json result = read_json(folder / "run/result.json");
  for (const std::string& part :
       {std::string("Run\n  folder                " + (folder / "run") +
                    "\n  name                  t\n  state                 finished\n"),
        std::string("\nMachine\n"), std::string("\nModel\n  architecture          qwen3 · "),
        std::string("1 layers · 128 hidden"),
        std::string("\nPrecision\n  weights               fp32\n  recipe                mxfp8 · emulated\n"),
        std::string("\nData\n  text                  "), std::string("text.txt"), std::string("\nMemory, as planned\n"),
        std::string("  steps                 6, loss "),
        fmt::format("\nResult\n  loss                  {:.4f}, mean", result["loss"].get<double>()),
        std::string("  quantization          "),
        std::string("layers                layers.0.attention.qkv to layers.0.mlp.down · mxfp8 · emulated")})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << " in: " << r.out;
  // Each line is a title, a fact in its column, or the rest of one.
  size_t begin = 0;
  while (begin < r.out.size()) {
    const size_t end = r.out.find('\n', begin);
    const std::string line = r.out.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("  ")) {
      EXPECT_NE(line[24], ' ') << line;
    }
    EXPECT_LT(line.size(), 140u) << line;
  }
  std::filesystem::remove(folder / "run/result.json");
  EXPECT_NE(run_verb({"inspect", folder / "run"}).out.find("not finished: step 6 of 6"), std::string::npos);
}

TEST_F(InspectVerb, JsonHoldsTheRecords) {
  ASSERT_EQ(run("train", {"--train.save_weights=false"}).code, 0);
  const VerbResult r = run_verb({"inspect", "--json", folder / "run"});
  ASSERT_EQ(r.code, 0) << r.err;
  const Json json = parse_json(r.out, "stdout");
  EXPECT_EQ(json["run"], read_json(folder / "run/run.json"));
  EXPECT_EQ(json["result"], read_json(folder / "run/result.json"));
  expect_refused(run_verb({"inspect", "--json", folder / "text.txt"}), Exit::kUsage, {"--json", "no run"});
}

}  // namespace
}  // namespace mantissa
