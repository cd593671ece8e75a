// samples.jsonl read back and shown.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "report/html_sections.h"
#include "tests/base/support.h"

namespace mantissa::report {
namespace {

std::string line(int step, const std::string& text) {
  return Json{{"step", step}, {"prompt", "It <was>"}, {"text", text}, {"tokens", 4}, {"stop", "length"}}.dump() + "\n";
}

TEST(Samples, AreReadUpToACutLine) {
  const testing::TempFolder folder;
  const std::string path = folder / "samples.jsonl";
  write_atomic(path, line(1, "a\nb") + line(2, "c") + "{\"step\": 3, \"pro");
  const std::vector<SampleLine> samples = read_samples(path);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].text, "a\nb");
  EXPECT_EQ(samples[1].step, 2);
  EXPECT_EQ(samples[1].tokens, 4);
  for (const char* bad :
       {"{\"step\": 1.5}\n", "[]\n", "{\"step\": 1\n{}\n", "{\"step\": 1, \"tokens\": 2, \"text\": 3}\n"}) {
    write_atomic(path, line(1, "a") + bad);
    try {
      read_samples(path);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kInput);
      EXPECT_NE(std::string(error.what()).find("samples.jsonl:2"), std::string::npos) << error.what();
    }
  }
}

TEST(Samples, AreShownEscapedTheLastStepFirst) {
  ReportData data;
  EXPECT_EQ(samples_section(data).body, "");
  data.runs.resize(1);
  EXPECT_EQ(samples_section(data).body, "");
  for (int step = 1; step <= 300; ++step)
    data.runs[0].samples.push_back(
        {.step = step, .tokens = 4, .prompt = "p", .text = "<script>x</script>", .stop = "length"});
  const std::string body = samples_section(data).body;
  EXPECT_EQ(body.find("<script>"), std::string::npos);
  EXPECT_NE(body.find("&lt;script&gt;"), std::string::npos);
  EXPECT_LT(body.find("At step 300"), body.find("Earlier steps"));
  EXPECT_NE(body.find("The first 99 stand in samples.jsonl alone."), std::string::npos);
}

}  // namespace
}  // namespace mantissa::report
