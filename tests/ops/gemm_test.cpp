// Every candidate that the machine has against double arithmetic; errors are in units of their bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/parallel.h"
#include "ops/cpu_gemm/cpu_features.h"
#include "tests/ops/gemm_case.h"

namespace mantissa {
namespace {

using test::Product;
using test::Side;

void expect_right(Exec& exec, const Product& p, const std::string& what) {
  const test::Exact exact = test::exact_sums(p);
  for (const GemmCandidate* candidate : test::candidates_for(exec, p)) {
    const double error = test::worst_error(p, exact, test::run_product(exec, *candidate, p));
    EXPECT_LT(error, 1) << candidate->name << ", " << what << ", m n k " << p.m << " " << p.n << " " << p.k << ", c "
                        << name_of(p.c_dtype) << ", bias " << p.bias << ", beta " << p.beta;
  }
}

TEST(Gemm, NamesTheCandidatesOfThisMachine) {
  Exec exec;
  std::string have;
  for (const GemmCandidate& candidate : gemm_candidates())
    if (!*candidate.missing(exec)) have += std::string(candidate.name) + " ";
  EXPECT_TRUE(have.ends_with("base "));
  std::printf("candidates: %s(amx: %s)\n", have.c_str(), cpu_features().amx_bf16 ? "yes" : cpu_features().amx_absence);
}

TEST(Gemm, PlainSidesOfEveryLayoutAndRaggedSize) {
  Exec exec;
  std::mt19937 random(1);
  const int64_t sizes[] = {1, 3, 17, 33, 100};
  int turn = 0;
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (bool a_transposed : {false, true})
      for (bool b_transposed : {false, true})
        for (int64_t m : sizes)
          for (int64_t n : sizes)
            for (int64_t k : {int64_t{1}, int64_t{33}, int64_t{100}}) {
              const Side a = test::plain_side(random, dtype, m, k, a_transposed);
              const Side b = test::plain_side(random, dtype, n, k, b_transposed);
              ++turn;  // dtype of c, bias and beta in all combinations over the sizes
              expect_right(
                  exec, {a, b, m, n, k, turn & 1 ? DType::kBF16 : DType::kF32, (turn & 2) != 0, turn & 4 ? 1.0f : 0.0f},
                  std::string(name_of(dtype)) + (a_transposed ? " aT" : " a") + (b_transposed ? " bT" : " b"));
            }
}

TEST(Gemm, EveryEpilogue) {
  Exec exec;
  std::mt19937 random(2);
  const int64_t m = 70, n = 256, k = 300;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Side a = test::plain_side(random, dtype, m, k, false), b = test::plain_side(random, dtype, n, k, false);
    for (DType c : {DType::kF32, DType::kBF16})
      for (bool bias : {false, true})
        for (float beta : {0.0f, 1.0f}) expect_right(exec, {a, b, m, n, k, c, bias, beta}, name_of(dtype));
  }
}

TEST(Gemm, MixedPlainSidesMultiplyInF32) {
  Exec exec;
  std::mt19937 random(3);
  const Side a = test::plain_side(random, DType::kF32, 40, 64, false),
             b = test::plain_side(random, DType::kBF16, 50, 64, true);
  expect_right(exec, {a, b, 40, 50, 64}, "f32 x bf16");
}

TEST(Gemm, LongContractionsAreCutAndStillRight) {
  Exec exec;
  std::mt19937 random(4);
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (int64_t k : {2000, 40000}) {
      const Side a = test::plain_side(random, dtype, 50, k, true), b = test::plain_side(random, dtype, 70, k, true);
      expect_right(exec, {a, b, 50, 70, k, DType::kF32, true, 1}, name_of(dtype));
    }
}

// The gradient of a vocabulary's logits: -1 at the label, probabilities that are less than half its last bit everywhere
// else, 1e-3 in all. With weights that share a direction a single FP32 sum loses that 1e-3 whole. Sums of 256 terms
// added in order round 192 times at most, by 2^-24 each.
TEST(Gemm, SmallTermsBehindALargeOneAreNotLost) {
  Exec exec;
  std::mt19937 random(6);
  const int64_t n = 16, k = 49152;
  for (const int64_t m : {3, 20}) {
    Side a = test::plain_side(random, DType::kF32, m, k, false), b = test::plain_side(random, DType::kF32, n, k, true);
    for (int64_t i = 0; i < m * k; ++i) {
      const float x =
          i % k == 7 ? -1.0f : 2e-8f * std::min(std::fabs(static_cast<float>(a.values[static_cast<size_t>(i)])), 1.4f);
      reinterpret_cast<float*>(a.data.data())[i] = x;
      a.values[static_cast<size_t>(i)] = x;
    }
    for (int64_t o = 0; o < n; ++o)
      for (int64_t i = 0; i < k; ++i) {
        const float x = 1 + 0.05f * static_cast<float>(b.values[static_cast<size_t>(o * k + i)]);
        reinterpret_cast<float*>(b.data.data())[i * n + o] = x;
        b.values[static_cast<size_t>(o * k + i)] = x;
      }
    const Product p{a, b, m, n, k};
    const test::Exact exact = test::exact_sums(p);
    for (const GemmCandidate* candidate : test::candidates_for(exec, p)) {
      if (!candidate->engine) continue;  // a library's sums are its own
      const std::vector<float> c = test::run_product(exec, *candidate, p);
      for (size_t i = 0; i < c.size(); ++i)
        ASSERT_NEAR(c[i], exact.sum[i], 193 * 0x1p-24) << candidate->name << ", m " << m << ", element " << i;
    }
  }
}

TEST(Gemm, WideOutputsAreCutToTheScratch) {
  Exec exec(detect_isa(), int64_t{1} << 20);
  std::mt19937 random(5);
  const int64_t m = 40, n = 3000, k = 520;
  const Side a = test::plain_side(random, DType::kBF16, m, k, false),
             b = test::plain_side(random, DType::kBF16, n, k, false);
  expect_right(exec, {a, b, m, n, k, DType::kBF16}, "bf16");
}

// A product of few rows packs otherwise and gives the bits that its rows have in a larger one.
TEST(Gemm, ThinProductsAreTheRowsOfThickOnes) {
  Exec exec;
  std::mt19937 random(12);
  const int64_t m = 40, n = 131;
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (int64_t k : {31, 700, 5000})
      for (bool transposed : {false, true}) {
        const Side a = test::plain_side(random, dtype, m, k, false),
                   b = test::plain_side(random, dtype, n, k, transposed);
        const auto run = [&](const GemmCandidate& candidate, int64_t first, int64_t rows) {
          std::vector<float> c(static_cast<size_t>(rows * n), NAN);
          candidate.run(exec, candidate.engine,
                        normalise({.a = GemmSide::plain(a.view.data.slice(first, rows)),
                                   .b = b.view,
                                   .c = {c.data(), DType::kF32, {rows, n}},
                                   .bias = {}}));
          return c;
        };
        for (const GemmCandidate* candidate : test::candidates_for(exec, {a, b, m, n, k})) {
          if (!candidate->engine) continue;
          const std::vector<float> whole = run(*candidate, 0, m);
          for (int64_t rows : {1, 2, 8, 9, 16}) {
            const std::vector<float> thin = run(*candidate, 5, rows);
            EXPECT_EQ(std::memcmp(thin.data(), whole.data() + 5 * n, thin.size() * sizeof(float)), 0)
                << candidate->name << " " << name_of(dtype) << " " << rows << " rows, k " << k;
          }
        }
      }
}

struct Format {
  const char* name;
  QuantFormat a, b;
};

const Format kFormats[] = {
    {"fp8 tensor",
     {DType::kE4M3, ScaleRule::kGiven, Blocking::kTensor},
     {DType::kE5M2, ScaleRule::kGiven, Blocking::kTensor}},
    {"fp8 blockwise 1D 2D",
     {DType::kE4M3, ScaleRule::kCurrent, Blocking::kRow, 128},
     {DType::kE4M3, ScaleRule::kCurrent, Blocking::kTile, 128}},
    {"fp8 blockwise 2D 1D",
     {DType::kE4M3, ScaleRule::kCurrent, Blocking::kTile, 128},
     {DType::kE5M2, ScaleRule::kCurrent, Blocking::kRow, 128}},
    {"fp8 blockwise 1D 1D",
     {DType::kE5M2, ScaleRule::kCurrent, Blocking::kRow, 128},
     {DType::kE4M3, ScaleRule::kCurrent, Blocking::kRow, 128}},
    {"fp8 blockwise pow2",
     {DType::kE4M3, ScaleRule::kCurrentPow2, Blocking::kRow, 128},
     {DType::kE4M3, ScaleRule::kCurrentPow2, Blocking::kTile, 128}},
    {"mxfp8",
     {DType::kE4M3, ScaleRule::kE8M0, Blocking::kRow, 32},
     {DType::kE5M2, ScaleRule::kE8M0, Blocking::kRow, 32}},
    {"mxfp8 tiles",
     {DType::kE5M2, ScaleRule::kE8M0, Blocking::kRow, 32},
     {DType::kE4M3, ScaleRule::kE8M0, Blocking::kTile, 32}},
    {"nvfp4",
     {DType::kE2M1, ScaleRule::kNvfp4, Blocking::kRow, 16},
     {DType::kE2M1, ScaleRule::kNvfp4, Blocking::kTile, 16}},
};

TEST(Gemm, QuantizedSidesOfEveryFormat) {
  Exec exec;
  std::mt19937 random(6);
  for (const Format& format : kFormats)
    for (int64_t k : {16, 48, 320, 1040})
      for (auto [m, n] : {std::pair<int64_t, int64_t>{33, 50}, {50, 100}, {3, 70}})
        for (bool transposed : {false, true}) {
          const bool may = format.b.blocking != Blocking::kRow;
          const Side a = test::quantized_side(random, format.a, m, k, false);
          const Side b = test::quantized_side(random, format.b, n, k, transposed && may);
          expect_right(exec, {a, b, m, n, k, k % 32 ? DType::kBF16 : DType::kF32, m == 33, transposed ? 1.0f : 0.0f},
                       std::string(format.name) + (transposed && may ? " bT" : ""));
        }
}

TEST(Gemm, TransposedCodesOnBothSides) {
  Exec exec;
  std::mt19937 random(7);
  const QuantFormat e4m3{DType::kE4M3, ScaleRule::kGiven, Blocking::kTensor},
      e5m2{DType::kE5M2, ScaleRule::kGiven, Blocking::kTensor};
  for (int64_t k : {17, 256}) {
    const Side a = test::quantized_side(random, e5m2, 100, k, true),
               b = test::quantized_side(random, e4m3, 64, k, true);
    expect_right(exec, {a, b, 100, 64, k, DType::kF32, false, 1}, "wgrad");
  }
}

// Every code, exactly: products with 1 on the other side are the decoded values.
TEST(Gemm, EveryCodeIsDecodedExactly) {
  Exec exec;
  std::mt19937 random(8);
  for (const Format& format : kFormats) {
    if (format.a.blocking == Blocking::kTensor) continue;
    const int64_t m = 64, k = 256, n = 256;
    Side a = test::quantized_side(random, format.a, m, k, false);
    QuantFormat one = format.a;
    Side b = test::quantized_side(random, one, n, k, false);
    const bool fp4 = one.element == DType::kE2M1;
    const uint8_t unit = fp4 ? 2 : one.element == DType::kE4M3 ? 0x38 : 0x3c;
    std::fill(b.data.begin(), b.data.end(), uint8_t{0});
    for (int64_t i = 0; i < n; ++i)  // the identity
      b.data[static_cast<size_t>(fp4 ? (i * k + i) / 2 : i * k + i)] =
          static_cast<uint8_t>(fp4 ? unit << (i % 2 * 4) : unit);
    for (int64_t i = 0; i < b.codes->scale_inv.count(); ++i) {
      if (b.codes->scale_inv.dtype == DType::kF32)
        reinterpret_cast<float*>(b.scales.data())[i] = 1;
      else
        b.scales[static_cast<size_t>(i)] = fp4 ? 0x38 : 127;
    }
    *a.amax = 2688.0f, *b.amax = 2688.0f;
    const Product p{a, b, m, n, k};
    for (const GemmCandidate* candidate : test::candidates_for(exec, p)) {
      const std::vector<float> c = test::run_product(exec, *candidate, p);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const double want = a.value(i, j) * (fp4 ? double{2688.0f * 2688.0f * std::bit_cast<float>(0x34149B93u)} : 1);
          ASSERT_EQ(c[static_cast<size_t>(i * n + j)], static_cast<float>(want))
              << candidate->name << " " << format.name;
        }
    }
  }
}

TEST(Gemm, ExtremeExponentsMultiplyInF32) {
  Exec exec;
  std::mt19937 random(9);
  const QuantFormat mx{DType::kE4M3, ScaleRule::kE8M0, Blocking::kRow, 32};
  const int64_t m = 20, n = 33, k = 96;
  const Side low = test::quantized_side(random, mx, m, k, false, -122),
             high = test::quantized_side(random, mx, n, k, false, 60);
  const Product p{low, high, m, n, k};
  std::vector<float> c(m * n);
  const GemmDesc desc{.a = low.view, .b = high.view, .c = {c.data(), DType::kF32, {m, n}}, .bias = {}};
  EXPECT_EQ(normalise(desc).math, GemmMath::kF32);
  expect_right(exec, p, "2^-122 x 2^60");
  // Zero codes under the smallest scale are exact in BF16.
  Side zero = test::quantized_side(random, mx, m, k, false);
  std::fill(zero.data.begin(), zero.data.end(), uint8_t{0x80});
  std::fill(zero.scales.begin(), zero.scales.end(), uint8_t{0});
  EXPECT_EQ(normalise({.a = zero.view, .b = high.view, .c = desc.c, .bias = {}}).math, GemmMath::kBF16);
}

TEST(Gemm, Nvfp4OfZeroAmaxIsZero) {
  Exec exec;
  std::mt19937 random(10);
  const QuantFormat fp4{DType::kE2M1, ScaleRule::kNvfp4, Blocking::kRow, 16};
  const Side a = test::quantized_side(random, fp4, 16, 64, false), b = test::quantized_side(random, fp4, 16, 64, false);
  *a.amax = 0;
  const Product p{a, b, 16, 16, 64};
  for (const GemmCandidate* candidate : test::candidates_for(exec, p))
    for (float x : test::run_product(exec, *candidate, p)) ASSERT_EQ(x, 0.0f) << candidate->name;
}

#ifdef _OPENMP
// Of the project's kernels. oneDNN, which runs where MANTISSA_GEMM asks for it or the CPU has no AVX2, cuts K by
// threads on some processors.
TEST(Gemm, ResultsDoNotDependOnThreads) {
  std::mt19937 random(11);
  const int64_t m = 200, n = 310, k = 700;
  const int before = omp_get_max_threads();
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Side a = test::plain_side(random, dtype, m, k, false), b = test::plain_side(random, dtype, n, k, true);
    const Product p{a, b, m, n, k};
    std::vector<std::vector<float>> first;
    for (int threads : {1, 2, 3, 5}) {
      omp_set_num_threads(threads);
      Exec exec;
      size_t i = 0;
      for (const GemmCandidate* candidate : test::candidates_for(exec, p)) {
        if (!candidate->engine) continue;
        std::vector<float> c = test::run_product(exec, *candidate, p);
        if (threads == 1)
          first.push_back(std::move(c));
        else
          EXPECT_EQ(c, first[i]) << candidate->name << " with " << threads << " threads";
        ++i;
      }
    }
  }
  omp_set_num_threads(before);
}
#endif

TEST(Gemm, ExplainsItsChoiceAndObeysTheVariable) {
  Exec exec;
  std::mt19937 random(12);
  const Side a = test::plain_side(random, DType::kBF16, 8, 32, false),
             b = test::plain_side(random, DType::kBF16, 8, 32, false);
  std::vector<float> c(64);
  const GemmDesc desc{.a = a.view, .b = b.view, .c = {c.data(), DType::kF32, {8, 8}}, .bias = {}};
  setenv("MANTISSA_GEMM", "base", 1);
  const GemmChoice choice = explain_gemm(exec, desc);
  EXPECT_EQ(choice.taken, "base");
  EXPECT_EQ(choice.refused.size(), gemm_candidates().size() - 1);
  EXPECT_STREQ(tile_kernel(exec, GemmMath::kBF16).name, "base");
  setenv("MANTISSA_GEMM", "cublas", 1);
  EXPECT_THROW(gemm(exec, desc), Error);
  for (const GemmCandidate& candidate : gemm_candidates()) {
    if (!*candidate.missing(exec)) continue;
    setenv("MANTISSA_GEMM", candidate.name, 1);
    try {
      gemm(exec, desc);
      ADD_FAILURE() << candidate.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kUnavailable);
    }
  }
  unsetenv("MANTISSA_GEMM");
}

// Shapes and formats are looked at without a byte of the operands: they may be a device's.
TEST(Gemm, DescribesWithoutReadingMemory) {
  std::mt19937 random(14);
  void* const nowhere = reinterpret_cast<void*>(uintptr_t{4096});
  const std::pair<QuantFormat, GemmScale> cases[] = {
      {{DType::kE4M3, ScaleRule::kGiven, Blocking::kTensor, 0}, GemmScale::kTensor},
      {{DType::kE4M3, ScaleRule::kCurrent, Blocking::kRow, 128}, GemmScale::kRow128},
      {{DType::kE4M3, ScaleRule::kCurrent, Blocking::kTile, 128}, GemmScale::kTile128},
      {{DType::kE4M3, ScaleRule::kE8M0, Blocking::kRow, 32}, GemmScale::kRow32},
      {{DType::kE2M1, ScaleRule::kNvfp4, Blocking::kRow, 16}, GemmScale::kRow16}};
  for (const auto& [format, scale] : cases) {
    const Side made = test::quantized_side(random, format, 128, 256, false);
    Quantized q = *made.view.scale;
    q.data.data = q.scale_inv.data = nowhere;
    q.amax = nullptr;
    const GemmSide side = GemmSide::quantized(q);
    EXPECT_EQ(scale_of(side), scale);
    const GemmProblem p = describe({.a = side, .b = side, .c = {nowhere, DType::kBF16, {128, 128}}, .bias = {}});
    EXPECT_EQ(p.m, 128);
    EXPECT_EQ(p.k, 256);
    EXPECT_EQ(p.alpha, 1);
    EXPECT_THROW(describe({.a = side, .b = side, .c = {nowhere, DType::kBF16, {128, 64}}, .bias = {}}), Error);
  }
  const ConstTensor plain(nowhere, DType::kBF16, {128, 256});
  EXPECT_EQ(scale_of(GemmSide::plain(plain)), GemmScale::kNone);
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  Exec exec;
  std::mt19937 random(13);
  const Side a = test::plain_side(random, DType::kBF16, 8, 32, false),
             b = test::plain_side(random, DType::kBF16, 8, 31, false);
  std::vector<float> c(64);
  const Tensor out{c.data(), DType::kF32, {8, 8}};
  EXPECT_THROW(gemm(exec, {.a = a.view, .b = b.view, .c = out, .bias = {}}), Error);
  const Side q = test::quantized_side(random, {DType::kE4M3, ScaleRule::kE8M0, Blocking::kRow, 32}, 8, 32, false);
  EXPECT_THROW(gemm(exec, {.a = a.view, .b = q.view, .c = out, .bias = {}}), Error);
  GemmSide sideways = q.view;
  sideways.transposed = true;
  EXPECT_THROW(gemm(exec, {.a = sideways, .b = sideways, .c = out, .bias = {}}), Error);
}

// The inner loops are not instrumented: what they would read or write beyond a buffer is found before they run.
TEST(TileKernelDeathTest, AddressSanitizerSeesPanels) {
#if defined(__SANITIZE_ADDRESS__)
  Exec exec;
  const TileKernel& kernel = tile_kernel(exec, GemmMath::kF32);
  const auto multiply_tiles = [&](size_t left_tiles, size_t right_tiles, size_t c_rows) {
    const auto floats = [](size_t bytes) {
      auto* data = static_cast<float*>(std::aligned_alloc(64, bytes));
      std::memset(data, 0, bytes);
      return std::unique_ptr<float, void (*)(void*)>(data, std::free);
    };
    const auto left = floats(left_tiles * kTileBytes), right = floats(right_tiles * kTileBytes);
    const auto c = floats(c_rows * kPanelRows * sizeof(float));
    multiply(kernel, {.left = left.get(),
                      .left_stride = 0,
                      .right = right.get(),
                      .right_stride = 0,
                      .c = c.get(),
                      .c_stride = kPanelRows,
                      .left_panels = 1,
                      .right_panels = 1,
                      .k_tiles = 2,
                      .accumulate = false});
  };
  multiply_tiles(2, 2, 16);
  EXPECT_DEATH(multiply_tiles(1, 2, 16), "heap-buffer-overflow");
  EXPECT_DEATH(multiply_tiles(2, 1, 16), "heap-buffer-overflow");
  EXPECT_DEATH(multiply_tiles(2, 2, 15), "heap-buffer-overflow");
#else
  GTEST_SKIP() << "this build has no AddressSanitizer";
#endif
}

}  // namespace
}  // namespace mantissa
