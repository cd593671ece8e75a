// cuBLASLt against the CPU's products, and what is kept of its algorithms.
#include "ops/gemm.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/file.h"
#include "numerics/bf16.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

struct Case {
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  DType in = DType::kBF16, out = DType::kBF16;
  std::optional<DType> bias;
  float beta = 0;

  std::string str() const {
    return fmt::format("{}x{}x{} {}{} {} to {} bias {} beta {}", m, n, k, a_transposed ? "aT " : "",
                       b_transposed ? "bT " : "", name_of(in), name_of(out), bias ? name_of(*bias) : "none", beta);
  }
  ConstTensor side_a(const void* p) const { return {p, in, a_transposed ? Shape{k, m} : Shape{m, k}}; }
  ConstTensor side_b(const void* p) const { return {p, in, b_transposed ? Shape{k, n} : Shape{n, k}}; }
};

// Inputs and the CPU's result, as bytes.
struct Expected {
  Case what;
  std::vector<std::byte> a, b, bias, c_old;
  std::vector<float> c;

  explicit Expected(const Case& w) : what(w) {
    a = packed(random_values(w.m * w.k, 1), w.in), b = packed(random_values(w.n * w.k, 2), w.in);
    const float scale = std::sqrt(static_cast<float>(w.k));  // of the sums
    c_old = packed(random_values(w.m * w.n, 3, scale), w.out);
    if (w.bias) bias = packed(random_values(w.n, 4, scale, *w.bias == DType::kBF16), *w.bias);
    Exec cpu;
    std::vector<std::byte> result = c_old;
    mantissa::gemm(cpu, {.a = GemmSide::plain(w.side_a(a.data()), w.a_transposed),
                         .b = GemmSide::plain(w.side_b(b.data()), w.b_transposed),
                         .c = {result.data(), w.out, {w.m, w.n}},
                         .bias = bias_at(bias.data()),
                         .beta = w.beta});
    c = floats(result, w.out);
  }
  ConstTensor bias_at(const void* p) const { return what.bias ? ConstTensor(p, *what.bias, {what.n}) : ConstTensor(); }

  static std::vector<float> floats(const std::vector<std::byte>& bytes, DType dtype) {
    std::vector<float> out(bytes.size() / static_cast<size_t>(bytes_of(dtype, 1)));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = dtype == DType::kF32 ? reinterpret_cast<const float*>(bytes.data())[i]
                                    : to_float(reinterpret_cast<const bf16*>(bytes.data())[i]);
    return out;
  }
  // FP32 sums of K terms in two orders; BF16 rounds by 2^-9 at most, an F32 bias of a BF16 c once more.
  double bound() const { return what.out == DType::kF32 ? 1e-5 : 4e-3; }
};

// The inputs of a case on a device.
class Operands {
 public:
  Operands(Device& device, const Expected& x)
      : x_(x),
        a_(device, x.what.side_a(x.a.data())),
        b_(device, x.what.side_b(x.b.data())),
        c_(device, x.what.out, {x.what.m, x.what.n}) {
    if (x.what.bias) bias_ = std::make_unique<OnDevice>(device, x.bias_at(x.bias.data()));
  }
  GemmDesc desc() const {
    return {.a = GemmSide::plain(a_, x_.what.a_transposed),
            .b = GemmSide::plain(b_, x_.what.b_transposed),
            .c = c_,
            .bias = bias_ ? ConstTensor(*bias_) : ConstTensor(),
            .beta = x_.what.beta};
  }
  void reset() { c_.upload({x_.c_old.data(), x_.what.out, {x_.what.m, x_.what.n}}); }
  std::vector<std::byte> run(Exec& exec) {
    if (x_.what.beta != 0) reset();  // else the poison stays until the product overwrites it
    gemm(exec, desc());
    return c_.bytes();
  }
  std::vector<std::byte> bytes() const { return c_.bytes(); }
  double error() const { return relative_error(c_.floats(), x_.c); }

 private:
  const Expected& x_;
  OnDevice a_, b_, c_;
  std::unique_ptr<OnDevice> bias_;
};

void expect_right(Device& device, Exec& exec, const Case& what) {
  const Expected expected(what);
  Operands on(device, expected);
  on.run(exec);
  EXPECT_LT(on.error(), expected.bound()) << what.str();
}

using GpuGemm = GpuTest;
using GpuGemmDeterministic = DeterministicGpuTest;

TEST_F(GpuGemm, EveryLayoutDtypeBiasAndBeta) {
  for (const DType in : {DType::kBF16, DType::kF32})
    for (const DType out : {DType::kBF16, DType::kF32})
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
          for (const float beta : {0.0f, 1.0f})
            for (const std::optional<DType> bias :
                 {std::optional<DType>(), std::optional(DType::kF32), std::optional(out)})
              expect_right(device(), exec(), {192, 320, 256, a_transposed, b_transposed, in, out, bias, beta});
}

TEST_F(GpuGemm, OddAndThinSizes) {
  constexpr int64_t kSizes[][3] = {{1, 1, 1},       {1, 2048, 1024}, {1, 50257, 96}, {3, 5, 7},
                                   {333, 1001, 77}, {64, 50257, 64}, {7, 8, 9},      {129, 127, 4096}};
  for (const auto& [m, n, k] : kSizes)
    for (const DType in : {DType::kBF16, DType::kF32})
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
          expect_right(device(), exec(), {m, n, k, a_transposed, b_transposed, in, in, in, a_transposed ? 1.0f : 0.0f});
}

TEST_F(GpuGemm, LongContractions) {
  for (const DType out : {DType::kBF16, DType::kF32})
    for (const bool transposed : {false, true})
      expect_right(device(), exec(), {96, 160, 50257, transposed, transposed, DType::kBF16, out, {}, 1});
  expect_right(device(), exec(), {96, 160, 65536, true, true, DType::kF32, DType::kF32, {}, 1});
}

// c in BF16 of F32 sides goes through scratch in several parts, the last one ragged.
TEST_F(GpuGemm, RoundsF32ProductsInParts) {
  for (const bool transposed : {false, true})
    expect_right(device(), exec(),
                 {1201, 16400, 40, transposed, transposed, DType::kF32, DType::kBF16, DType::kF32, 1});
}

// Rows of an odd width begin at addresses that are aligned to two bytes.
TEST_F(GpuGemm, UnalignedAddresses) {
  const int64_t m = 100, n = 333, k = 77;
  const std::vector<std::byte> a = packed(random_values((m + 1) * k, 1), DType::kBF16);
  const std::vector<std::byte> b = packed(random_values((n + 1) * k, 2), DType::kBF16);
  const std::vector<std::byte> bias = packed(random_values(n + 1, 3), DType::kBF16);
  const ConstTensor ta(a.data(), DType::kBF16, {m + 1, k}), tb(b.data(), DType::kBF16, {n + 1, k});
  const ConstTensor tbias(bias.data(), DType::kBF16, {n + 1});
  std::vector<float> expected(static_cast<size_t>(m * n));
  Exec cpu;
  gemm(cpu, {.a = GemmSide::plain(ta.slice(1, m)),
             .b = GemmSide::plain(tb.slice(1, n)),
             .c = {expected.data(), DType::kF32, {m, n}},
             .bias = {}});
  const OnDevice da(device(), ta), db(device(), tb), dbias(device(), tbias), c(device(), DType::kBF16, {m + 1, n});
  const GemmDesc desc{.a = GemmSide::plain(da.tensor().slice(1, m)),
                      .b = GemmSide::plain(db.tensor().slice(1, n)),
                      .c = c.tensor().slice(1, m),
                      .bias = dbias.tensor().slice(1, n)};
  gemm(exec(), desc);
  const std::vector<float> all = c.floats(), shift = Expected::floats(bias, DType::kBF16);
  for (int64_t i = 0; i < m * n; ++i) expected[static_cast<size_t>(i)] += shift[static_cast<size_t>(1 + i % n)];
  EXPECT_LT(relative_error({all.begin() + n, all.end()}, expected), 4e-3);
  for (int64_t i = 0; i < n; ++i)
    EXPECT_TRUE(std::isnan(all[static_cast<size_t>(i)])) << "the row before c was written";
}

TEST_F(GpuGemm, CapturedProductsGiveTheSameBits) {
  for (const std::optional<DType> bias : {std::optional<DType>(), std::optional(DType::kF32)}) {
    const Expected expected({256, 384, 512, false, false, DType::kBF16, DType::kBF16, bias, 1});
    Operands on(device(), expected);
    std::unique_ptr<DeviceGraph> graph = device().capture([&] { gemm(exec(), on.desc()); });
    on.reset();
    graph->launch();
    const std::vector<std::byte> captured = on.bytes();
    EXPECT_LT(on.error(), expected.bound());
    EXPECT_EQ(on.run(exec()), captured);
  }
}

TEST_F(GpuGemmDeterministic, TwoRunsAgreeInEveryBit) {
  const Case cases[] = {{512, 768, 1024},
                        {768, 768, 16384, true, true, DType::kBF16, DType::kF32, {}, 1},
                        {768, 768, 16384, true, true, DType::kBF16, DType::kBF16, {}, 1},
                        {64, 96, 65536, false, true, DType::kF32, DType::kF32, {}, 0},
                        {1, 4096, 14336, false, false, DType::kBF16, DType::kBF16, DType::kBF16, 0}};
  for (const Case& what : cases) {
    const Expected expected(what);
    Operands on(device(), expected);
    const std::vector<std::byte> first = on.run(exec());
    EXPECT_LT(on.error(), expected.bound()) << what.str();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(on.run(exec()), first) << what.str();
  }
}

TEST_F(GpuGemm, RefusesWhatItDoesNotTake) {
  const OnDevice a(device(), DType::kBF16, {8, 16}), b(device(), DType::kF32, {8, 16}),
      c(device(), DType::kF32, {8, 8});
  const auto code_of = [](auto&& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.code();
    }
    return Exit::kDone;
  };
  EXPECT_EQ(code_of([&] { gemm(exec(), {.a = GemmSide::plain(a), .b = GemmSide::plain(b), .c = c, .bias = {}}); }),
            Exit::kUnavailable);
  Quantized codes;
  codes.format = {.rule = ScaleRule::kE8M0, .blocking = Blocking::kRow, .block = 32};
  EXPECT_EQ(code_of([&] {
              gemm(exec(), {.a = GemmSide::quantized(codes), .b = GemmSide::quantized(codes), .c = c, .bias = {}});
            }),
            Exit::kUnavailable);
  for (const char* line :
       {"", "nonsense", "fprop bf16 8x8x8 to bf16 -> nothing",
        "fprop bf16 8x8 to bf16 -> algorithm 66 tile 20 stages 35 split 1 reduction 0 swizzle 0 custom "
        "0 inner 0 cluster 3",
        "fprop bf16 8x8x8 to bf16 twice -> algorithm 66 tile 20 stages 35 split 1 reduction 0 swizzle 0 "
        "custom 0 inner 0 cluster 3"})
    EXPECT_EQ(code_of([&] { device().set_gemm_choices({line}); }), Exit::kInput) << line;
}

// A product's words name both sides' dtypes, how codes are scaled and how they are summed.
TEST_F(GpuGemm, KeysTellDtypesScalesAndSums) {
  const std::string algorithm =
      " -> algorithm 66 tile 20 stages 35 split 1 reduction 0 swizzle 0 custom 0 inner 0 cluster 3";
  const auto code_of = [&](const std::string& words) {
    try {
      open_device({})->set_gemm_choices({words + algorithm});
    } catch (const Error& error) {
      return error.code();
    }
    return Exit::kDone;
  };
  for (const char* words :
       {"wgrad bf16 12288x2048x16384 to bf16 accumulate", "fprop e4m3 64x32x128 to bf16 scaled tensor tensor fast bias",
        "fprop e4m3,e5m2 64x32x128 to f32 scaled tensor tensor accumulate",
        "fprop e5m2,e4m3 64x32x128 to bf16 scaled 1x128 128x128", "fprop e4m3 64x32x128 to f32 scaled 1x128 1x128"})
    EXPECT_EQ(code_of(words), Exit::kDone) << words;
  for (const char* words :
       {"fprop e4m3 64x32x128 to bf16", "dgrad e4m3 64x32x128 to bf16 scaled tensor tensor",
        "fprop bf16 64x32x128 to bf16 scaled tensor tensor", "fprop bf16,f32 64x32x128 to bf16",
        "fprop bf16,e4m3 64x32x128 to bf16 scaled tensor tensor", "fprop bf16 64x32x128 to bf16 fast",
        "fprop e4m3,e4m3 64x32x128 to bf16 scaled tensor tensor", "fprop e4m3 64x32x128 to bf16 scaled tensor none",
        "fprop e2m1 64x32x128 to bf16 scaled 1x16 1x16"})
    EXPECT_EQ(code_of(words), Exit::kInput) << words;
}

TEST_F(GpuGemm, SaysWhichAlgorithmAndHowFast) {
  const OnDevice a(device(), DType::kBF16, {256, 512}), b(device(), DType::kBF16, {128, 512});
  const OnDevice c(device(), DType::kF32, {256, 128});
  const GemmChoice choice =
      explain_gemm(exec(), {.a = GemmSide::plain(a), .b = GemmSide::plain(b), .c = c, .bias = {}});
  EXPECT_TRUE(choice.taken.starts_with("cublasLt algorithm ")) << choice.taken;
  EXPECT_TRUE(choice.refused.empty());
  EXPECT_GT(measure_gemm_rate(exec(), DType::kBF16, 4096, 4096, 4096, 0.1), 1e4);
  EXPECT_FALSE(device().info().cublaslt.empty());
}

// A device of its own, with a folder for what searches find.
class GpuGemmSearch : public GpuGemm {
 protected:
  void SetUp() override {
    GpuGemm::SetUp();
    folder_ = std::filesystem::temp_directory_path() / fmt::format("mantissa-gemm-{}", ::getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    GpuGemm::TearDown();
  }
  struct Opened {
    std::unique_ptr<Device> device;
    std::unique_ptr<Exec> exec;
  };
  Opened open(bool search) {
    Opened opened{open_device({.search = search, .cache_folder = folder_.string()}), nullptr};
    opened.exec = std::make_unique<Exec>(*opened.device);
    opened.exec->reserve_scratch(int64_t{66} << 20);
    return opened;
  }
  // The only file in the folder.
  std::string file() const {
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      EXPECT_TRUE(found.empty()) << entry.path();
      found = entry.path().string();
    }
    return found;
  }

  std::filesystem::path folder_;
};

constexpr Case kSearched{640, 1024, 2048, true, true, DType::kBF16, DType::kBF16, {}, 1};

TEST_F(GpuGemmSearch, FindsKeepsAndReadsBack) {
  const Expected small(kSearched);
  // c fits the scratch beside the workspace, then not.
  const Expected large({1024, 2048, 640, true, true, DType::kBF16, DType::kF32, {}, 1});
  std::vector<std::string> found;
  {
    Opened searching = open(true);
    for (const Expected* expected : {&small, &large}) {
      Operands on(*searching.device, *expected);
      on.run(*searching.exec);
      EXPECT_LT(on.error(), expected->bound()) << "the search disturbed c of " << expected->what.str();
    }
    found = searching.device->gemm_choices();
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[1].starts_with("wgrad bf16 640x1024x2048 to bf16 accumulate -> algorithm ")) << found[1];
  const std::string text = read_text(file());
  for (const std::string& line : found)
    EXPECT_NE(text.find("\"" + line.substr(0, line.find(" -> ")) + "\""), std::string::npos) << text;

  // Another process reads them and does not search.
  testing::internal::CaptureStderr();
  Opened reading = open(true);
  for (const Expected* expected : {&small, &large}) {
    Operands on(*reading.device, *expected);
    on.run(*reading.exec);
    EXPECT_LT(on.error(), expected->bound());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(reading.device->gemm_choices(), found);
}

// The second has so few tiles of so long sums that splits along K are proposed.
TEST_F(GpuGemmSearch, WhatItFindsRepeatsEveryBit) {
  for (const Case& what : {kSearched, {256, 512, 16384, true, true, DType::kBF16, DType::kBF16, {}, 1}}) {
    const Expected expected(what);
    Opened opened = open(true);
    Operands on(*opened.device, expected);
    const std::vector<std::byte> first = on.run(*opened.exec);
    EXPECT_LT(on.error(), expected.bound()) << what.str();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(on.run(*opened.exec), first) << opened.device->gemm_choices()[0];
  }
}

TEST_F(GpuGemmSearch, GarbageIsSaidAndWrittenAnew) {
  const Expected expected(kSearched);
  {
    Opened first = open(true);
    Operands(*first.device, expected).run(*first.exec);
  }
  const std::string path = file();
  std::string refused = read_text(path);
  const size_t at = refused.find("algorithm ");
  ASSERT_NE(at, std::string::npos);
  refused.replace(at, 12, "algorithm 9999");
  for (const std::string& text : {std::string("garbage"), std::string("{\"choices\": 3}"), refused}) {
    std::ofstream(path) << text;
    testing::internal::CaptureStderr();
    {
      Opened again = open(true);
      Operands on(*again.device, expected);
      on.run(*again.exec);
      EXPECT_LT(on.error(), expected.bound());
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(path), std::string::npos) << said;
    EXPECT_NE(said.find("timing"), std::string::npos) << said;
    EXPECT_NE(read_text(path).find("wgrad bf16 640x1024x2048 to bf16 accumulate"), std::string::npos);
    EXPECT_EQ(read_text(path).find("9999"), std::string::npos);
  }
}

TEST_F(GpuGemmSearch, KeepsWhatAnotherProcessFound) {
  const Expected mine(kSearched), theirs({640, 1024, 2048});
  Opened first = open(true), second = open(true);
  Operands(*first.device, mine).run(*first.exec);
  Operands(*second.device, theirs).run(*second.exec);
  const std::string text = read_text(file());
  EXPECT_NE(text.find("\"wgrad bf16 640x1024x2048 to bf16 accumulate\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"fprop bf16 640x1024x2048 to bf16\""), std::string::npos) << text;
}

TEST_F(GpuGemmSearch, WaitsForATrainingPassOutsideOfACapture) {
  const Expected expected(kSearched);
  Opened opened = open(true);
  Operands on(*opened.device, expected);
  std::unique_ptr<DeviceGraph> graph = opened.device->capture([&] { gemm(*opened.exec, on.desc()); });
  on.reset();
  graph->launch();
  EXPECT_LT(on.error(), expected.bound());
  opened.exec->pass = Pass::kEvaluate;
  on.run(*opened.exec);
  EXPECT_FALSE(exists(folder_.string()));
  opened.exec->pass = Pass::kForward;
  on.run(*opened.exec);
  EXPECT_LT(on.error(), expected.bound());
  EXPECT_TRUE(exists(file()));
}

TEST_F(GpuGemmSearch, ARecordFixesTheAlgorithm) {
  const Expected expected(kSearched);
  std::string line;
  {
    Opened opened = open(false);
    Operands(*opened.device, expected).run(*opened.exec);
    ASSERT_EQ(opened.device->gemm_choices().size(), 1u);
    line = opened.device->gemm_choices()[0];
  }
  // Another split along K than the library's first choice.
  const size_t at = line.find(" split ");
  ASSERT_NE(at, std::string::npos);
  const std::string other = line.substr(0, at) + " split 2 reduction 2" + line.substr(line.find(" swizzle "));
  ASSERT_NE(other, line);
  Opened opened = open(true);
  Operands on(*opened.device, expected);
  on.run(*opened.exec);
  opened.device->set_gemm_choices({other});
  const std::vector<std::byte> split = on.run(*opened.exec);
  EXPECT_LT(on.error(), expected.bound());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(on.run(*opened.exec), split);
  EXPECT_EQ(opened.device->gemm_choices(), std::vector<std::string>{other});
}

}  // namespace
}  // namespace mantissa
