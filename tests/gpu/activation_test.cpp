#include "ops/activation.h"

#include <algorithm>
#include <cmath>

#include "ops/quantize.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

struct Case {
  int64_t rows, cols;
  DType x, y;
};
const Case kCases[] = {{1, 1, DType::kF32, DType::kF32},        {3, 8, DType::kBF16, DType::kBF16},
                       {257, 100, DType::kBF16, DType::kF32},   {257, 100, DType::kBF16, DType::kBF16},
                       {33, 77, DType::kF32, DType::kBF16},     {65, 1000, DType::kF32, DType::kF32},
                       {128, 8960, DType::kBF16, DType::kBF16}, {300, 768, DType::kBF16, DType::kF32}};

class GpuActivation : public GpuTest {
 protected:
  // Runs an op on both sides. `in`, `out`: columns of x and of the result for each of F.
  template <class Op>
  void compare(const Case& c, int64_t in, int64_t out, Op&& op) {
    SCOPED_TRACE(fmt::format("[{},{}] {} -> {}", c.rows, c.cols, name_of(c.x), name_of(c.y)));
    const Shape xs{c.rows, in * c.cols}, ys{c.rows, out * c.cols}, ds{c.rows, c.cols};
    const std::vector<std::byte> x = packed(random_values(xs.count(), 1, 3, false), c.x),
                                 d = packed(random_values(ds.count(), 2, 1, false), c.x);
    const ConstTensor tx(x.data(), c.x, xs), td(d.data(), c.x, ds);
    std::vector<std::byte> expected(static_cast<size_t>(bytes_of(c.y, ys.count())));
    float amax = 0;
    Operand cpu_y{.high = Tensor(expected.data(), c.y, ys), .producer_amax = &amax};
    Exec cpu;
    op(cpu, cpu_y, td, tx);
    const OnDevice gx(device(), tx), gd(device(), td), y(device(), c.y, ys), gamax(device(), DType::kF32, {1});
    Operand gpu_y{.high = y, .producer_amax = gamax.as<float>()};
    op(exec(), gpu_y, gd, gx);
    std::vector<float> wanted(static_cast<size_t>(ys.count()));
    for (size_t i = 0; i < wanted.size(); ++i)
      wanted[i] = c.y == DType::kBF16 ? to_float(reinterpret_cast<const bf16*>(expected.data())[i])
                                      : reinterpret_cast<const float*>(expected.data())[i];
    EXPECT_LT(relative_error(y.floats(), wanted), c.y == DType::kBF16 ? 1e-3 : 1e-6);
    EXPECT_NEAR(gamax.floats()[0], amax, 1e-6 * amax);
    const std::vector<std::byte> first = y.bytes();
    Operand plain{.high = y};
    op(exec(), plain, gd, gx);
    EXPECT_EQ(y.bytes(), first);
  }
};

TEST_F(GpuActivation, AgreesWithTheCpu) {
  for (const Case& c : kCases) {
    compare(c, 2, 1, [](Exec& e, Operand& y, ConstTensor, ConstTensor x) { swiglu_fwd(e, y, x); });
    compare(c, 2, 2, [](Exec& e, Operand& y, ConstTensor d, ConstTensor x) { swiglu_bwd(e, y, d, x); });
    compare(c, 1, 1, [](Exec& e, Operand& y, ConstTensor, ConstTensor x) { gelu_fwd(e, y, x); });
    compare(c, 1, 1, [](Exec& e, Operand& y, ConstTensor d, ConstTensor x) { gelu_bwd(e, y, d, x); });
  }
}

// Each value, over all finite BF16 numbers within ±100: relative to the value where it is a normal number.
TEST_F(GpuActivation, EveryBf16WithinARoundingOfTheCpu) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float v = to_float(bf16{static_cast<uint16_t>(bits)});
    if (std::abs(v) <= 100) values.push_back(v);
  }
  const auto n = static_cast<int64_t>(values.size());
  const std::vector<float> ones(values.size(), 1.0f);
  const ConstTensor tx(values.data(), DType::kF32, {n, 1}), td(ones.data(), DType::kF32, {n, 1});
  const OnDevice gx(device(), tx), gd(device(), td), y(device(), DType::kF32, {n, 1});
  std::vector<float> expected(values.size());
  Operand co{.high = Tensor(expected.data(), DType::kF32, {n, 1})}, go{.high = y};
  Exec cpu;
  for (const bool backward : {false, true}) {
    backward ? gelu_bwd(cpu, co, td, tx) : gelu_fwd(cpu, co, tx);
    backward ? gelu_bwd(exec(), go, gd, gx) : gelu_fwd(exec(), go, gx);
    const std::vector<float> got = y.floats();
    double worst = 0;
    // The derivative passes through zero near -0.75: there relative to the terms that cancel.
    for (size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(double{got[i]} - expected[i]) /
                                  std::max({std::abs(double{expected[i]}), backward ? 0.05 : 1e-30}));
    EXPECT_LT(worst, 2e-5) << "backward " << backward;
  }
}

// The cast within the op writes the bytes of the op and a cast behind it: codes both ways, scale and raised amax.
TEST_F(GpuActivation, CastsAsACastBehindIt) {
  using Op = void (*)(Exec&, Operand&, ConstTensor, ConstTensor);
  struct Kind {
    const char* name;
    int64_t in, out;  // columns of x and of the result for each of F
    Op op;
  };
  const Kind kinds[] = {
      {"swiglu_fwd", 2, 1, [](Exec& e, Operand& y, ConstTensor, ConstTensor x) { swiglu_fwd(e, y, x); }},
      {"swiglu_bwd", 2, 2, [](Exec& e, Operand& y, ConstTensor d, ConstTensor x) { swiglu_bwd(e, y, d, x); }},
      {"gelu_fwd", 1, 1, [](Exec& e, Operand& y, ConstTensor, ConstTensor x) { gelu_fwd(e, y, x); }},
      {"gelu_bwd", 1, 1, [](Exec& e, Operand& y, ConstTensor d, ConstTensor x) { gelu_bwd(e, y, d, x); }}};
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{128, 256}, {16, 16}, {272, 176}, {400, 1000}, {1024, 6144}})
    for (const Kind& kind : kinds)
      for (const DType element : {DType::kE4M3, DType::kE5M2}) {
        SCOPED_TRACE(fmt::format("{} [{},{}] {}", kind.name, rows, cols, name_of(element)));
        const int64_t out = kind.out * cols;
        std::vector<float> values = random_values(rows * kind.in * cols, 1, 3, false);
        values[5] = 300, values[7] = -1e-6f;
        const std::vector<std::byte> x = packed(values, DType::kBF16),
                                     d = packed(random_values(rows * cols, 2, 1, false), DType::kBF16);
        const OnDevice gx(device(), ConstTensor(x.data(), DType::kBF16, {rows, kind.in * cols})),
            gd(device(), ConstTensor(d.data(), DType::kBF16, {rows, cols}));
        const float scale = 3.7f, zero = 0;
        const OnDevice given(device(), ConstTensor(&scale, DType::kF32, {1}));
        struct Result {
          OnDevice high, row, column, row_scale, column_scale, raised;
          Result(Device& device, int64_t m, int64_t k, DType e, const float* start)
              : high(device, DType::kF32, {m, k}),
                row(device, e, {m, k}),
                column(device, e, {k, m}),
                row_scale(device, DType::kF32, {1}),
                column_scale(device, DType::kF32, {1}),
                raised(device, ConstTensor(start, DType::kF32, {1})) {}
        };
        const auto run = [&](const Result& to, bool behind, bool high_read) {
          const QuantFormat f{.element = element, .rule = ScaleRule::kGiven, .blocking = Blocking::kTensor};
          Operand y{.high = to.high, .high_read = high_read};
          const auto fill = [&] {
            y.rowwise = {.format = f, .data = to.row, .scale_inv = to.row_scale, .scale = given.as<float>()};
            y.columnwise = {.format = f, .data = to.column, .scale_inv = to.column_scale, .scale = given.as<float>()};
            y.rowwise.raised = to.raised.as<float>();
          };
          if (!behind) fill();
          kind.op(exec(), y, gd, gx);
          if (!behind) return;
          fill();
          quantize(exec(), y);
        };
        const Result expected(device(), rows, out, element, &zero);
        run(expected, true, true);
        for (const bool high_read : {true, false}) {
          const Result found(device(), rows, out, element, &zero);
          run(found, false, high_read);
          EXPECT_EQ(found.row.bytes(), expected.row.bytes());
          EXPECT_EQ(found.column.bytes(), expected.column.bytes());
          EXPECT_EQ(found.row_scale.bytes(), expected.row_scale.bytes());
          EXPECT_EQ(found.column_scale.bytes(), expected.column_scale.bytes());
          EXPECT_EQ(found.raised.bytes(), expected.raised.bytes());
          if (high_read) {
            EXPECT_EQ(found.high.bytes(), expected.high.bytes());
          }
        }
      }
}

}  // namespace
}  // namespace mantissa
