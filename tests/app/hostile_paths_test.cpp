// Paths and records that break a library's own rules: one line in the project's words, exit 3, nothing that steers the
// terminal.
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

class HostilePaths : public testing::VerbTest {
 protected:
  void expect_input(const std::vector<std::string>& args, const std::vector<std::string>& parts) const {
    const VerbResult r = run_verb(args);
    expect_refused(r, Exit::kInput, parts);
    for (const char* never : {"json.exception", "filesystem error", "std::", "terminate"})
      EXPECT_EQ(r.err.find(never), std::string::npos) << r.err;
    for (const std::string& text : {r.out, r.err})
      for (const char* raw : {"\x1b", "\xe2\x80\xae", "\xff"}) EXPECT_EQ(text.find(raw), std::string::npos) << text;
  }
};

TEST_F(HostilePaths, LoopsLongNamesAndBytes) {
  std::filesystem::create_symlink("loop", folder / "loop");
  const std::string odd = folder / "odd\x1b[2J\xff\xe2\x80\xae";
  std::filesystem::create_directory(odd);
  for (const char* verb : {"report", "verify", "inspect"}) {
    expect_input({verb, folder / "loop"}, {"loop", "symbolic links"});
    expect_input({verb, folder / std::string(300, 'x')}, {"too long"});
    expect_input({verb, folder / "absent"}, {"absent"});
    expect_input({verb, odd}, {"odd\\x1b[2J\\xff\\u{202e}"});
    std::filesystem::create_symlink("result.json", folder / "result.json");
    write_atomic(folder / "run.json", "{}");
    expect_input({verb, folder.path()}, {"result.json", "symbolic links"});
    std::filesystem::remove(folder / "result.json");
    std::filesystem::remove(folder / "run.json");
    std::filesystem::create_directory(folder / "compare.json");
    expect_input({verb, folder.path()}, {"compare.json: is a folder"});
    std::filesystem::remove(folder / "compare.json");
  }
}

TEST_F(HostilePaths, ARowThatIsALoop) {
  std::filesystem::create_symlink("rows", folder / "rows");
  const Json row = {{"weights", "fp32"}, {"recipe", "bf16"}, {"scope", "none"}, {"path", "native"},
                    {"loss", 2.0},       {"delta_loss", 0},  {"dir", "rows/a"}};
  write_atomic(folder / "compare.json", Json{{"rows", {row}}}.dump());
  for (const char* verb : {"report", "verify"}) expect_input({verb, folder.path()}, {"rows/a", "symbolic links"});
}

TEST_F(HostilePaths, RecordsOfOtherTypes) {
  for (const char* record :
       {"[]", "1", "{\"precision\":{\"weights\":7}}", "{\"name\":[]}", "{\"a\":1e999}", "{\"a\":\"\xff\"}"}) {
    write_atomic(folder / "run.json", record);
    for (const char* verb : {"report", "verify", "inspect"}) expect_input({verb, folder.path()}, {"run.json"});
  }
}

// A name of a file, the text of a sample, the label of a run: shown, never obeyed.
TEST_F(HostilePaths, NamesAreShownNotObeyed) {
  ASSERT_EQ(run("train", {"--train.save_weights=false"}).code, 0);
  Json info = read_json(folder / "run/run.json");
  info["name"] = "a\x1b]0;title\x07\xe2\x80\xae";
  info["data"]["name"] = "b\nc\xc2\x9b";
  write_atomic(folder / "run/run.json", info.dump());
  const VerbResult page = run_verb({"inspect", folder / "run"});
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_NE(page.out.find("a\\x1b]0;title\\x07\\u{202e}"), std::string::npos) << page.out;
  EXPECT_NE(page.out.find("b\\nc\\u{9b}"), std::string::npos) << page.out;
  EXPECT_EQ(page.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(run_verb({"report", folder / "run"}).code, 0);
  EXPECT_EQ(read_text(folder / "run/report.html").find('\x1b'), std::string::npos);
}

// What no check of ours has met still ends in a line of ours: a name that JSON cannot hold.
TEST_F(HostilePaths, ANameThatJsonCannotHold) {
  const std::string odd = folder / "te\xffxt.txt";
  std::filesystem::rename(folder / "text.txt", odd);
  const VerbResult r = run("train", {"--data.train=" + odd});
  EXPECT_TRUE(r.code == static_cast<int>(Exit::kInput) || r.code == static_cast<int>(Exit::kUsage)) << r.code << r.err;
  EXPECT_NE(r.err.find("UTF-8"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("json"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace mantissa
