// RUN/model: what goes with the weights, and what is refused before a run begins.
#include "train/model_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer_writer.h"
#include "model/arch/arch.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

class Output : public ::testing::Test {
 protected:
  Output() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "A line of text, number " + std::to_string(i) + ".\n\n";
    write_atomic(folder / "text.txt", text);
    config.data.train = folder / "text.txt";
    config.data.sequence_length = 64;
    config.model.hidden_size = 64, config.model.intermediate_size = 64, config.model.num_hidden_layers = 1;
    config.model.resolve();
  }
  Dataset load() const { return Dataset::load(config.data, 1); }
  Json saved(const char* file = "config.json") const { return read_json(folder / "run/model/" + file); }
  void save() {
    const Dataset data = load();
    const ModelOutput output(config, data, folder / "run");
    RunFolder run(folder / "run", RunFolder::Kind::kRun);
    run.begin("");
    ParamStore params(find_arch(config.model.arch).params(config.model),
                      {.weights = config.precision.weight_mode(), .training = false});
    Arena arena;
    arena.build([&](Arena& a) { params.allocate(a); });
    line = output.write(params, run);
  }

  TempFolder folder;
  TrainConfig config;
  std::string line;
};

TEST_F(Output, DtypeOfTheUpdate) {
  for (const auto& [weights, dtype] : {std::pair("fp32", "float32"), {"bf16", "bfloat16"}, {"bf16-sr", "bfloat16"}}) {
    config.precision.weights = weights;
    save();
    EXPECT_EQ(saved()["dtype"], dtype) << weights;
    EXPECT_NE(line.find(std::string(" · ") + (saved()["dtype"] == "float32" ? "F32" : "BF16") + " · "),
              std::string::npos)
        << line;
  }
}

TEST_F(Output, BytesBringATokenizer) {
  save();
  EXPECT_EQ(saved()["eos_token_id"], 0);
  EXPECT_EQ(saved("tokenizer_config.json")["model_max_length"], config.model.max_position_embeddings);
  const Tokenizer tokenizer = Tokenizer::open(folder / "run/model");
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  std::vector<int32_t> ids;
  Tokenizer::Encoder(tokenizer).encode("a\n\xC3\xA9", SpecialTokens::kAdd, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', '\n', 0xC3, 0xA9}));
}

TEST_F(Output, TokenizerOfTheConfig) {
  // Three special tokens and 256 bytes.
  tokenizer::WrittenTokenizer file = tokenizer::bytes_tokenizer_file();
  const std::vector<std::string> specials = {"<|end|>", "<|im_start|>", "<|im_end|>"};
  file.model.tokens.insert(file.model.tokens.begin(), specials.begin(), specials.end());
  file.model.special = 3;
  file.eos = "<|end|>";
  tokenizer::write_tokenizer(folder / "tok", file);
  config.data.tokenizer = folder / "tok";
  config.model.vocab_size = 512;
  save();
  EXPECT_EQ(read_text(folder / "run/model/tokenizer.json"), read_text(folder / "tok/tokenizer.json"));
  const Tokenizer tokenizer = Tokenizer::open(folder / "tok");
  EXPECT_EQ(saved()["eos_token_id"], tokenizer.find("<|end|>"));
  // A file of its own name, and an EOS that the config names.
  std::filesystem::rename(folder / "tok/tokenizer.json", folder / "tok/mine.json");
  config.data.tokenizer = folder / "tok/mine.json";
  config.data.eos_token = "<|im_end|>";
  save();
  EXPECT_EQ(read_text(folder / "run/model/tokenizer.json"), read_text(folder / "tok/mine.json"));
  EXPECT_EQ(saved()["eos_token_id"], tokenizer.find("<|im_end|>"));
  EXPECT_EQ(saved("generation_config.json")["eos_token_id"], tokenizer.find("<|im_end|>"));
}

TEST_F(Output, RoomIsCheckedBeforeTheRun) {
  config.model.hidden_size = 1 << 17, config.model.intermediate_size = 1 << 19, config.model.num_hidden_layers = 4096;
  const Dataset data = load();
  const std::string message = error_of(Exit::kStorage, [&] { ModelOutput(config, data, folder / "run"); });
  for (const char* part :
       {"run/model: the weights of the finished run take ", "PiB", " are free", "train.save_weights: false"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  config.train.save_weights = false;
  ModelOutput(config, data, folder / "run");
}

// Nor does the model of a run before stand beside the result of this one.
TEST_F(Output, WithoutWeightsNothingIsWritten) {
  save();
  config.train.save_weights = false;
  save();
  EXPECT_EQ(line, "");
  EXPECT_FALSE(exists(folder / "run/model"));
}

}  // namespace
}  // namespace mantissa
