// The bytes that TransformerEngine 2.20.2 wrote on an H200 (nvfp4: its Python reference), in our unpadded layouts.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/safetensors.h"
#include "tests/ops/quantize_reference.h"

namespace mantissa {
namespace {

using test::OwnedCopy;

template <class T>
std::vector<T> load(const safetensors::View& view) {
  std::vector<T> out(view.bytes.size() / sizeof(T));
  std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
  return out;
}

struct Golden {
  safetensors::Reader file = safetensors::Reader::open(MANTISSA_SOURCE_DIR "/tests/golden/te/quantizers.safetensors");
  std::set<std::string> used;

  const safetensors::View& at(const std::string& name) {
    used.insert(name);
    return file.at(name);
  }
  bool has(const std::string& name) const { return file.find(name) != nullptr; }
  Exec exec;
};

struct Input {
  std::vector<bf16> values;
  int64_t m, k;
  ConstTensor tensor() const { return {values.data(), DType::kBF16, {m, k}}; }
};

Input input(Golden& g, const std::string& name) {
  const safetensors::View& view = g.at("in." + name);
  return {load<bf16>(view), view.shape[0], view.shape[1]};
}

int64_t differing(const void* a, const std::vector<uint8_t>& b) {
  int64_t n = 0;
  for (size_t i = 0; i < b.size(); ++i) n += static_cast<const uint8_t*>(a)[i] != b[i];
  return n;
}

// Codes of our copy; `q` is laid out as TransformerEngine stores data, columnwise transposed.
void expect_codes(Golden& g, const std::string& name, const OwnedCopy& copy) {
  const safetensors::View& view = g.at(name);
  ASSERT_EQ(static_cast<int64_t>(view.bytes.size()), copy.q.data.bytes()) << name;
  EXPECT_EQ(differing(copy.q.data.data, load<uint8_t>(view)), 0) << name;
}

// FP32 bits of scales; `at(o, i)` is the index in the padded file of our scale [o,i].
template <class Index>
void expect_scales(Golden& g, const std::string& name, const OwnedCopy& copy, Index&& index) {
  const safetensors::View& view = g.at(name);
  const bool bytes = view.dtype == "U8";
  const std::vector<uint8_t> raw = load<uint8_t>(view);
  const std::vector<uint32_t> ours = copy.scales();
  const int64_t outer = copy.q.scale_inv.rows(), inner = copy.q.scale_inv.cols();
  int64_t wrong = 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const auto at = static_cast<size_t>(index(o, i, view.shape));
      uint32_t expected = 0;
      std::memcpy(&expected, raw.data() + at * (bytes ? 1 : 4), bytes ? 1 : 4);
      wrong += expected != ours[static_cast<size_t>(o * inner + i)];
    }
  EXPECT_EQ(wrong, 0) << name;
}

const std::vector<std::string> kInputs = {"normal", "outlier", "zeros"};

TEST(QuantizeGolden, PerTensor) {
  Golden g;
  int compared = 0;
  for (const auto& name : kInputs)
    for (DType element : {DType::kE4M3, DType::kE5M2})
      for (std::string variant : {"delayed.0.37", "delayed.448.0", "current.fp32", "current.pow2"}) {
        const std::string e = name_of(element);
        const auto dot = variant.find('.');
        const std::string prefix = variant.substr(0, dot) + "." + e + "." + variant.substr(dot + 1) + "." + name;
        if (!g.has(prefix + ".row")) continue;
        const Input x = input(g, name);
        const ScaleRule rule = variant.starts_with("delayed") ? ScaleRule::kGiven
                               : variant == "current.pow2"    ? ScaleRule::kCurrentPow2
                                                              : ScaleRule::kCurrent;
        const QuantFormat format{.element = element, .rule = rule, .blocking = Blocking::kTensor};
        OwnedCopy row(format, false, x.m, x.k), column(format, true, x.m, x.k);
        row.given = column.given = variant == "delayed.0.37" ? 0.37f : 448.0f;
        quantize_form(g.exec, row.q, false, x.tensor(), 0, nullptr);
        quantize_form(g.exec, column.q, true, x.tensor(), 0, nullptr);
        expect_codes(g, prefix + ".row", row);
        expect_codes(g, prefix + ".col", column);
        const auto only = [](int64_t, int64_t, const std::vector<int64_t>&) { return 0; };
        expect_scales(g, prefix + ".scale_inv", row, only);
        expect_scales(g, prefix + ".scale_inv", column, only);
        if (rule == ScaleRule::kGiven) {
          EXPECT_EQ(*row.q.amax, load<float>(g.at(prefix + ".amax"))[0]);
        }
        ++compared;
      }
  EXPECT_EQ(compared, 20);
}

TEST(QuantizeGolden, Blockwise) {
  Golden g;
  int compared = 0;
  for (const auto& name : kInputs)
    for (DType element : {DType::kE4M3, DType::kE5M2})
      for (const char* blocks : {"block1d", "block2d"})
        for (const char* scales : {"fp32", "pow2"}) {
          const std::string prefix = fmt::format("{}.{}.{}.{}", blocks, name_of(element), scales, name);
          if (!g.has(prefix + ".row")) continue;
          const Input x = input(g, name);
          const bool rows = std::string(blocks) == "block1d";
          const QuantFormat format{
              .element = element,
              .rule = std::string(scales) == "pow2" ? ScaleRule::kCurrentPow2 : ScaleRule::kCurrent,
              .blocking = rows ? Blocking::kRow : Blocking::kTile,
              .block = 128};
          // 1D scales are stored [block, outer], 2D scales [outer block, inner block]; the last dimension is padded
          // to 4.
          const auto index = [&](int64_t o, int64_t i, const std::vector<int64_t>& shape) {
            return rows ? i * shape[1] + o : o * shape[1] + i;
          };
          for (bool columnwise : {false, true}) {
            OwnedCopy copy(format, columnwise, x.m, x.k);
            quantize_form(g.exec, copy.q, columnwise, x.tensor(), 0, nullptr);
            expect_codes(g, prefix + (columnwise ? ".col" : ".row"), copy);
            expect_scales(g, prefix + (columnwise ? ".col_scale_inv" : ".row_scale_inv"), copy, index);
          }
          ++compared;
        }
  EXPECT_EQ(compared, 16);
}

TEST(QuantizeGolden, Nvfp4) {
  Golden g;
  for (const std::string name : {"normal", "outlier"})
    for (const std::string variant : {"1d", "1d_rht", "2d"}) {
      const std::string prefix = "nvfp4." + variant + "." + name;
      const Input x = input(g, name);
      for (bool columnwise : {false, true}) {
        const QuantFormat format{.element = DType::kE2M1,
                                 .rule = ScaleRule::kNvfp4,
                                 .blocking = variant == "2d" ? Blocking::kTile : Blocking::kRow,
                                 .block = 16,
                                 .hadamard = variant == "1d_rht" && columnwise};
        OwnedCopy copy(format, columnwise, x.m, x.k);
        quantize_form(g.exec, copy.q, columnwise, x.tensor(), 0, nullptr);
        const std::string side = columnwise ? "col" : "row";
        EXPECT_EQ(*copy.q.amax, load<float>(g.at(prefix + ".amax_" + side))[0]) << prefix << side;
        // Tile scales are repeated for each of their 16 rows.
        const int64_t repeat = variant == "2d" ? 16 : 1;
        expect_scales(
            g, prefix + "." + side + "_scale", copy,
            [&](int64_t o, int64_t i, const std::vector<int64_t>& shape) { return o * repeat * shape[1] + i; });
        // A source of -0.0 (none here) would differ: the reference that wrote these bytes maps it to code 0, the GPU
        // and we to 8.
        expect_codes(g, prefix + "." + side, copy);
      }
    }
}

}  // namespace
}  // namespace mantissa
