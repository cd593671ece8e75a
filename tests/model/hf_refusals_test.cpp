// Model folders that are not what they should be: each refused with its name and the reason, exit 3.
#include <unistd.h>

#include "model/hf/export.h"
#include "model/hf/index.h"
#include "tests/base/child_cost.h"
#include "tests/model/model_folder.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::ModelFolder;
using testing::TempFolder;

std::string refusal(const std::string& folder) {
  return error_of(Exit::kInput, [&] { testing::Loaded{folder}; });
}
void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
}

TEST(HfIndex, RefusesWhatIsNoPlainName) {
  const auto index = [](const std::string& file) { return Json{{"weight_map", {{"a", file}}}}.dump(); };
  EXPECT_EQ(hf::parse_index(index("model-00001-of-00002.safetensors"), "i").weight_map.at("a"),
            "model-00001-of-00002.safetensors");
  const std::vector<std::string> names = {
      "../x.safetensors",
      "/etc/x.safetensors",
      "sub/x.safetensors",
      "",
      "..",
      ".safetensors",
      "x.bin",
      "x",
      "a\\b.safetensors",
      std::string("x\0.safetensors", 14),
  };
  for (const std::string& file : names) {
    SCOPED_TRACE(file);
    expect_part(error_of(Exit::kInput, [&] { hf::parse_index(index(file), "i"); }),
                "expected the plain name of a .safetensors file in the folder");
  }
  error_of(Exit::kInput, [&] { hf::parse_index(index(std::string(300, 'x') + ".safetensors"), "i"); });
}

TEST(HfIndex, Forms) {
  const auto says = [](const std::string& text) {
    return error_of(Exit::kInput, [&] { hf::parse_index(text, "i.json"); });
  };
  EXPECT_EQ(says("{}"), "i.json: no \"weight_map\"");
  EXPECT_EQ(says("[]"), "i.json: is a list, expected an object with \"weight_map\"");
  EXPECT_EQ(says("7"), "i.json: is a number, expected an object with \"weight_map\"");
  EXPECT_EQ(says(R"({"weight_map":{}})"), "i.json: weight_map is empty");
  EXPECT_EQ(says(R"({"weight_map":[]})"), "i.json: weight_map is a list, expected an object");
  EXPECT_EQ(says(R"({"weight_map":"x"})"), "i.json: weight_map is a text, expected an object");
  EXPECT_EQ(says(R"({"weight_map":{"a":1}})"), "i.json: tensor \"a\" is in a number, expected a file name");
  EXPECT_EQ(says(R"({"weight_map":{"a":["x"]}})"), "i.json: tensor \"a\" is in a list, expected a file name");
  EXPECT_EQ(says(R"({"weight_map":{"a":{}}})"), "i.json: tensor \"a\" is in an object, expected a file name");
  EXPECT_EQ(says(R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})"), "i.json: tensor \"a\" stands twice");
  EXPECT_EQ(says(R"({"weight_map":{"a":"x.safetensors"},"weight_map":{"b":"x.safetensors"}})"),
            "i.json: weight_map stands twice");
  expect_part(says(R"({"weight_map":{"a":"x.safetensors"})"), "i.json: not JSON at byte");
  expect_part(says("{\"m\":" + std::string(100, '[') + std::string(100, ']') + "}"), "nested more than 64 deep");
  // What is not read may hold anything.
  const hf::Index index = hf::parse_index(
      R"({"metadata":{"total_size":12,"x":[1,{"weight_map":{"no":1}}]},"more":[null,true,-1,1.5],"weight_map":{"a":"x.safetensors"}})",
      "i");
  EXPECT_EQ(index.weight_map.size(), 1u);
  EXPECT_EQ(index.total_size, 12u);
}

TEST(HfIndex, SurvivesMutations) {
  const std::string good =
      R"({"metadata":{"total_size":12},"weight_map":{"a":"x.safetensors","b":"y-00001-of-00002.safetensors"}})";
  int refused = 0;
  for (uint32_t seed = 0; seed < 10'000; ++seed) {
    try {
      for (const auto& [name, file] : hf::parse_index(testing::mutated(good, seed), "i").weight_map)
        EXPECT_EQ(file.find('/'), std::string::npos);
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), 3) << seed;
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

TEST(HfIndex, LargeOnesAreCheap) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers change time and memory";
  std::string text = "{\"weight_map\":{";
  for (int i = 0; text.size() < 9'900'000; ++i)
    text += (i ? ",\"model.layers." : "\"model.layers.") + std::to_string(i) +
            ".weight\":\"model-00001-of-00002.safetensors\"";
  text += "}}";
  const testing::Cost cost = testing::cost_of([&] { hf::parse_index(text, "i"); });
  EXPECT_EQ(cost.code, 0) << cost.message;
  EXPECT_LT(cost.cpu_seconds, 1);
  EXPECT_LT(cost.megabytes, 300);
}

TEST(HfShards, HoldWhatTheIndexSays) {
  const auto write = [](const ModelFolder& folder, const std::function<void(Json&)>& change) {
    folder.write_shards(2);
    Json index = read_json(folder / "model.safetensors.index.json");
    change(index["weight_map"]);
    write_atomic(folder / "model.safetensors.index.json", index.dump());
  };
  const std::string name = "model.norm.weight";
  {
    const ModelFolder folder("llama");
    write(folder, [&](Json& map) { map.erase(name); });
    expect_part(refusal(folder.path()), "tensor \"model.norm.weight\" is not in the index");
  }
  {
    const ModelFolder folder("llama");
    write(folder, [&](Json& map) {
      map[name] = map[name] == "part-0.safetensors" ? "part-1.safetensors" : "part-0.safetensors";
    });
    expect_part(refusal(folder.path()), "model.norm.weight\" is ");
  }
  {
    const ModelFolder folder("llama");
    write(folder, [&](Json& map) { map["model.extra"] = "part-0.safetensors"; });
    expect_part(refusal(folder.path()),
                "tensor \"model.extra\" is in part-0.safetensors, says the index, but not there");
  }
  {
    const ModelFolder folder("llama");
    write(folder, [&](Json& map) { map["model.extra"] = "part-7.safetensors"; });
    expect_part(refusal(folder.path()), "shard part-7.safetensors is not there");
  }
  {
    // A whole shard that the index does not know is not opened; its tensors are missing.
    ModelFolder folder("llama");
    folder.tensors.erase(name);
    folder.write_shards(2);
    expect_part(refusal(folder.path()), "model.norm.weight: missing, expected [64]");
  }
  {
    const ModelFolder folder("llama");
    folder.write_shards(2);
    std::filesystem::rename(folder / "part-1.safetensors", folder / "elsewhere");
    std::filesystem::create_symlink(folder / "elsewhere", folder / "part-1.safetensors");
    const std::string message = refusal(folder.path());
    expect_part(message, "is a symbolic link, expected a plain file");
    expect_part(message, "cp -rL");
  }
  {
    const ModelFolder folder("llama");
    folder.write_shards(2);
    write_atomic(folder / "part-1.safetensors", "PK\x03\x04 a zip");
    expect_part(refusal(folder.path()), "part-1.safetensors: expected safetensors, found a zip archive");
  }
}

TEST(HfFolder, OtherWeightsNameAWayOut) {
  struct Case {
    const char *file, *part;
  };
  const Case cases[] = {
      {"pytorch_model.bin", "safe_serialization=True"},
      {"pytorch_model.bin.index.json", "safe_serialization=True"},
      {"adapter_model.safetensors", "merge_and_unload"},
      {"adapter_config.json", "merge_and_unload"},
      {"model-q4.gguf", "a GGUF file"},
      {"consolidated.00.pth", "Hugging Face folder"},
      {"weights.pt", "pickle"},
      {"tf_model.h5", "from_tf=True"},
      {"other.safetensors", "weights of another name"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.file);
    const ModelFolder folder("llama");
    folder.write_config();
    write_atomic(folder / c.file, "x");
    const std::string message = error_of(Exit::kInput, [&] { testing::Loaded{folder.path()}; });
    expect_part(message, "no model.safetensors and no model.safetensors.index.json");
    expect_part(message, c.file);
    expect_part(message, c.part);
  }
  const TempFolder empty;
  expect_part(error_of(Exit::kInput, [&] { find_model_folder(empty.path()); }), "no model.safetensors");
  expect_part(error_of(Exit::kInput, [&] { find_model_folder(empty / "none"); }), "not there");
  write_atomic(empty / "run.json", "{}");
  expect_part(error_of(Exit::kInput, [&] { find_model_folder(empty.path()); }), "did not finish");
}

TEST(HfConfig, RefusesWhatItDoesNotKnow) {
  struct Case {
    const char *model, *key;
    Json value;
    const char* part;
  };
  const Case cases[] = {
      {"llama", "model_type", "mamba", "model_type mamba: not supported"},
      {"llama", "model_type", 3, "model_type: missing"},
      {"llama", "hidden_act", "gelu", "hidden_act: \"gelu\" is not supported"},
      {"llama", "attention_bias", true, "attention_bias"},
      {"llama", "mlp_bias", true, "mlp_bias"},
      {"llama", "partial_rotary_factor", 0.5, "partial_rotary_factor"},
      {"llama", "quantization_config", {{"bits", 4}}, "quantization_config: the weights are stored quantized"},
      {"llama", "hidden_size", "64", "hidden_size: found \"64\", expected an integer"},
      {"llama", "hidden_size", nullptr, "hidden_size: missing"},
      {"llama", "hidden_size", -64, "hidden_size: -64, expected 1 to"},
      {"llama", "hidden_size", 1e18, "hidden_size: found"},
      {"llama", "num_attention_heads", 0, "num_attention_heads: 0, expected 1 to"},
      {"llama", "num_key_value_heads", 0, "num_key_value_heads: 0, expected 1 to"},
      {"llama", "num_key_value_heads", 3, "not a multiple of num_key_value_heads 3"},
      {"llama", "num_hidden_layers", 9223372036854775807, "num_hidden_layers"},
      {"llama", "vocab_size", 4294967296, "vocab_size: 4294967296"},
      {"llama", "rms_norm_eps", "small", "rms_norm_eps: found"},
      {"llama", "rms_norm_eps", -1.0, "norm epsilon: -1"},
      {"llama", "rope_parameters", "x", "rope parameters: found"},
      {"llama", "rope_parameters", {{"rope_type", 5}}, "rope_type: found 5, expected a text"},
      {"llama", "rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}}, "rope type yarn: not supported"},
      {"llama", "rope_scaling", {{"type", "linear"}, {"factor", 2}}, "rope type linear: not supported"},
      {"llama", "rope_theta", 0, "rope_theta: 0"},
      {"llama", "tie_word_embeddings", "yes", "tie_word_embeddings: found"},
      {"llama", "head_dim", 17, "head_dim 17 is odd"},
      {"qwen2", "head_dim", 8, "qwen2 needs"},
      {"qwen3", "use_sliding_window", true, "use_sliding_window"},
      {"qwen3", "layer_types", {"full_attention", "sliding_attention"}, "layer_types"},
      {"gpt2", "activation_function", "relu", "activation_function"},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true, "scale_attn_by_inverse_layer_idx"},
      {"gpt2", "n_embd", 65, "not a multiple"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.key) + " " + c.value.dump());
    ModelFolder folder(c.model);
    folder.config[c.key] = c.value;
    if (std::string_view(c.key) == "rope_theta") folder.config.erase("rope_parameters");
    folder.write_config();
    const std::string message = error_of(Exit::kInput, [&] { read_hf_config(folder.path()); });
    expect_part(message, folder / "config.json: ");
    expect_part(message, c.part);
  }
  const ModelFolder folder("llama");
  for (const char* text : {"", "[]", "{", "null", "{\"model_type\":\"llama\",\"model_type\":\"llama\"}"}) {
    write_atomic(folder / "config.json", text);
    expect_part(error_of(Exit::kInput, [&] { read_hf_config(folder.path()); }), "config.json: ");
  }
  write_atomic(folder / "config.json", R"({"peft_type":"LORA"})");
  expect_part(error_of(Exit::kInput, [&] { read_hf_config(folder.path()); }), "an adapter's config");
}

// Defaults are transformers' for keys that are left out.
TEST(HfConfig, Defaults) {
  ModelFolder qwen("qwen3");
  for (const char* key : {"head_dim", "num_key_value_heads", "max_position_embeddings", "rope_parameters"})
    qwen.config.erase(key);
  qwen.config["num_attention_heads"] = 32;
  qwen.write_config();
  const ModelConfig m = read_hf_config(qwen.path());
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.num_key_value_heads, 32);
  EXPECT_EQ(m.max_position_embeddings, 32768);
  EXPECT_EQ(m.rope_theta, 10000);
  ModelFolder llama("llama");
  for (const char* key : {"head_dim", "num_key_value_heads", "max_position_embeddings", "rope_parameters"})
    llama.config.erase(key);
  llama.write_config();
  EXPECT_EQ(read_hf_config(llama.path()).num_key_value_heads, 4);
  EXPECT_EQ(read_hf_config(llama.path()).head_dim, 16);
  EXPECT_EQ(read_hf_config(llama.path()).max_position_embeddings, 2048);
}

TEST(HfConfig, SurvivesMutations) {
  const ModelFolder folder("llama");
  const std::string good = folder.config.dump();
  for (uint32_t seed = 0; seed < 2'000; ++seed) {
    // Not durable: an fsync for each would take minutes.
    std::FILE* file = std::fopen((folder / "config.json").c_str(), "w");
    ASSERT_NE(file, nullptr);
    const std::string text = testing::mutated(good, seed);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
    try {
      const ModelConfig model = read_hf_config(folder.path());
      EXPECT_GT(find_arch(model.arch).params(model).size(), 0u);
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), 3) << seed << error.what();
    }
  }
}

}  // namespace
}  // namespace mantissa
