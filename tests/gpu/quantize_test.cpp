// Casts on the GPU: the bytes of the CPU's, which tests/ops holds against a reference.
#include "ops/quantize.h"

#include <limits>

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

// As large as a layer's: panels of every place, more blocks than the device holds at once.
TEST_F(GpuQuantize, LargeTensors) {
  const Matrix x = random_matrix(2048, 1536, true, 16);
  for (const QuantFormat& f : all_formats())
    if (f.element != DType::kE5M2) expect_cpu(f, f, x);
}

}  // namespace
}  // namespace mantissa
