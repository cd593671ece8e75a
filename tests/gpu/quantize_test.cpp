// Casts on the GPU: the bytes of the CPU's, which tests/ops holds against a reference.
#include "ops/quantize.h"

#include <limits>

#include "ops/quantized_value.h"
#include "tests/gpu/on_device.h"
#include "tests/ops/quantize_reference.h"

namespace mantissa {
namespace {

using namespace test;

// A copy in the device's memory.
struct DeviceCopy {
  OnDevice data, scales, amax, given;
  Quantized q;

  DeviceCopy(Device& device, const OwnedCopy& like)
      : data(device, like.q.data.dtype, like.q.data.shape),
        scales(device, like.q.scale_inv.dtype, like.q.scale_inv.shape),
        amax(device, DType::kF32, {1}),
        given(device, ConstTensor(&like.given, DType::kF32, {1})),
        q(like.q) {
    q.data = data;
    q.scale_inv = scales;
    q.amax = amax.as<float>();
    q.scale = given.as<float>();
  }
};

std::vector<std::byte> bytes_of_host(const Tensor& t) {
  const auto* p = static_cast<const std::byte*>(t.data);
  return {p, p + t.bytes()};
}

class GpuQuantize : public GpuTest {
 protected:
  void expect_same(const OwnedCopy& expected, const DeviceCopy& copy) {
    EXPECT_EQ(copy.scales.bytes(), bytes_of_host(expected.q.scale_inv));
    EXPECT_EQ(copy.data.bytes(), bytes_of_host(expected.q.data));
    EXPECT_EQ(copy.amax.floats()[0], *expected.q.amax);
  }

  // Both copies of x: alone, and as one operand.
  void expect_cpu(const QuantFormat& rows, const QuantFormat& columns, const Matrix& x, float given = 0.37f) {
    if (rows.element == DType::kE2M1 && (x.k % 2 != 0 || x.m % 2 != 0)) return;
    SCOPED_TRACE(fmt::format("{} and {} of [{},{}] {}", describe(rows), describe(columns), x.m, x.k,
                             x.is_bf16 ? "bf16" : "f32"));
    OwnedCopy row(rows, false, x.m, x.k), column(columns, true, x.m, x.k);
    row.given = column.given = given;
    cpu.state = exec().state = {.seed = 77, .token_offset = 5, .step = 3};
    quantize_form(cpu, row.q, false, x.tensor(), 9, nullptr);
    quantize_form(cpu, column.q, true, x.tensor(), 9, nullptr);
    const OnDevice source(device(), x.tensor());
    {
      DeviceCopy a(device(), row), b(device(), column);
      quantize_form(exec(), a.q, false, source, 9, nullptr);
      quantize_form(exec(), b.q, true, source, 9, nullptr);
      expect_same(row, a);
      expect_same(column, b);
    }
    DeviceCopy a(device(), row), b(device(), column);
    Operand operand{.high = source, .rowwise = a.q, .columnwise = b.q, .tensor_id = 9};
    quantize(exec(), operand);
    expect_same(row, a);
    expect_same(column, b);
    expect_the_way_back(row, a, false, x, source);
    expect_the_way_back(column, b, true, x, source);
  }

  void expect_the_way_back(const OwnedCopy& expected, const DeviceCopy& copy, bool columnwise, const Matrix& x,
                           const OnDevice& source) {
    std::vector<float> values(static_cast<size_t>(x.m * x.k));
    const Tensor y(values.data(), DType::kF32, expected.q.data.shape);
    dequantize(cpu, y, expected.q);
    const OnDevice back(device(), DType::kF32, expected.q.data.shape);
    dequantize(exec(), back, copy.q);
    const std::vector<float> got = back.floats();
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_TRUE(got[i] == values[i] || (std::isnan(got[i]) && std::isnan(values[i])))
          << i << " " << got[i] << " " << values[i];
    const QuantError e = quantization_error(cpu, expected.q, columnwise, x.tensor());
    const QuantError g = quantization_error(exec(), copy.q, columnwise, source);
    EXPECT_EQ(g.count, e.count);
    EXPECT_EQ(g.saturated, e.saturated);
    EXPECT_EQ(g.flushed, e.flushed);
    EXPECT_EQ(g.amax, e.amax);
    const auto near = [](double a, double b) {
      return std::isfinite(b) ? std::abs(a - b) <= 1e-12 * std::abs(b) : !std::isfinite(a);
    };
    EXPECT_TRUE(near(g.signal, e.signal)) << g.signal << " " << e.signal;
    EXPECT_TRUE(near(g.noise, e.noise)) << g.noise << " " << e.noise;
  }

  Exec cpu;
};

TEST_F(GpuQuantize, BytesOfTheCpu) {
  for (auto [m, k] :
       {std::pair<int64_t, int64_t>{128, 256}, {144, 176}, {303, 300}, {16, 16}, {1, 130}, {48, 1}, {400, 272}})
    for (bool is_bf16 : {true, false}) {
      const Matrix x = random_matrix(m, k, is_bf16, 11);
      for (const QuantFormat& f : all_formats()) expect_cpu(f, f, x);
    }
}

// The rotated, stochastically rounded copies of NVFP4's gradients; element numbers that divide by 16 and that do not.
TEST_F(GpuQuantize, RotatedAndStochasticBytesOfTheCpu) {
  QuantFormat rows{.element = DType::kE2M1, .rule = ScaleRule::kNvfp4, .blocking = Blocking::kRow, .block = 16};
  for (auto [m, k] : {std::pair<int64_t, int64_t>{128, 256}, {144, 176}, {304, 300}, {16, 2}})
    for (const bool stochastic : {false, true})
      for (const bool hadamard : {false, true}) {
        rows.stochastic = stochastic;
        QuantFormat columns = rows;
        columns.hadamard = hadamard;
        expect_cpu(rows, columns, random_matrix(m, k, true, 12));
      }
  rows.stochastic = true, rows.blocking = Blocking::kTile;
  expect_cpu(rows, rows, random_matrix(144, 176, true, 13));
}

TEST_F(GpuQuantize, NonFiniteAndExtremeValues) {
  for (float special : {0.0f, -0.0f, kNan, kInf, -kInf, 1e-45f, 1e-38f, 1e-30f, 3e38f, 0x1.fffffep127f})
    for (bool is_bf16 : {true, false})
      for (bool alone : {true, false}) {
        SCOPED_TRACE(fmt::format("special {} alone {}", special, alone));
        Matrix x = random_matrix(48, 144, is_bf16, 14);
        std::vector<float> v = x.values;
        for (size_t i = 0; i < v.size(); ++i)
          if (alone ? true : i % 133 == 5) v[i] = special;
        x.set(v);
        for (const QuantFormat& f : all_formats()) expect_cpu(f, f, x);
      }
}

// The state of the step is read in the device's memory where it has a place there, chunks count their own rows.
TEST_F(GpuQuantize, DrawsByTheStateInMemory) {
  const Matrix x = random_matrix(48, 144, true, 12);
  const QuantFormat f{
      .element = DType::kE2M1, .rule = ScaleRule::kNvfp4, .blocking = Blocking::kRow, .block = 16, .stochastic = true};
  const StepState state{.seed = 5, .token_offset = 7, .step = 9};
  cpu.state = state, cpu.row_offset = exec().row_offset = 16;
  OwnedCopy expected(f, false, x.m, x.k);
  quantize_form(cpu, expected.q, false, x.tensor(), 9, nullptr);
  const OnDevice source(device(), x.tensor());
  const OnDevice place(device(), ConstTensor(&state, DType::kU8, {static_cast<int64_t>(sizeof state)}));
  exec().set_device_state(place.as<StepState>());
  DeviceCopy copy(device(), expected);
  quantize_form(exec(), copy.q, false, source, 9, nullptr);
  expect_same(expected, copy);
}

// A producer's amax takes the place of the source's.
TEST_F(GpuQuantize, ProducerAmaxReplacesTheSources) {
  const Matrix x = random_matrix(144, 176, true, 15);
  const OnDevice source(device(), x.tensor());
  const float producer = 1234.5f;
  const OnDevice amax(device(), ConstTensor(&producer, DType::kF32, {1}));
  for (const QuantFormat& f : all_formats()) {
    SCOPED_TRACE(describe(f));
    OwnedCopy expected(f, false, x.m, x.k);
    quantize_form(cpu, expected.q, false, x.tensor(), 9, &producer);
    DeviceCopy copy(device(), expected);
    quantize_form(exec(), copy.q, false, source, 9, amax.as<float>());
    expect_same(expected, copy);
  }
}

// What native recipes cast: no amax is kept, a history is raised, scales lie as the library reads them.
class GpuFp8Cast : public GpuQuantize {
 protected:
  // Forms of the format from x: bytes and scales of the CPU's, and the raised amax.
  void expect_native(QuantFormat f, const Matrix& x, bool rows, bool columns) {
    SCOPED_TRACE(fmt::format("{} of [{},{}] {} {} {}", describe(f), x.m, x.k, x.is_bf16 ? "bf16" : "f32",
                             rows ? "rows" : "", columns ? "columns" : ""));
    OwnedCopy row(f, false, x.m, x.k), column(f, true, x.m, x.k);
    row.given = column.given = 0.37f;
    quantize_form(cpu, row.q, false, x.tensor(), 9, nullptr);
    quantize_form(cpu, column.q, true, x.tensor(), 9, nullptr);
    const OnDevice source(device(), x.tensor());
    const float start = 1e-3f;
    const OnDevice raised(device(), ConstTensor(&start, DType::kF32, {1}));
    const bool given = f.rule == ScaleRule::kGiven, tensor = f.blocking == Blocking::kTensor;
    if (!tensor) f.layout = ScaleLayout::kLibrary;
    DeviceCopy a(device(), row), b(device(), column);
    const OnDevice scales_a(device(), DType::kF32, scale_shape(f, x.m, x.k)),
        scales_b(device(), DType::kF32, scale_shape(f, x.k, x.m));
    for (auto [copy, scales] : {std::pair<DeviceCopy*, const OnDevice*>{&a, &scales_a}, {&b, &scales_b}}) {
      copy->q.format = f;
      copy->q.scale_inv = *scales;
      if (given || !tensor) copy->q.amax = nullptr;
      copy->q.scale = a.q.scale;
    }
    if (given) (rows ? a : b).q.raised = raised.as<float>();
    Operand operand{.high = source, .tensor_id = 9};
    if (rows) operand.rowwise = a.q;
    if (columns) operand.columnwise = b.q;
    for (const Pass pass : {Pass::kReplay, Pass::kEvaluate, Pass::kForward}) {
      exec().pass = pass;
      quantize(exec(), operand);
      const float seen = raised.floats()[0];
      EXPECT_EQ(seen, given && pass == Pass::kForward ? std::max(start, *row.q.amax) : start);
    }
    if (rows) expect_stored(row, a, f, x.m, x.k);
    if (columns) expect_stored(column, b, f, x.k, x.m);
  }
  void expect_stored(const OwnedCopy& expected, const DeviceCopy& copy, const QuantFormat& f, int64_t outer,
                     int64_t inner) {
    EXPECT_EQ(copy.data.bytes(), bytes_of_host(expected.q.data));
    std::vector<float> found(static_cast<size_t>(copy.q.scale_inv.count()));
    device().copy_out(found.data(), copy.q.scale_inv.data, copy.q.scale_inv.bytes());
    const auto* scales = expected.q.scale_inv.as<float>();
    if (f.blocking == Blocking::kTensor) {
      EXPECT_EQ(found[0], scales[0]);
      return;
    }
    const int64_t lines = f.blocking == Blocking::kTile ? ceil_div(outer, f.block) : outer;
    const int64_t blocks = ceil_div(inner, f.block);
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t block = 0; block < blocks; ++block)
        ASSERT_EQ(found[static_cast<size_t>(scale_index(f, outer, inner, line, block))], scales[line * blocks + block])
            << line << " " << block;
  }
  void expect_every_format(const Matrix& x) {
    for (const QuantFormat& f : all_formats()) {
      const bool fp32_scale = f.rule != ScaleRule::kE8M0 && f.rule != ScaleRule::kNvfp4;
      if (!fp32_scale) continue;
      for (const auto& [rows, columns] : {std::pair{true, true}, {true, false}, {false, true}})
        expect_native(f, x, rows, columns);
    }
  }
};

TEST_F(GpuFp8Cast, BytesOfTheCpu) {
  for (auto [m, k] : {std::pair<int64_t, int64_t>{128, 256}, {144, 176}, {400, 272}, {16, 16}, {48, 144}, {303, 300}})
    for (bool is_bf16 : {true, false}) expect_every_format(random_matrix(m, k, is_bf16, 21));
}

TEST_F(GpuFp8Cast, NonFiniteAndExtremeValues) {
  for (float special : {0.0f, -0.0f, kNan, -kNan, kInf, -kInf, 1e-45f, 1e-38f, 1e-30f, 3e38f, 0x1.fffffep127f})
    for (bool is_bf16 : {true, false})
      for (bool alone : {true, false}) {
        SCOPED_TRACE(fmt::format("special {} alone {}", special, alone));
        Matrix x = random_matrix(48, 144, is_bf16, 22);
        std::vector<float> v = x.values;
        for (size_t i = 0; i < v.size(); ++i)
          if (alone || i % 133 == 5) v[i] = special;
        x.set(v);
        expect_every_format(x);
      }
}

TEST_F(GpuFp8Cast, LargeTensors) { expect_every_format(random_matrix(2048, 1536, true, 23)); }

// Values for emulated products: what the CPU's codes stand for but for the tensor's scale, and the CPU's scales.
class GpuValuesCast : public GpuQuantize {
 protected:
  void expect_values(const QuantFormat& rows, const QuantFormat& columns, const Matrix& x, bool with_rows = true,
                     bool with_columns = true) {
    SCOPED_TRACE(fmt::format("{} and {} of [{},{}]", describe(rows), describe(columns), x.m, x.k));
    const StepState state{.seed = 77, .token_offset = 32, .step = 3};
    cpu.state = exec().state = state;
    cpu.row_offset = exec().row_offset = 16;
    const OnDevice place(device(), ConstTensor(&state, DType::kU8, {static_cast<int64_t>(sizeof state)}));
    exec().set_device_state(place.as<StepState>());
    OwnedCopy row(rows, false, x.m, x.k), column(columns, true, x.m, x.k);
    quantize_form(cpu, row.q, false, x.tensor(), 9, nullptr);
    quantize_form(cpu, column.q, true, x.tensor(), 9, nullptr);
    const OnDevice source(device(), x.tensor());
    const OnDevice row_values(device(), DType::kBF16, {x.m, x.k}), column_values(device(), DType::kBF16, {x.k, x.m});
    DeviceCopy a(device(), row), b(device(), column);
    const bool nvfp4 = rows.rule == ScaleRule::kNvfp4;
    for (auto [copy, values] : {std::pair<DeviceCopy*, const OnDevice*>{&a, &row_values}, {&b, &column_values}}) {
      copy->q.format.values = true;
      copy->q.data = *values;
      if (!nvfp4) copy->q.amax = nullptr;
    }
    Operand operand{.high = source, .tensor_id = 9};
    if (with_rows) operand.rowwise = a.q;
    if (with_columns) operand.columnwise = b.q;
    quantize(exec(), operand);
    if (with_rows) expect_stands_for(row, a, row_values, false, x, source);
    if (with_columns) expect_stands_for(column, b, column_values, true, x, source);
    exec().set_device_state(nullptr);
  }
  void expect_stands_for(const OwnedCopy& expected, const DeviceCopy& copy, const OnDevice& values, bool columnwise,
                         const Matrix& x, const OnDevice& source) {
    EXPECT_EQ(copy.scales.bytes(), bytes_of_host(expected.q.scale_inv));
    const bool nvfp4 = expected.q.format.rule == ScaleRule::kNvfp4;
    if (nvfp4) {
      EXPECT_EQ(copy.amax.floats()[0], *expected.q.amax);
    }
    const std::vector<uint8_t> codes = expected.codes();
    const std::vector<float> found = values.floats();
    const QuantizedView view = view_of(expected.q);
    const auto* scales = static_cast<const uint8_t*>(expected.q.scale_inv.data);
    const int64_t inner = view.inner;
    size_t wrong = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t line = view.format.blocking == Blocking::kTile ? at / inner / view.format.block : at / inner;
      const uint8_t scale = scales[scale_index(view.format, view.outer, inner, line, at % inner / view.format.block)];
      const float value =
          to_float(to_bf16(decode(view.format.element, codes[i]) * (nvfp4 ? decode_e4m3(scale) : decode_e8m0(scale))));
      const bool same = std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(value);
      wrong += !(same || (std::isnan(found[i]) && std::isnan(value)));
    }
    EXPECT_EQ(wrong, 0u) << "of " << codes.size();
    const QuantError e = quantization_error(cpu, expected.q, columnwise, x.tensor());
    const QuantError g = quantization_error(exec(), copy.q, columnwise, source);
    EXPECT_EQ(g.count, e.count);
    EXPECT_EQ(g.amax, e.amax);
    if (!std::isfinite(e.noise)) return;
    EXPECT_EQ(g.flushed, e.flushed);
    EXPECT_NEAR(g.noise, e.noise, 1e-5 * e.noise);
    EXPECT_NEAR(static_cast<double>(g.saturated), static_cast<double>(e.saturated),
                1e-3 * static_cast<double>(e.count));
  }
  void expect_every_format(const Matrix& x) {
    for (const Blocking blocking : {Blocking::kRow, Blocking::kTile}) {
      for (const DType element : {DType::kE4M3, DType::kE5M2}) {
        const QuantFormat mx{.element = element, .rule = ScaleRule::kE8M0, .blocking = blocking, .block = 32};
        expect_values(mx, mx, x);
        expect_values(mx, mx, x, true, false);
        expect_values(mx, mx, x, false, true);
      }
      for (const bool stochastic : {false, true})
        for (const bool hadamard : {false, true}) {
          QuantFormat rows{.element = DType::kE2M1,
                           .rule = ScaleRule::kNvfp4,
                           .blocking = blocking,
                           .block = 16,
                           .stochastic = stochastic};
          QuantFormat columns = rows;
          columns.hadamard = hadamard && blocking == Blocking::kRow;
          expect_values(rows, columns, x);
          expect_values(rows, columns, x, true, false);
          expect_values(rows, columns, x, false, true);
        }
    }
  }
};

TEST_F(GpuValuesCast, StandsForTheCodesOfTheCpu) {
  for (auto [m, k] : {std::pair<int64_t, int64_t>{128, 256}, {160, 192}, {416, 288}, {32, 32}, {48, 144}, {2048, 1536}})
    expect_every_format(random_matrix(m, k, true, 31));
}

TEST_F(GpuValuesCast, NonFiniteAndExtremeValues) {
  for (float special : {0.0f, -0.0f, kNan, -kNan, kInf, -kInf, 1e-30f, 3e38f})
    for (bool alone : {true, false}) {
      SCOPED_TRACE(fmt::format("special {} alone {}", special, alone));
      Matrix x = random_matrix(64, 160, true, 32);
      std::vector<float> v = x.values;
      for (size_t i = 0; i < v.size(); ++i)
        if (alone || i % 133 == 5) v[i] = special;
      x.set(v);
      expect_every_format(x);
    }
}

// As large as a layer's: panels of every place, more blocks than the device holds at once.
TEST_F(GpuQuantize, LargeTensors) {
  const Matrix x = random_matrix(2048, 1536, true, 16);
  for (const QuantFormat& f : all_formats())
    if (f.element != DType::kE5M2) expect_cpu(f, f, x);
}

}  // namespace
}  // namespace mantissa
