// Reading model folders: every accepted form gives the same parameters, every other one is refused by name.
#include <cmath>

#include "base/file.h"
#include "model/arch/arch.h"
#include "model/hf/export.h"
#include "tests/model/model_folder.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::golden;
using testing::Loaded;
using testing::ModelFolder;
using testing::TensorValue;

float float_at(const std::string& bytes, size_t i) {
  float x;
  std::memcpy(&x, bytes.data() + 4 * i, 4);
  return x;
}

// The tensor in another dtype, rounded to nearest by bits.
TensorValue cast(const TensorValue& t, const std::string& dtype) {
  TensorValue out{dtype, t.shape, {}};
  for (size_t i = 0; i < t.bytes.size() / 4; ++i) {
    const float x = float_at(t.bytes, i);
    uint16_t bits = to_bf16(x).bits;
    if (dtype == "F16") {
      // frexp gives x = m 2^e with 0.5 <= m < 1; eleven bits of significand, fewer below 2^-14.
      int exponent = 0;
      std::frexp(x, &exponent);
      const int unit = std::max(exponent - 11, -24);
      const auto steps = static_cast<long>(std::nearbyint(std::ldexp(std::fabs(double{x}), -unit)));
      // Steps of a unit count up through the codes: 1024 of them a binade.
      bits = static_cast<uint16_t>((std::signbit(x) ? 0x8000 : 0) | (steps + (unit + 24) * 1024));
    }
    out.bytes.append(reinterpret_cast<const char*>(&bits), 2);
  }
  return out;
}

TensorValue transposed(const TensorValue& t) {
  TensorValue out{t.dtype, {t.shape[1], t.shape[0]}, std::string(t.bytes.size(), '\0')};
  const auto rows = static_cast<size_t>(t.shape[0]), cols = static_cast<size_t>(t.shape[1]);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) std::memcpy(&out.bytes[4 * (c * rows + r)], &t.bytes[4 * (r * cols + c)], 4);
  return out;
}

class HfModels : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, HfModels, ::testing::ValuesIn(arch_names()),
                         [](const auto& param) { return param.param; });

TEST_P(HfModels, PartsStandInTheirRows) {
  const Loaded loaded(golden(GetParam()));
  const testing::TensorMap file = testing::read_tensors(golden(GetParam()) + "/model.safetensors");
  size_t seen = 0;
  for (int id = 0; id < loaded.params.size(); ++id) {
    const ParamSpec& spec = loaded.params.spec(id);
    const std::vector<float> values = loaded.params.values(id);
    const int64_t cols = spec.shape.rank() == 1 ? 1 : spec.shape[1];
    for (const HfPart& part : spec.hf) {
      TensorValue t = file.at(part.name);
      if (part.transposed) t = transposed(t);
      EXPECT_EQ(std::memcmp(values.data() + part.row * cols, t.bytes.data(), t.bytes.size()), 0) << part.name;
      ++seen;
    }
  }
  EXPECT_EQ(seen, file.size());
}

TEST_P(HfModels, ShardsGiveTheSame) {
  ModelFolder folder(GetParam());
  folder.write_shards(3);
  EXPECT_TRUE(Loaded(folder.path()).values() == Loaded(golden(GetParam())).values());
}

TEST_P(HfModels, SixteenBits) {
  for (const char* dtype : {"BF16", "F16"}) {
    ModelFolder folder(GetParam());
    std::map<std::string, TensorValue> full = folder.tensors;
    for (auto& [name, t] : folder.tensors) t = cast(t, dtype);
    folder.write();
    const double error = std::string_view(dtype) == "F16" ? 0x1p-11 : 0x1p-8;  // half a unit of the last place
    const Loaded reference(golden(GetParam())), loaded(folder.path()), master(folder.path(), WeightMode::kF32Master),
        low(folder.path(), WeightMode::kBF16);
    for (int id = 0; id < reference.params.size(); ++id) {
      const std::vector<float> want = reference.params.values(id), got = loaded.params.values(id);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_LE(std::fabs(want[i] - got[i]), error * std::fabs(want[i]) + 0x1p-25) << dtype << " " << id << " " << i;
      EXPECT_TRUE(master.params.values(id) == got);
      const bf16* compute = master.params.weight(id).as<bf16>();
      const bf16* held = low.params.weight(id).as<bf16>();
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(compute[i].bits, to_bf16(got[i]).bits);
        ASSERT_EQ(held[i].bits, compute[i].bits);
      }
    }
  }
}

TEST_P(HfModels, WithoutThePrefix) {
  ModelFolder folder(GetParam());
  testing::TensorMap bare;
  for (const auto& [name, t] : folder.tensors) {
    std::string short_name = name;
    for (const std::string prefix : {"transformer.", "model."})
      if (name.starts_with(prefix)) short_name = name.substr(prefix.size());
    bare[short_name] = t;
  }
  folder.tensors = bare;
  folder.write();
  EXPECT_TRUE(Loaded(folder.path()).values() == Loaded(golden(GetParam())).values());
}

TEST_P(HfModels, RefusesMissingExtraMisshaped) {
  const ModelFolder whole(GetParam());
  for (const auto& [name, t] : whole.tensors) {
    SCOPED_TRACE(name);
    if (name.find("layers.1") == std::string::npos && name.find("h.1") == std::string::npos &&
        name.find("norm") == std::string::npos)
      continue;
    ModelFolder folder(GetParam());
    folder.tensors.erase(name);
    folder.write();
    EXPECT_EQ(error_of(Exit::kInput, [&] { Loaded{folder.path()}; }),
              (folder / "model.safetensors: ") + name + ": missing, expected " + shape_text(t.shape));
    TensorValue wider = t;
    wider.shape.push_back(1);
    folder.tensors[name] = wider;
    folder.write();
    EXPECT_EQ(error_of(Exit::kInput, [&] { Loaded{folder.path()}; }), (folder / "model.safetensors: ") + name +
                                                                          ": found " + shape_text(wider.shape) +
                                                                          ", expected " + shape_text(t.shape));
    folder.tensors[name] = {"I32", t.shape, t.bytes};
    folder.write();
    EXPECT_EQ(error_of(Exit::kInput, [&] { Loaded{folder.path()}; }),
              (folder / "model.safetensors: ") + name + ": dtype I32, expected F32, F16 or BF16");
  }
  ModelFolder folder(GetParam());
  folder.tensors["model.layers.2.extra"] = {"F32", {1}, std::string(4, '\0')};
  folder.write();
  EXPECT_NE(error_of(Exit::kInput, [&] { Loaded{folder.path()}; }).find("model.layers.2.extra: not part of a"),
            std::string::npos);
}

TEST(HfTied, HeadAsTransformersDoes) {
  for (const std::string model : {"gpt2", "qwen3"}) {
    SCOPED_TRACE(model);
    const std::string embedding = model == "gpt2" ? "transformer.wte.weight" : "model.embed_tokens.weight";
    const Loaded reference(golden(model));
    ASSERT_TRUE(reference.model.tie_word_embeddings);
    // Equal: tied.
    ModelFolder folder(model);
    folder.tensors["lm_head.weight"] = folder.tensors[embedding];
    folder.write();
    const Loaded equal(folder.path());
    EXPECT_EQ(equal.model, reference.model);
    EXPECT_EQ(equal.notice, "");
    EXPECT_TRUE(equal.values() == reference.values());
    // Alone: the embedding is read from it.
    folder.tensors.erase(embedding);
    folder.write();
    EXPECT_TRUE(Loaded(folder.path()).values() == reference.values());
    // Differing in one value: untied, and said.
    folder.tensors[embedding] = folder.tensors["lm_head.weight"];
    TensorValue head = folder.tensors[embedding];
    const float other = float_at(head.bytes, 5) + 1;
    std::memcpy(&head.bytes[20], &other, 4);
    folder.tensors["lm_head.weight"] = head;
    folder.write();
    const Loaded untied(folder.path());
    EXPECT_FALSE(untied.model.tie_word_embeddings);
    EXPECT_NE(untied.notice.find("left untied"), std::string::npos) << untied.notice;
    const std::vector<float> values = untied.params.values(untied.params.find(param_names::kHead));
    EXPECT_EQ(values[5], other);
    EXPECT_TRUE(untied.params.values(0) == reference.params.values(0));
    // A store that ties them cannot take it.
    ParamStore tied(find_arch(model).params(reference.model), {.weights = WeightMode::kF32, .training = false});
    Arena arena;
    arena.build([&](Arena& a) { tied.allocate(a); });
    EXPECT_NE(error_of(Exit::kInput, [&] { load_hf_weights(folder.path(), reference.model, tied); })
                  .find("differs from the embedding"),
              std::string::npos);
    // Of another shape.
    folder.tensors["lm_head.weight"].shape = {1, head.shape[0] * head.shape[1]};
    folder.write();
    EXPECT_NE(error_of(Exit::kInput, [&] { Loaded{folder.path()}; }).find("lm_head.weight: found"), std::string::npos);
  }
}

TEST(HfRead, OldBuffersArePassedOver) {
  ModelFolder gpt2("gpt2");
  for (const char* prefix : {"transformer.", ""})
    for (const char* leaf : {"h.0.attn.bias", "h.1.attn.masked_bias"})
      gpt2.tensors[std::string(prefix) + leaf] = {"U8", {1, 1, 2, 2}, std::string(4, '\1')};
  gpt2.write();
  EXPECT_TRUE(Loaded(gpt2.path()).values() == Loaded(golden("gpt2")).values());
  ModelFolder llama("llama");
  llama.tensors["model.layers.1.self_attn.rotary_emb.inv_freq"] = {"F32", {1}, std::string(4, '\1')};
  llama.tensors["model.rotary_emb.inv_freq"] = {"F32", {1}, std::string(4, '\1')};
  llama.write();
  EXPECT_TRUE(Loaded(llama.path()).values() == Loaded(golden("llama")).values());
  // The same names in the other architecture, and others that resemble them, are no buffers.
  for (const char* name :
       {"model.h.0.attn.bias", "model.layers.x.self_attn.rotary_emb.inv_freq", "layers.1.inv_freq"}) {
    ModelFolder folder("llama");
    folder.tensors[name] = {"F32", {1}, std::string(4, '\1')};
    folder.write();
    EXPECT_NE(error_of(Exit::kInput, [&] { Loaded{folder.path()}; }).find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace mantissa
