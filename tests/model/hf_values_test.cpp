// Every code of F16 and BF16, rounding, non-finite counts; parts written and read again.
#include "model/hf/values.h"

#include <cmath>
#include <limits>

#include "tests/model/model_folder.h"

namespace mantissa::hf {
namespace {

// IEEE 754 binary16 by its definition.
double half_value(uint32_t code) {
  const double sign = code & 0x8000 ? -1 : 1;
  const int exponent = static_cast<int>(code >> 10 & 31), fraction = static_cast<int>(code & 1023);
  if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

struct OneVector {
  explicit OneVector(int64_t n, WeightMode mode = WeightMode::kF32)
      : params({{"x", {n}, {{"x", 0, n}}}}, {.weights = mode, .training = false}) {
    arena.build([this](Arena& a) { params.allocate(a); });
  }
  void load(const safetensors::View& view, DType round_to = DType::kF32) {
    load_match({.param = 0, .spec = &params.spec(0), .part = &params.spec(0).hf[0], .view = &view, .name = "x"}, params,
               round_to);
  }
  ParamStore params;
  Arena arena;
};

TEST(HfValues, EveryCodeOfSixteenBits) {
  // One byte off, so that nothing is aligned.
  std::vector<std::byte> bytes(1 + 2 * 65536);
  for (uint32_t code = 0; code < 65536; ++code) std::memcpy(&bytes[1 + 2 * code], &code, 2);
  for (const char* dtype : {"F16", "BF16"}) {
    const safetensors::View view{dtype, {65536}, std::span(bytes).subspan(1)};
    OneVector x(65536);
    x.load(view);
    const std::vector<float> got = x.params.values(0);
    for (uint32_t code = 0; code < 65536; ++code) {
      const double want = view.dtype == "F16" ? half_value(code) : double{to_float(bf16{static_cast<uint16_t>(code)})};
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got[code])) << dtype << " " << code;
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(got[code]), std::bit_cast<uint32_t>(static_cast<float>(want)))
          << dtype << " " << code;
    }
    const NonFinite bad = count_nonfinite(view);
    EXPECT_EQ(bad.inf, 2);
    EXPECT_EQ(bad.nan, view.dtype == "F16" ? 2 * 1023 : 2 * 127);
    EXPECT_FALSE(same_values(view, view)) << "NaN equals nothing";
    const safetensors::View finite{dtype, {1000}, std::span(bytes).subspan(1, 2000)};
    EXPECT_TRUE(same_values(finite, finite));
  }
}

TEST(HfValues, RoundsWhereAsked) {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -3.1415927f, 1e-40f, 3.4e38f};
  const safetensors::View view{"F32", {6}, std::as_bytes(std::span(values))};
  OneVector full(6), rounded(6), low(6, WeightMode::kBF16);
  full.load(view);
  rounded.load(view, DType::kBF16);
  low.load(view);
  EXPECT_EQ(full.params.values(0), values);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(rounded.params.values(0)[i], to_float(to_bf16(values[i])));
  EXPECT_EQ(low.params.values(0), rounded.params.values(0));
  const Match match{
      .param = 0, .spec = &full.params.spec(0), .part = &full.params.spec(0).hf[0], .view = &view, .name = "x"};
  EXPECT_TRUE(holds_match(match, full.params, DType::kF32));
  EXPECT_FALSE(holds_match(match, full.params, DType::kBF16));
  EXPECT_TRUE(holds_match(match, rounded.params, DType::kBF16));
  EXPECT_TRUE(holds_match(match, low.params, DType::kBF16));
}

// Rows and columns that fill no tile, parts in the middle of a parameter, every pair of dtypes.
TEST(HfValues, WrittenPartsReadBack) {
  for (const bool transposed : {false, true})
    for (const WeightMode mode : {WeightMode::kF32, WeightMode::kBF16, WeightMode::kF32Master})
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const ParamSpec spec{"w", {100, 77}, {{"a", 0, 3, transposed}, {"b", 3, 97, transposed}}};
        ParamStore from({spec}, {.weights = mode, .training = false}), to({spec}, {.weights = mode, .training = false});
        Arena arena_from, arena_to;
        arena_from.build([&](Arena& a) { from.allocate(a); });
        arena_to.build([&](Arena& a) { to.allocate(a); });
        from.initialize(7);
        for (const HfPart& part : spec.hf) {
          std::vector<std::byte> bytes;
          write_part(from, 0, part, dtype,
                     [&](std::span<const std::byte> piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
          const safetensors::View view{dtype == DType::kF32 ? "F32" : "BF16", part_shape(spec, part), bytes};
          ASSERT_EQ(bytes.size(), static_cast<size_t>(bytes_of(dtype, part.rows * 77)));
          const Match match{.param = 0, .spec = &spec, .part = &part, .view = &view, .name = part.name};
          load_match(match, to, DType::kF32);
        }
        std::vector<float> want = from.values(0);
        if (dtype == DType::kBF16)
          for (float& x : want) x = to_float(to_bf16(x));
        EXPECT_EQ(to.values(0), want);
      }
}

}  // namespace
}  // namespace mantissa::hf
