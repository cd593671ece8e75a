// mantissa quantize against the bytes that TransformerEngine 2.20.2 wrote on an H200 (nvfp4: its Python reference), and
// its answers to bad input.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "app/verbs.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "numerics/bf16.h"
#include "ops/quantize.h"
#include "tensor/arena.h"

namespace mantissa {
namespace {

using safetensors::Reader;
using safetensors::View;

std::vector<uint8_t> bytes(const View& view) {
  std::vector<uint8_t> copy(view.bytes.size());
  std::memcpy(copy.data(), view.bytes.data(), copy.size());
  return copy;
}

// Rows x cols of `width` bytes each, from a matrix whose rows hold `stride` of them.
std::vector<uint8_t> unpad(const std::vector<uint8_t>& from, size_t rows, size_t cols, size_t stride, size_t width) {
  std::vector<uint8_t> to;
  for (size_t r = 0; r < rows; ++r)
    to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(r * stride * width),
              from.begin() + static_cast<std::ptrdiff_t>((r * stride + cols) * width));
  return to;
}

std::vector<uint8_t> transpose(const std::vector<uint8_t>& from, size_t rows, size_t cols, size_t width) {
  std::vector<uint8_t> to(from.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) std::memcpy(&to[(c * rows + r) * width], &from[(r * cols + c) * width], width);
  return to;
}

class QuantizeVerb : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() / fmt::format("mantissa-quantize-{}", getpid());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string& name) const { return (folder / name).string(); }

  // Runs the verb; returns the exit code and keeps what it said.
  int run(std::vector<std::string> args) {
    args.insert(args.begin(), "quantize");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_command_line(args);
    out = testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
    return code;
  }
  int run_on(const std::string& input, const std::string& recipe, const std::string& role,
             const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"--recipe", recipe, "--role", role, "--input", input, "--output", path("q")};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }

  // A file with one tensor "t" of a pattern with both signs.
  std::string write_pattern(int64_t m, int64_t k, bool is_bf16, const std::string& dtype = "") {
    std::vector<float> values(static_cast<size_t>(m * k));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 7) % 1000 - 500) / 37;
    std::vector<bf16> rounded;
    for (const float v : values) rounded.push_back(to_bf16(v));
    const auto data = is_bf16 ? std::as_bytes(std::span(rounded)) : std::as_bytes(std::span(values));
    const std::string name = dtype.empty() ? (is_bf16 ? "BF16" : "F32") : dtype;
    safetensors::write(path("in"), {{"t", name, {m, k}, data}});
    return path("in");
  }

  std::filesystem::path folder;
  std::string out, err;
};

const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/te/quantizers.safetensors";

// Flags that make the verb write what "recipe.format.variant" of the golden file names; empty where no flags do.
struct Command {
  std::string recipe, role;
  std::vector<std::string> flags;
};
Command command_for(const std::string& kind) {
  const auto is = [&](const char* prefix) { return kind.starts_with(prefix); };
  const std::string last = kind.substr(kind.rfind('.') + 1);
  const bool e5m2 = kind.find("e5m2") != std::string::npos;
  if (is("delayed.")) return {"fp8-delayed", e5m2 ? "grad" : "input", {"--scale", kind.substr(sizeof("delayed.e4m3"))}};
  if (is("current.")) return {"fp8-tensorwise", e5m2 ? "grad" : "input", {"--scales", last}};
  if (is("block1d."))
    return {"fp8-blockwise", e5m2 ? "grad" : "input", {"--scales=" + last, e5m2 ? "--format=hybrid" : "--format=e4m3"}};
  if (is("block2d.e4m3")) return {"fp8-blockwise", "weight", {"--scales", last}};
  if (kind == "nvfp4.1d") return {"nvfp4", "input", {"--disable_rht"}};
  if (kind == "nvfp4.1d_rht") return {"nvfp4", "input", {}};
  if (kind == "nvfp4.2d") return {"nvfp4", "weight", {}};
  return {};
}

class Golden : public QuantizeVerb {
 protected:
  Reader golden = Reader::open(kGolden);

  // Names of the outputs: tensor "normal", part "rowwise_scale".
  using Output = std::function<std::vector<uint8_t>(const std::string& part)>;

  // Compares golden.<kind>.<tensor>.* with `output`; returns the golden tensors compared.
  int compare(const std::string& kind, const std::string& tensor, const Output& output) {
    int compared = 0;
    const View& source = golden.at("in." + tensor);
    const size_t m = static_cast<size_t>(source.shape[0]), k = static_cast<size_t>(source.shape[1]);
    const size_t mb = (m + 127) / 128, kb = (k + 127) / 128;
    const std::string at = kind + "." + tensor + ".";
    const auto expect = [&](const char* suffix, const char* part, auto&& undo) {
      const View* view = golden.find(at + suffix);
      if (!view) return;
      const std::vector<uint8_t> expected = undo(bytes(*view), *view), found = output(part);
      ASSERT_EQ(found.size(), expected.size()) << at << suffix;
      size_t different = 0;
      for (size_t i = 0; i < found.size(); ++i) different += found[i] != expected[i];
      EXPECT_EQ(different, 0u) << at << suffix << " of " << expected.size();
      ++compared;
    };
    const auto same = [](std::vector<uint8_t> b, const View&) { return b; };
    expect("row", "rowwise", same);
    expect("col", "columnwise", same);
    expect("amax", "amax", same);
    expect("amax_row", "amax", same);
    expect("amax_col", kind == "nvfp4.1d_rht" ? "columnwise_amax" : "amax", same);
    expect("scale_inv", "rowwise_scale", same);
    expect("scale_inv", "columnwise_scale", same);
    if (golden.find(at + "scale_inv")) --compared;
    const bool tiles = kind.starts_with("block2d");
    const auto fp32_scales = [&](size_t outer, size_t outer_blocks, size_t inner_blocks) {
      return [=](const std::vector<uint8_t>& b, const View& view) {
        const size_t stride = static_cast<size_t>(view.shape[1]);
        return tiles ? unpad(b, outer_blocks, inner_blocks, stride, 4)
                     : transpose(unpad(b, inner_blocks, outer, stride, 4), inner_blocks, outer, 4);
      };
    };
    expect("row_scale_inv", "rowwise_scale", fp32_scales(m, mb, kb));
    expect("col_scale_inv", "columnwise_scale", fp32_scales(k, kb, mb));
    const auto fp4_scales = [&](const std::vector<uint8_t>& b, const View& view) {
      if (kind != "nvfp4.2d") return b;
      // Rows are replicated sixteen times.
      const size_t stride = static_cast<size_t>(view.shape[1]);
      std::vector<uint8_t> once;
      for (size_t i = 0; i < b.size(); ++i) {
        const size_t row = i / stride;
        EXPECT_EQ(b[i], b[(row / 16 * 16) * stride + i % stride]);
        if (row % 16 == 0) once.push_back(b[i]);
      }
      return once;
    };
    expect("row_scale", "rowwise_scale", fp4_scales);
    expect("col_scale", "columnwise_scale", fp4_scales);
    return compared;
  }
};

TEST_F(Golden, EveryByteIsTransformerEngines) {
  std::set<std::string> kinds;
  std::vector<safetensors::Entry> inputs;
  int expected = 0, compared = 0;
  for (const auto& [name, view] : golden.tensors()) {
    if (name.starts_with("in.")) {
      inputs.push_back({name.substr(3), view.dtype, view.shape, view.bytes});
      continue;
    }
    ++expected;
    const std::string of_tensor = name.substr(0, name.rfind('.'));
    kinds.insert(of_tensor.substr(0, of_tensor.rfind('.')));
  }
  const std::vector<safetensors::Entry> sources = inputs;
  safetensors::write(path("in"), inputs);
  for (const std::string& kind : kinds) {
    const Command command = command_for(kind);
    if (command.recipe.empty()) {
      // No recipe quantizes weights to E5M2: the quantizer alone.
      ASSERT_TRUE(kind.starts_with("block2d.e5m2")) << kind;
      const QuantFormat format{.element = DType::kE5M2,
                               .rule = kind.ends_with("pow2") ? ScaleRule::kCurrentPow2 : ScaleRule::kCurrent,
                               .blocking = Blocking::kTile,
                               .block = 128};
      for (const safetensors::Entry& source : sources) {
        Arena arena;
        Operand x;
        Tensor high;
        arena.build([&](Arena& a) {
          x = a.operand("x", {.rowwise = format, .columnwise = format}, source.shape[0], source.shape[1]);
          high = a.tensor("high", DType::kBF16, {source.shape[0], source.shape[1]});
        });
        std::memcpy(high.data, source.bytes.data(), source.bytes.size());
        x.high = high;
        Exec exec;
        quantize(exec, x);
        compared += compare(kind, source.name, [&](const std::string& part) {
          const Quantized& q = part.starts_with("row") ? x.rowwise : x.columnwise;
          const Tensor& t = part.ends_with("_scale") ? q.scale_inv : q.data;
          const auto* begin = static_cast<const uint8_t*>(t.data);
          return std::vector<uint8_t>(begin, begin + t.bytes());
        });
      }
      continue;
    }
    ASSERT_EQ(run_on(path("in"), command.recipe, command.role, command.flags), 0) << kind << ": " << err;
    const Reader q = Reader::open(path("q"));
    for (const safetensors::Entry& source : sources)
      compared +=
          compare(kind, source.name, [&](const std::string& part) { return bytes(q.at(source.name + "." + part)); });
  }
  EXPECT_EQ(compared, expected);
  EXPECT_GT(expected, 150);
}

TEST_F(QuantizeVerb, RaggedShapesPassWhereTheQuantizerTakesThem) {
  const std::string input = write_pattern(144, 176, true);
  ASSERT_EQ(run_on(input, "fp8-blockwise", "input"), 0) << err;
  const Reader q = Reader::open(path("q"));
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(q.at("t.rowwise").shape, (Shape{144, 176}));
  EXPECT_EQ(q.at("t.rowwise").dtype, "U8");
  EXPECT_EQ(q.at("t.columnwise").shape, (Shape{176, 144}));
  EXPECT_EQ(q.at("t.rowwise_scale").shape, (Shape{144, 2}));
  EXPECT_EQ(q.at("t.rowwise_scale").dtype, "F32");
  EXPECT_EQ(q.at("t.columnwise_scale").shape, (Shape{176, 2}));
  EXPECT_EQ(q.at("t.amax").shape, (Shape{1}));
  EXPECT_EQ(q.find("t.columnwise_amax"), nullptr);
  ASSERT_EQ(run_on(input, "fp8-blockwise", "weight"), 0) << err;
  EXPECT_EQ(Reader::open(path("q")).at("t.rowwise_scale").shape, (Shape{2, 2}));
  ASSERT_EQ(run_on(input, "fp8-tensorwise", "weight"), 0) << err;
  EXPECT_EQ(Reader::open(path("q")).at("t.columnwise_scale").shape, (Shape{1}));
  ASSERT_EQ(run_on(input, "nvfp4", "grad"), 0) << err;
  const Reader fp4 = Reader::open(path("q"));
  EXPECT_EQ(fp4.at("t.rowwise").shape, (Shape{144, 88}));
  EXPECT_EQ(fp4.at("t.columnwise").shape, (Shape{176, 72}));
  EXPECT_EQ(fp4.at("t.rowwise_scale").shape, (Shape{144, 11}));
  EXPECT_EQ(fp4.at("t.rowwise_scale").dtype, "U8");
  EXPECT_EQ(fp4.at("t.columnwise_scale").shape, (Shape{176, 9}));
  EXPECT_EQ(fp4.at("t.columnwise_amax").shape, (Shape{1}));
  EXPECT_EQ(run_on(input, "mxfp8", "input"), 2);
  EXPECT_EQ(err, "mantissa: mxfp8: t is [144, 176], expected multiples of 32\n");
}

TEST_F(QuantizeVerb, PrintsTheErrorOfEachCopy) {
  ASSERT_EQ(run_on(write_pattern(64, 96, false), "mxfp8", "input"), 0) << err;
  EXPECT_NE(out.find("SNR dB"), std::string::npos) << out;
  EXPECT_NE(out.find("rowwise"), std::string::npos) << out;
  EXPECT_NE(out.find("columnwise"), std::string::npos) << out;
  EXPECT_NE(out.find("64 x 96"), std::string::npos) << out;
}

TEST_F(QuantizeVerb, StochasticRoundingFollowsTheSeed) {
  const std::string input = write_pattern(32, 64, true);
  const auto codes = [&](const std::vector<std::string>& flags, const char* role = "grad") {
    EXPECT_EQ(run_on(input, "nvfp4", role, flags), 0) << err;
    return bytes(Reader::open(path("q")).at("t.rowwise"));
  };
  const auto drawn = codes({});
  EXPECT_EQ(drawn, codes({"--seed=0"}));
  EXPECT_NE(drawn, codes({"--seed=1"}));
  EXPECT_EQ(drawn, codes({"--rounding", "stochastic"}, "input"));
  const auto nearest = codes({"--rounding=nearest"});
  EXPECT_NE(drawn, nearest);
  EXPECT_EQ(nearest, codes({"--disable-stochastic-rounding"}));
  EXPECT_EQ(nearest, codes({}, "input"));
}

TEST_F(QuantizeVerb, BadInputGetsOneLineAndACode) {
  const std::string input = write_pattern(32, 64, false);
  const auto refuses = [&](int code, const std::string& part, int found) {
    EXPECT_EQ(found, code) << err;
    EXPECT_NE(err.find(part), std::string::npos) << err;
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  };
  refuses(2, "the Hadamard transform takes BF16", run_on(input, "nvfp4", "input"));
  EXPECT_EQ(run_on(input, "nvfp4", "input", {"--disable_rht"}), 0) << err;
  refuses(2, "recipe bf16 quantizes nothing", run_on(input, "bf16", "input"));
  refuses(2, "recipe fp32 quantizes nothing", run_on(input, "fp32", "input"));
  refuses(2, "did you mean mxfp8?", run_on(input, "mxfp", "input"));
  refuses(2, "expected input, weight or grad", run_on(input, "mxfp8", "output"));
  refuses(2, "--rounding stochastic is for FP4", run_on(input, "mxfp8", "grad", {"--rounding", "stochastic"}));
  refuses(2, "--scale is for fp8-delayed", run_on(input, "mxfp8", "grad", {"--scale", "2"}));
  for (const char* scale : {"0", "-1", "inf", "nan", "2x", "1e60"})
    refuses(2, "expected a positive finite number", run_on(input, "fp8-delayed", "input", {"--scale", scale}));
  refuses(2, "disable_rht: true is set, but mxfp8 does not read it", run_on(input, "mxfp8", "grad", {"--disable_rht"}));
  refuses(2, "one cast takes its scale by --scale", run_on(input, "fp8-delayed", "grad", {"--margin", "1"}));
  refuses(2, "did you mean --rounding?", run_on(input, "mxfp8", "grad", {"--roundin", "nearest"}));
  refuses(2, "did you mean --recipe?", run({"--recip", "mxfp8", "--role", "grad"}));
  refuses(2, "--recipe is required", run({"--role", "grad"}));
  refuses(8, "--device: cuda:63", run_on(input, "mxfp8", "grad", {"--device", "cuda:63"}));
  refuses(2, "--device: gpu: expected auto", run_on(input, "mxfp8", "grad", {"--device", "gpu"}));
  refuses(3, "absent", run_on(path("absent"), "mxfp8", "grad"));
  refuses(3, "t is I32", run_on(write_pattern(32, 64, false, "I32"), "mxfp8", "grad"));
  safetensors::write(path("vector"), {{"t", "F32", {4}, std::as_bytes(std::span("0123456789abcde"))}});
  refuses(3, "expected a non-empty BF16 or F32 tensor of two dimensions", run_on(path("vector"), "mxfp8", "grad"));
  refuses(4, "q",
          run({"--recipe", "mxfp8", "--role", "grad", "--input", write_pattern(32, 64, false), "--output",
               path("no/such/folder/q")}));
}

TEST(CommandLine, UnknownVerbsAndFlags) {
  const auto run = [](const std::vector<std::string>& args, std::string& err) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_command_line(args);
    testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
    return code;
  };
  std::string err;
  EXPECT_EQ(run({"quantise"}, err), 2);
  EXPECT_EQ(err, "mantissa: quantise: unknown verb; did you mean quantize?\n");
  EXPECT_EQ(run({"--versio"}, err), 2);
  EXPECT_EQ(err, "mantissa: --versio: unknown flag; did you mean --version?\n");
  EXPECT_EQ(run({"--version"}, err), 0);
  EXPECT_EQ(run({"--help"}, err), 0);
  EXPECT_EQ(run({"quantize", "--help"}, err), 0);
  EXPECT_EQ(err, "");
  EXPECT_EQ(run({}, err), 2);
}

}  // namespace
}  // namespace mantissa
