#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/app/verb_run.h"

namespace mantissa::testing {
namespace {

using TokenizerVerb = VerbTest;

const std::string kFixtures = MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/";

TEST_F(TokenizerVerb, TrainsEncodesAndDecodes) {
  const VerbResult trained =
      run_verb({"tokenizer", "train", "--vocab-size=300", "--pattern=llama3", "--special", "<|end|>", "<|begin|>",
                "--bos=<|begin|>", "--add-bos", "--input", folder / "text.txt", "--out", folder / "t"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find("300 tokens (2 special)"), std::string::npos) << trained.out;
  EXPECT_NE(trained.out.find("done "), std::string::npos);
  EXPECT_EQ(trained.err, "");

  write_atomic(folder / "in.txt", "the scale of a block\n");
  const VerbResult ids = run_verb({"tokenizer", "encode", folder / "t", folder / "in.txt"});
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(ids.out.rfind("1 ", 0), 0u) << ids.out;  // BOS
  const VerbResult table = run_verb({"tokenizer", "encode", folder / "t", folder / "in.txt", "--table"});
  EXPECT_NE(table.out.find("special \"<|begin|>\""), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("\" scale\""), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("\"\\n\""), std::string::npos) << table.out;

  std::vector<std::string> decode = {"tokenizer", "decode", folder / "t"};
  std::string word;
  for (const char c : run_verb({"tokenizer", "encode", folder / "t", folder / "in.txt", "--no-special"}).out)
    if (c == ' ' || c == '\n')
      decode.push_back(std::move(word)), word.clear();
    else
      word += c;
  EXPECT_EQ(run_verb(decode).out, "the scale of a block\n");
}

TEST_F(TokenizerVerb, SaysWhenTheTextHasTooFewPairs) {
  const VerbResult r =
      run_verb({"tokenizer", "train", "--vocab-size=5000", "--input", folder / "text.txt", "--out", folder / "t"});
  EXPECT_EQ(r.code, 0);
  EXPECT_NE(r.err.find("warning: the documents have pairs for "), std::string::npos) << r.err;
}

TEST_F(TokenizerVerb, WritesBytes) {
  ASSERT_EQ(run_verb({"tokenizer", "bytes", "--out", folder / "b"}).code, 0);
  EXPECT_EQ(run_verb({"tokenizer", "decode", folder / "b", "72", "105", "33"}).out, "Hi!");
}

TEST_F(TokenizerVerb, ShowsConversations) {
  write_atomic(folder / "talk.jsonl",
               R"({"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": " 4 "}]})"
               "\n");
  const VerbResult r = run_verb({"tokenizer", "chat", "--template=llama3", folder / "talk.jsonl"});
  ASSERT_EQ(r.code, 0) << r.err;
  const Json spans = parse_json(r.out, "stdout")["spans"];
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1], (Json{{"text", "4<|eot_id|>"}, {"learned", true}}));
  const VerbResult asked = run_verb(
      {"tokenizer", "chat", "--template=qwen3", "--generation-prompt", "--no-thinking", folder / "talk.jsonl"});
  EXPECT_NE(asked.out.find("<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n\"}"), std::string::npos) << asked.out;
}

TEST_F(TokenizerVerb, Refuses) {
  const std::string text = folder / "text.txt", out = folder / "t";
  const auto train = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"tokenizer", "train", "--input", text, "--out", out};
    args.insert(args.end(), more.begin(), more.end());
    return run_verb(args);
  };
  expect_refused(run_verb({"tokenizer", "trian"}), Exit::kUsage, {"trian", "train"});
  expect_refused(train({"--vocab-size=200"}), Exit::kUsage, {"200", "257"});
  expect_refused(train({"--vocab-size=300", "--pattern=t5"}), Exit::kUsage, {"t5", "gpt2"});
  expect_refused(train({"--vocab-size=300", "--eos=<|other|>"}), Exit::kUsage, {"EOS", "<|other|>"});
  expect_refused(train({"--vocab-size=300", "--add-bos"}), Exit::kUsage, {"--add-bos", "--bos"});
  expect_refused(run_verb({"tokenizer", "train", "--input", folder / "none.txt", "--out", out, "--vocab-size=300"}),
                 Exit::kInput, {"none.txt"});
  write_atomic(folder / "bad.txt", "good\n\nba\xff\n");
  expect_refused(run_verb({"tokenizer", "train", "--input", folder / "bad.txt", "--out", out, "--vocab-size=300"}),
                 Exit::kInput, {"bad.txt"});
  EXPECT_FALSE(exists(out)) << "a refused training left something behind";
  expect_refused(run_verb({"tokenizer", "encode", kFixtures + "chatml", folder / "bad.txt"}), Exit::kInput,
                 {"bad.txt", "byte 8"});
  expect_refused(run_verb({"tokenizer", "decode", kFixtures + "chatml", "12", "x"}), Exit::kUsage, {"'x'"});
  write_atomic(folder / "talk.jsonl", "{\"messages\": [{\"role\": \"tool\", \"content\": \"4\"}]}\n");
  expect_refused(run_verb({"tokenizer", "chat", "--template=qwen3", folder / "talk.jsonl"}), Exit::kInput,
                 {"talk.jsonl:1", "tool"});
  write_atomic(folder / "talk.jsonl", "\n{\"messages\": 3}\n");
  expect_refused(run_verb({"tokenizer", "chat", "--template=qwen3", folder / "talk.jsonl"}), Exit::kInput,
                 {"talk.jsonl:2", "messages"});
}

// The write itself fails, in a child: stdout of the tests stays as it is.
TEST_F(TokenizerVerb, AFullDiskBehindStdout) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
    dup2(open((folder / "err").c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    _exit(run_command_line({"tokenizer", "encode", "bytes", folder / "text.txt"}));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(Exit::kStorage));
  EXPECT_EQ(read_text(folder / "err"), "mantissa: stdout: could not be written: No space left on device\n");
}

}  // namespace
}  // namespace mantissa::testing
