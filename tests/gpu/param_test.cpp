// Parameters in a GPU's memory: the CPU's values to the bit, from a seed, from a folder and back into one.
#include "model/param.h"

#include "base/safetensors.h"
#include "model/hf/checkpoint.h"
#include "model/hf/export.h"
#include "model/hf/values.h"
#include "tests/base/support.h"
#include "tests/gpu/models.h"

namespace mantissa {
namespace {

const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/";

struct Store {
  Store(const ModelConfig& model, WeightMode weights, Device* device)
      : params(find_arch(model.arch).params(model),
               {.weights = weights, .training = false, .device = device, .gpu = device != nullptr}) {
    arena.build([this](Arena& a) { params.allocate(a); }, device);
  }
  ParamStore params;
  Arena arena;
};

void expect_same(const ParamStore& a, const ParamStore& b) {
  for (int id = 0; id < b.size(); ++id) {
    const std::vector<float> x = a.values(id), y = b.values(id);
    ASSERT_EQ(x.size(), y.size());
    ASSERT_EQ(0, std::memcmp(x.data(), y.data(), x.size() * sizeof(float))) << b.spec(id).name;
    if (!b.has_master()) continue;
    std::vector<std::byte> copy(static_cast<size_t>(a.weight(id).bytes()));
    a.options().device->copy_out(copy.data(), a.weight(id).data, a.weight(id).bytes());
    ASSERT_EQ(0, std::memcmp(copy.data(), b.weight(id).data, copy.size())) << b.spec(id).name;
  }
}

constexpr WeightMode kModes[] = {WeightMode::kF32, WeightMode::kF32Master, WeightMode::kBF16};

using GpuParams = GpuTest;

TEST_F(GpuParams, InitialValuesAreTheCpus) {
  for (const WeightMode mode : kModes) {
    ModelConfig model = small_model("qwen3", 20001);  // the embedding takes two pieces
    Store gpu(model, mode, &device()), cpu(model, mode, nullptr);
    gpu.params.initialize(3);
    cpu.params.initialize(3);
    expect_same(gpu.params, cpu.params);
    std::vector<float> values = cpu.params.values(0);
    for (float& x : values) x += 1;
    gpu.params.set(0, values.data());
    cpu.params.set(0, values.data());
    expect_same(gpu.params, cpu.params);
  }
}

TEST_F(GpuParams, FoldersReadAndWriteAsOnTheCpu) {
  for (const char* arch : {"gpt2", "llama", "qwen2", "qwen3"}) {
    const std::string folder = kGolden + arch;
    const ModelConfig model = read_hf_config(folder);
    for (const WeightMode mode : kModes) {
      Store gpu(model, mode, &device()), cpu(model, mode, nullptr);
      for (ParamStore* params : {&gpu.params, &cpu.params}) load_hf_weights(folder, model, *params);
      expect_same(gpu.params, cpu.params);
      const DType round = mode == WeightMode::kBF16 ? DType::kBF16 : DType::kF32;
      EXPECT_EQ(first_different_tensor(folder, model, gpu.params, round), "");
      const testing::TempFolder out;
      write_hf_folder(out / "gpu", model, gpu.params, {.dtype = round});
      write_hf_folder(out / "cpu", model, cpu.params, {.dtype = round});
      EXPECT_EQ(read_text(out / "gpu/model.safetensors"), read_text(out / "cpu/model.safetensors")) << arch;
      const int id = model.num_hidden_layers > 0 ? gpu.params.find("layers.0.attention.out.weight") : 0;
      std::vector<float> values = gpu.params.values(id);
      values[7] += 1;
      gpu.params.set(id, values.data());
      EXPECT_NE(first_different_tensor(folder, model, gpu.params, round), "");
    }
  }
}

// More than one piece on the way, in the folder's layout and transposed.
TEST_F(GpuParams, LargePartsAreLoadedInPieces) {
  const int64_t rows = 3001, cols = 2048;
  const std::vector<float> values = random_values(rows * cols, 5, 1, false);
  for (const bool transposed : {false, true}) {
    const ParamSpec spec{"x", {rows + 1, cols}, {{"x", 1, rows, transposed}}};
    const safetensors::View view{"F32",
                                 transposed ? std::vector<int64_t>{cols, rows} : std::vector<int64_t>{rows, cols},
                                 std::as_bytes(std::span(values))};
    for (const WeightMode mode : kModes) {
      ParamStore gpu({spec}, {.weights = mode, .training = false, .device = &device(), .gpu = true});
      ParamStore cpu({spec}, {.weights = mode, .training = false});
      Arena on_gpu, on_cpu;
      on_gpu.build([&](Arena& a) { gpu.allocate(a); }, &device());
      on_cpu.build([&](Arena& a) { cpu.allocate(a); });
      const hf::Match match{.param = 0, .spec = &spec, .part = &spec.hf[0], .view = &view, .name = "x"};
      hf::load_match(match, gpu, DType::kF32);
      hf::load_match(match, cpu, DType::kF32);
      expect_same(gpu, cpu);
      EXPECT_EQ(hf::holds_match(match, gpu, DType::kF32), hf::holds_match(match, cpu, DType::kF32));
    }
  }
}

}  // namespace
}  // namespace mantissa
