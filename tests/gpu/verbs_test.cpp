// Verbs on the GPU, in process, beside the CPU's answers.
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/safetensors.h"
#include "tests/app/verb_run.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/";

class GpuVerbs : public testing::VerbTest {
 protected:
  void SetUp() override {
    std::string absence;
    device_ = shared_device(false, absence);
    if (!device_) GTEST_SKIP() << "no GPU: " << absence;
  }
  const DeviceInfo& info() const { return device_->info(); }

  // config() in BF16 on the GPU, if `overrides` do not say otherwise.
  VerbResult train(const std::vector<std::string>& overrides) const {
    std::vector<std::string> args = {"--device.name=cuda", "--log.console=true"};
    args.insert(args.end(), overrides.begin(), overrides.end());
    return run("train", args);
  }
  static double loss_of(const std::string& run) { return read_json(run + "/result.json")["loss"].get<double>(); }

 private:
  Device* device_ = nullptr;
};

TEST_F(GpuVerbs, TrainSaysWhatItRunsOn) {
  const VerbResult r = train({});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const std::string& part :
       {"device    " + info().name, std::string(" · CUDA "), std::string("context and libraries"),
        std::string("started "), std::string("the first step"), std::string(" planned · "), std::string("6/6 100.0%")})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  const double loss = loss_of(folder / "run");
  ASSERT_EQ(train({"--device.name=cpu", "--run.dir=" + (folder / "cpu")}).code, 0);
  EXPECT_NEAR(loss, loss_of(folder / "cpu"), 2e-2 * loss);
  // The report knows the GPU.
  EXPECT_NE(read_text(folder / "run/report.html").find(info().name), std::string::npos);
}

// Quantization errors of a run's first step, by layer and tensor: those of a CPU but for activations' roundings.
void expect_same_errors(const std::string& gpu, const std::string& cpu) {
  const auto errors_of = [](const std::string& dir) {
    std::map<std::string, Json> errors;
    std::istringstream lines(read_text(dir + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json json = Json::parse(line); json.contains("quantization") && json["step"] == 1)
        for (const Json& error : json["quantization"])
          errors[error["layer"].get<std::string>() + " " + error["tensor"].get<std::string>()] = error;
    return errors;
  };
  const auto there = errors_of(gpu), here = errors_of(cpu);
  EXPECT_FALSE(here.empty());
  ASSERT_EQ(there.size(), here.size());
  for (const auto& [name, error] : here) {
    const Json& found = there.at(name);
    EXPECT_NEAR(found["snr_db"].get<double>(), error["snr_db"].get<double>(), 0.3) << name;
    EXPECT_NEAR(found["amax"].get<double>() / error["amax"].get<double>(), 1, 0.05) << name;
  }
}

TEST_F(GpuVerbs, QuantizedRecipesTrain) {
  for (const std::string recipe : {"fp8-delayed", "fp8-blockwise", "mxfp8"}) {
    const std::string key = "--precision.recipe=" + recipe, dir = folder / recipe,
                      measured = "--log.quantization_every=2";
    const VerbResult r = train({key, measured, "--device.name=auto", "--run.dir=" + dir});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("device    " + info().name), std::string::npos) << r.out;
    EXPECT_NE(r.out.find(recipe == "mxfp8" ? "emulated" : "native"), std::string::npos) << r.out;
    ASSERT_EQ(train({key, measured, "--device.name=cpu", "--run.dir=" + dir + "-cpu"}).code, 0);
    EXPECT_NEAR(loss_of(dir) / loss_of(dir + "-cpu"), 1, 2e-2) << recipe;
    expect_same_errors(dir, dir + "-cpu");
  }
  expect_refused(train({"--device.name=cuda:63", "--run.dir=" + (folder / "other")}), Exit::kUnavailable, {"63"});
}

// The tensors that TransformerEngine cast on an H200; tests/app holds the CPU's bytes against its own.
TEST_F(GpuVerbs, QuantizeWritesTheBytesOfTheCpu) {
  const safetensors::Reader golden = safetensors::Reader::open(kGolden + "te/quantizers.safetensors");
  std::vector<safetensors::Entry> inputs, even;
  for (const auto& [name, view] : golden.tensors()) {
    if (!name.starts_with("in.")) continue;
    const safetensors::Entry entry{name, view.dtype, view.shape, view.bytes};
    inputs.push_back(entry);
    if (view.dtype == "BF16" && view.shape[0] % 32 == 0 && view.shape[1] % 32 == 0) even.push_back(entry);
  }
  ASSERT_FALSE(even.empty());
  safetensors::write(folder / "all", inputs);
  safetensors::write(folder / "even", even);
  struct Case {
    const char *recipe, *role, *input, *more;
  };
  for (const Case& c :
       {Case{"fp8-delayed", "input", "all", "--scale=17.3"}, Case{"fp8-delayed", "grad", "all", "--scale=1"},
        Case{"fp8-tensorwise", "input", "all", ""}, Case{"fp8-tensorwise", "grad", "all", "--scales=pow2"},
        Case{"fp8-blockwise", "input", "all", ""}, Case{"fp8-blockwise", "weight", "all", "--scales=fp32"},
        Case{"mxfp8", "input", "even", ""}, Case{"mxfp8", "weight", "even", "--enable_2d_quantization"},
        Case{"nvfp4", "input", "even", ""}, Case{"nvfp4", "weight", "even", ""},
        Case{"nvfp4", "grad", "even", "--seed=11"}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", c.recipe, c.role, c.more));
    std::vector<std::string> args = {"quantize", "--recipe",       c.recipe,   "--role",       c.role,
                                     "--input",  folder / c.input, "--output", folder / "cpu", "--device=cpu"};
    if (*c.more) args.emplace_back(c.more);
    VerbResult r = run_verb(args);
    ASSERT_EQ(r.code, 0) << r.err;
    const std::string said = r.out.substr(0, r.out.rfind("wrote"));
    args[8] = folder / "gpu", args[9] = "--device=cuda";
    r = run_verb(args);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.out.substr(0, r.out.rfind("wrote")), said);
    EXPECT_EQ(read_text(folder / "gpu"), read_text(folder / "cpu"));
  }
}

TEST_F(GpuVerbs, SampleDrawsTheSameTokensInFp32) {
  for (const char* arch : {"gpt2", "llama", "qwen2", "qwen3"}) {
    std::vector<std::string> args = {"sample",          kGolden + arch,        "--prompt=It was", "--dtype=fp32",
                                     "--temperature=0", "--max-new-tokens=32", "--ignore-eos",    "--device=cpu"};
    const VerbResult cpu = run_verb(args);
    args.back() = "--device=cuda";
    const VerbResult gpu = run_verb(args);
    ASSERT_EQ(gpu.code, 0) << gpu.err;
    EXPECT_EQ(gpu.out, cpu.out) << arch;
    EXPECT_NE(gpu.err.find("device " + info().name), std::string::npos) << gpu.err;
  }
}

TEST_F(GpuVerbs, EvalAgrees) {
  for (const auto& [dtype, bound] : {std::pair<const char*, double>{"fp32", 2e-4}, {"bf16", 2e-2}})
    for (const char* arch : {"gpt2", "llama", "qwen2", "qwen3"}) {
      SCOPED_TRACE(std::string(arch) + " " + dtype);
      std::vector<std::string> args = {"eval",
                                       kGolden + arch,
                                       folder / "text.txt",
                                       "--context=64",
                                       "--max_documents=20",
                                       "--json",
                                       std::string("--dtype=") + dtype,
                                       "--device=cpu"};
      const VerbResult cpu = run_verb(args);
      args.back() = "--device=cuda";
      const VerbResult gpu = run_verb(args);
      ASSERT_EQ(gpu.code, 0) << gpu.err;
      const Json a = Json::parse(gpu.out), b = Json::parse(cpu.out);
      EXPECT_EQ(a["tokens"], b["tokens"]);
      EXPECT_EQ(a["device"], info().name);
      EXPECT_NEAR(a["loss"].get<double>(), b["loss"].get<double>(), bound * b["loss"].get<double>());
    }
}

// Scale-free distance of two F32 tensors.
double distance(const safetensors::View& a, const safetensors::View& b) {
  const auto values = [](const safetensors::View& v) {
    const auto* p = reinterpret_cast<const float*>(v.bytes.data());
    return std::vector<float>(p, p + v.elements());
  };
  return relative_error(values(a), values(b));
}

// Every logit, gradient and updated weight in FP32: 2e-4, as the goldens.
TEST_F(GpuVerbs, ProbeAgreesInFp32) {
  std::vector<int64_t> ids, labels;
  for (int64_t i = 0; i < 96; ++i)
    ids.push_back((i * 37 + 11) % 256), labels.push_back(i % 24 == 23 ? -100 : (i * 53) % 256);
  const std::vector<int64_t> lengths = {24, 24, 7, 17, 24};
  const auto entry = [](const char* name, std::vector<int64_t> shape, const std::vector<int64_t>& values) {
    return safetensors::Entry{name, "I64", std::move(shape), std::as_bytes(std::span(values))};
  };
  safetensors::write(folder / "in", {entry("input_ids", {4, 24}, ids), entry("labels", {4, 24}, labels),
                                     entry("document_lengths", {5}, lengths)});
  for (const char* arch : {"gpt2", "llama", "qwen2", "qwen3"}) {
    for (const char* device : {"cpu", "cuda"}) {
      const VerbResult r =
          run_verb({"probe", kGolden + arch, "--input", folder / "in", "--output", folder / device,
                    std::string("--device=") + device, "--adamw-steps=2", "--lr=1e-3", "--deterministic"});
      ASSERT_EQ(r.code, 0) << r.err;
    }
    const auto cpu = safetensors::Reader::open(folder / "cpu"), gpu = safetensors::Reader::open(folder / "cuda");
    ASSERT_EQ(cpu.tensors().size(), gpu.tensors().size());
    for (const auto& [name, view] : gpu.tensors()) EXPECT_LT(distance(view, cpu.at(name)), 2e-4) << arch << " " << name;
  }
}

TEST_F(GpuVerbs, DoctorAndPlanKnowTheGpu) {
  const VerbResult doctor = run_verb({"doctor"});
  ASSERT_EQ(doctor.code, 0) << doctor.err;
  for (const std::string& part : {"gpu 0      " + info().name, std::string("TFLOP/s BF16"), std::string("driver ")})
    EXPECT_NE(doctor.out.find(part), std::string::npos) << part << "\n" << doctor.out;
  const VerbResult plan = run("plan", {"--device.name=cuda"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("device    " + info().name), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("context and libraries"), std::string::npos) << plan.out;
}

}  // namespace
}  // namespace mantissa
