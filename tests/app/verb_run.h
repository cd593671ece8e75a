// Runs verbs in process: exit code, stdout, stderr; a folder with a text and a small config.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/verbs.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/base/support.h"

namespace mantissa::testing {

struct VerbResult {
  int code = -1;
  std::string out, err;
};

inline VerbResult run_verb(const std::vector<std::string>& args) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  VerbResult result;
  result.code = run_command_line(args);
  result.out = ::testing::internal::GetCapturedStdout();
  result.err = ::testing::internal::GetCapturedStderr();
  return result;
}

// Paragraphs of words drawn by a small generator: enough for `bytes` bytes and some validation documents.
inline std::string sample_text(size_t bytes) {
  static const char* kWords[] = {"the", "scale", "of",    "a",  "block",   "and",
                                 "its", "codes", "round", "to", "nearest", "even"};
  std::string text;
  uint32_t state = 12345;
  while (text.size() < bytes) {
    for (int i = 0; i < 24; ++i) {
      state = state * 1664525u + 1013904223u;
      text += std::string(i ? " " : "") + kWords[(state >> 16) % 12];
    }
    text += ".\n\n";
  }
  return text;
}

class VerbTest : public ::testing::Test {
 protected:
  VerbTest() { write_atomic(folder / "text.txt", sample_text(40'000)); }

  // A Qwen3 of one layer that a recipe of any kind takes; six steps of two rows.
  std::string config() const {
    return "run: {name: t, dir: " + (folder / "run") +
           ", seed: 5}\n"
           "device: {name: cpu}\n"
           "model:\n"
           "  arch: qwen3\n  vocab_size: 256\n  hidden_size: 128\n  intermediate_size: 128\n  num_hidden_layers: 1\n"
           "  num_attention_heads: 2\n  num_key_value_heads: 1\n  head_dim: 64\n  tie_word_embeddings: true\n"
           "data: {train: " +
           (folder / "text.txt") +
           ", sequence_length: 64, validation_fraction: 0.05}\n"
           "batch: {tokens: 128}\n"
           "optimizer: {lr: 1e-2}\n"
           "schedule: {name: cosine, warmup_steps: 2}\n"
           "train: {steps: 6, eval_rows: 4}\n"
           "log: {console: false}\n";
  }
  std::string write_config(const std::string& text) const {
    write_atomic(folder / "c.yaml", text);
    return folder / "c.yaml";
  }
  // The verb on config() with overrides.
  VerbResult run(const std::string& verb, const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> args = {verb, write_config(config())};
    args.insert(args.end(), overrides.begin(), overrides.end());
    return run_verb(args);
  }
  // One line on stderr, the exit code, and every part of the message.
  static void expect_refused(const VerbResult& r, Exit code, const std::vector<std::string>& parts) {
    EXPECT_EQ(r.code, static_cast<int>(code)) << r.err;
    EXPECT_TRUE(r.err.starts_with("mantissa: ")) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    for (const std::string& part : parts) EXPECT_NE(r.err.find(part), std::string::npos) << part << " in: " << r.err;
  }

  TempFolder folder;
};

}  // namespace mantissa::testing
