// Written model folders: read back bit for bit, whole or not at all, with the keys of old and new transformers.
#include "model/hf/export.h"

#include <csignal>
#include <set>

#include "model/arch/arch.h"
#include "model/hf/tensors.h"
#include "tests/base/child_cost.h"
#include "tests/model/model_folder.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::golden;
using testing::Loaded;
using testing::TempFolder;

Json config_of(const std::string& folder) { return read_json(folder + "/config.json"); }

class HfWrite : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, HfWrite, ::testing::ValuesIn(arch_names()),
                         [](const auto& param) { return param.param; });

TEST_P(HfWrite, ReadsBack) {
  const TempFolder folder;
  const Loaded source(golden(GetParam())), rounded(golden(GetParam()), WeightMode::kF32, DType::kBF16);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const uint64_t shard_bytes : {uint64_t{1} << 40, uint64_t{70'000}, uint64_t{1}}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(shard_bytes));
      const std::string out = folder / "out";
      write_hf_folder(out, source.model, source.params, {.dtype = dtype, .shard_bytes = shard_bytes});
      const Loaded again(out);
      EXPECT_EQ(again.model, source.model);
      EXPECT_TRUE(again.values() == (dtype == DType::kF32 ? source : rounded).values());
      const auto tensors = hf::Tensors::open(out);
      EXPECT_EQ(tensors.sharded(), shard_bytes < 1'000'000);
      uint64_t bytes = 0;
      std::set<size_t> sizes;
      for (const safetensors::Reader& file : tensors.files()) {
        uint64_t in_file = 0;
        for (const auto& [name, view] : file.tensors()) in_file += view.bytes.size();
        EXPECT_TRUE(in_file <= shard_bytes || file.tensors().size() == 1) << file.name();
        EXPECT_EQ(file.metadata().at("format"), "pt");
        bytes += in_file;
      }
      if (tensors.sharded()) {
        EXPECT_EQ(tensors.declared_bytes(), bytes);
        const size_t n = tensors.files().size();
        EXPECT_TRUE(exists(out + fmt::format("/model-{:05}-of-{:05}.safetensors", n, n)));
      }
      if (shard_bytes == 1) {
        EXPECT_EQ(tensors.files().size(), tensors.all().size());
      }
      std::vector<ParamSpec> specs = find_arch(source.model.arch).params(source.model);
      EXPECT_EQ(bytes, export_bytes(specs, dtype));
      EXPECT_EQ(first_different_tensor(out, source.model, again.params), "");
      EXPECT_EQ(first_different_tensor(golden(GetParam()), source.model, again.params, dtype), "");
      EXPECT_EQ(config_of(out)["dtype"], dtype == DType::kF32 ? "float32" : "bfloat16");
      std::filesystem::remove_all(out);
    }
}

TEST(HfWriteConfig, OldAndNewKeys) {
  const TempFolder folder;
  const Loaded source(golden("llama"));
  write_hf_folder(folder / "out", source.model, source.params, {.dtype = DType::kBF16, .eos = 7});
  const std::string text = read_text(folder / "out/config.json");
  const Json c = config_of(folder / "out"), rope = {{"rope_type", "llama3"},
                                                    {"factor", 8.0},
                                                    {"low_freq_factor", 1.0},
                                                    {"high_freq_factor", 4.0},
                                                    {"original_max_position_embeddings", 64}};
  EXPECT_EQ(c["architectures"], Json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(c["torch_dtype"], "bfloat16");
  EXPECT_EQ(c["rope_theta"], 500000.0);
  EXPECT_EQ(c["rope_scaling"], rope);
  Json with_theta = rope;
  with_theta["rope_theta"] = 500000.0;
  EXPECT_EQ(c["rope_parameters"], with_theta);
  EXPECT_EQ(c["eos_token_id"], 7);
  EXPECT_TRUE(c.contains("bos_token_id") && c["bos_token_id"].is_null());
  // Floats are floats in the text: transformers 5 takes nothing else.
  for (const char* part :
       {"\"rope_theta\": 500000.0", "\"factor\": 8.0", "\"rms_norm_eps\": 1e-06", "\"attention_dropout\": 0.0"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  ModelConfig still = source.model;
  still.initializer_range = 0;
  write_hf_folder(folder / "zero", still, source.params, {});
  EXPECT_NE(read_text(folder / "zero/config.json").find("\"initializer_range\": 0.0"), std::string::npos);
}

TEST(HfWriteConfig, TokenIds) {
  const TempFolder folder;
  const Loaded source(golden("qwen3"));
  const auto write = [&](const HfExport& options) {
    std::filesystem::remove_all(folder / "out");
    write_hf_folder(folder / "out", source.model, source.params, options);
    return std::pair(config_of(folder / "out"), read_json(folder / "out/generation_config.json"));
  };
  make_dirs(folder / "source");
  make_dirs(folder / "tokenizer");
  write_atomic(folder / "source/config.json", R"({"eos_token_id":[5,6],"bos_token_id":null})");
  write_atomic(folder / "source/generation_config.json",
               R"({"temperature":0.6,"do_sample":true,"eos_token_id":[5,9]})");
  write_atomic(folder / "tokenizer/config.json", R"({"eos_token_id":3,"bos_token_id":4})");
  HfExport options{.tokenizer_folder = folder / "tokenizer", .source_folder = folder / "source", .eos = 1, .pad = 2};
  auto [config, generation] = write(options);
  EXPECT_EQ(config["eos_token_id"], Json::array({5, 6}));
  EXPECT_EQ(config["bos_token_id"], 4);
  EXPECT_EQ(config["pad_token_id"], 2);
  EXPECT_EQ(generation["eos_token_id"], Json::array({5, 9}));
  EXPECT_EQ(generation["temperature"], 0.6);
  EXPECT_EQ(generation["do_sample"], true);
  options.turn_ends = {9, 11};
  EXPECT_EQ(write(options).second["eos_token_id"], Json::array({5, 9, 11}));
  options.trained_eos = 8;
  std::tie(config, generation) = write(options);
  EXPECT_EQ(config["eos_token_id"], 8);
  EXPECT_EQ(generation["eos_token_id"], Json::array({8, 9, 11}));
  // Ids that the model does not have.
  for (const char* ids : {"256", "-2", "[1,256]", "\"x\"", "1.5", "[[1]]", "18446744073709551615"}) {
    SCOPED_TRACE(ids);
    write_atomic(folder / "source/config.json", std::string("{\"eos_token_id\":") + ids + "}");
    std::filesystem::remove_all(folder / "out");
    const std::string message = error_of(Exit::kInput, [&] { write({.source_folder = folder / "source"}); });
    EXPECT_NE(message.find("source/config.json: eos_token_id: "), std::string::npos) << message;
    EXPECT_FALSE(exists(folder / "out"));
  }
}

TEST(HfWriteFolder, CopiesTheTokenizer) {
  const TempFolder folder;
  const Loaded source(golden("gpt2"));
  make_dirs(folder / "t");
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "merges.txt", "vocab.json", "README.md", "pytorch_model.bin"})
    write_atomic(folder / "t/" + name, std::string("content of ") + name);
  write_atomic(folder / "t/tokenizer_config.json", R"({"padding_side":"left","model_max_length":7,"bos_token":null})");
  write_hf_folder(folder / "out", source.model, source.params,
                  {.tokenizer_folder = folder / "t", .files = {{"tokenizer.json", "another"}}});
  EXPECT_EQ(read_text(folder / "out/tokenizer.json"), "another");
  EXPECT_EQ(read_text(folder / "out/merges.txt"), "content of merges.txt");
  EXPECT_TRUE(exists(folder / "out/vocab.json"));
  // As it was, but for the length, which is the model's.
  EXPECT_EQ(read_text(folder / "out/tokenizer_config.json"),
            fmt::format("{{\n  \"padding_side\": \"left\",\n  \"model_max_length\": {},\n  \"bos_token\": null\n}}\n",
                        source.model.max_position_embeddings));
  write_atomic(folder / "t/tokenizer_config.json", "[1]");
  error_of(Exit::kInput,
           [&] { write_hf_folder(folder / "bad", source.model, source.params, {.tokenizer_folder = folder / "t"}); });
  EXPECT_FALSE(exists(folder / "bad"));
  EXPECT_FALSE(exists(folder / "out/README.md") || exists(folder / "out/pytorch_model.bin"));
}

TEST(HfWriteFolder, WholeOrNotAtAll) {
  const TempFolder folder;
  const Loaded source(golden("gpt2"));
  const auto write = [&](const std::string& out, const HfExport& options = {}) {
    write_hf_folder(out, source.model, source.params, options);
  };
  // Fails behind the weights: a tokenizer file that is a folder.
  make_dirs(folder / "t/vocab.json");
  EXPECT_NE(
      error_of(Exit::kInput, [&] { write(folder / "out", {.tokenizer_folder = folder / "t"}); }).find("vocab.json"),
      std::string::npos);
  std::filesystem::remove_all(folder / "t");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "something was left behind";
  // What stands there stays.
  write(folder / "out/");
  EXPECT_NE(error_of(Exit::kUsage, [&] { write(folder / "out"); }).find("is there already"), std::string::npos);
  write_atomic(folder / "file", "x");
  error_of(Exit::kStorage, [&] { write(folder / "file/out"); });
  error_of(Exit::kUsage, [&] { write(folder / "file"); });
  EXPECT_EQ(read_text(folder / "file"), "x");
}

// A file system that takes no more: a limit on the size of files stands in for a full disk.
TEST(HfWriteFolder, AFullDiskLeavesNothing) {
  const TempFolder folder;
  const Loaded source(golden("gpt2"));
  const testing::Cost cost = testing::cost_of([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    write_hf_folder(folder / "out", source.model, source.params, {.dtype = DType::kF32});
  });
  EXPECT_EQ(cost.code, static_cast<int>(Exit::kStorage)) << cost.message;
  EXPECT_NE(cost.message.find("model.safetensors: cannot write"), std::string::npos) << cost.message;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "something was left behind";
}

// Something of the temporary folder's name is not removed.
TEST(HfWriteFolder, AForeignTemporaryFolderStays) {
  const TempFolder folder;
  const Loaded source(golden("gpt2"));
  const std::string taken = folder / fmt::format("out.tmp-{}", ::getpid());
  make_dirs(taken);
  write_atomic(taken + "/notes.txt", "mine");
  error_of(Exit::kStorage, [&] { write_hf_folder(folder / "out", source.model, source.params, {}); });
  EXPECT_EQ(read_text(taken + "/notes.txt"), "mine");
}

TEST(HfWriteFolder, FirstDifferentTensorIsNamed) {
  const TempFolder folder;
  const Loaded source(golden("qwen2"));
  write_hf_folder(folder / "out", source.model, source.params, {.dtype = DType::kF32});
  auto tensors = testing::read_tensors(folder / "out/model.safetensors");
  for (const char* name : {"model.layers.0.self_attn.k_proj.bias", "model.norm.weight"}) tensors[name].bytes[5] ^= 1;
  testing::write_tensors(folder / "out/model.safetensors", tensors);
  EXPECT_EQ(first_different_tensor(folder / "out", source.model, source.params),
            "model.layers.0.self_attn.k_proj.bias");
}

TEST(FindModelFolder, FolderOrRun) {
  EXPECT_EQ(find_model_folder(golden("gpt2")), golden("gpt2"));
  const TempFolder run;
  make_dirs(run / "model");
  write_atomic(run / "model/config.json", "{}");
  EXPECT_EQ(find_model_folder(run.path()), run / "model");
}

}  // namespace
}  // namespace mantissa
