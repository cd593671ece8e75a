#include "ops/norm.h"

#include <cmath>

#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

// Relative errors of FP32 sums in another order (the CPU adds up to 40000 / 16 terms in a chain: 2^-24 * sqrt(2500) at
// random, some times that where they all have one sign), and of one rounding to BF16 that can fall to the other side.
double bound(DType dtype) { return dtype == DType::kBF16 ? 4e-3 : 1e-5; }
constexpr double kSumError = 5e-6;

struct Sizes {
  int64_t rows, cols;
};
const Sizes kSizes[] = {{1, 8},     {3, 100},    {257, 64},  {257, 100},  {3, 1000},    {4096, 768},
                        {257, 768}, {257, 1000}, {3, 2048},  {257, 2048}, {4096, 2048}, {257, 5120},
                        {1, 4096},  {37, 8192},  {5, 16384}, {3, 40000},  {2000, 64}};

// A tensor of the host with its bytes.
struct Host {
  Host(int64_t count, uint64_t seed, DType dtype, Shape shape, float scale = 1, float shift = 0) {
    std::vector<float> values = random_values(count, seed, scale, false);
    for (float& v : values) v += shift;
    bytes = packed(values, dtype);
    tensor = Tensor(bytes.data(), dtype, shape);
  }
  Host(DType dtype, Shape shape) : bytes(static_cast<size_t>(bytes_of(dtype, shape.count()))) {
    tensor = Tensor(bytes.data(), dtype, shape);
  }
  std::vector<float> floats() const {
    std::vector<float> out(static_cast<size_t>(tensor.count()));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = tensor.dtype == DType::kBF16 ? to_float(static_cast<const bf16*>(tensor.data)[i])
                                            : static_cast<const float*>(tensor.data)[i];
    return out;
  }
  std::vector<std::byte> bytes;
  Tensor tensor;
};

class GpuNorm : public GpuTest {
 protected:
  // The op on both sides; `layer`: LayerNorm, `residual`: the form that adds r first, h being x itself.
  void forward(Sizes s, DType in, DType out, bool layer, bool residual) {
    SCOPED_TRACE(fmt::format("[{},{}] {} -> {}, layer {}, residual {}", s.rows, s.cols, name_of(in), name_of(out),
                             layer, residual));
    const Shape matrix{s.rows, s.cols}, row{s.cols}, tokens{s.rows};
    Host x(matrix.count(), 1, in, matrix, 2, 0.5f), r(matrix.count(), 2, in, matrix), w(s.cols, 3, in, row),
        b(s.cols, 4, in, row);
    OnDevice dx(device(), x.tensor), dr(device(), r.tensor), dw(device(), w.tensor), db(device(), b.tensor);
    OnDevice y(device(), out, matrix), rstd(device(), DType::kF32, tokens), mean(device(), DType::kF32, tokens),
        amax(device(), DType::kF32, {1});
    Operand oy{.high = y, .producer_amax = amax.as<float>()};
    const auto gpu = [&] {
      dx.upload(x.tensor);
      if (layer && residual)
        add_layer_norm_fwd(exec(), oy, mean, rstd, dx, dx, dr, dw, db, 1e-5f);
      else if (layer)
        layer_norm_fwd(exec(), oy, mean, rstd, dx, dw, db, 1e-5f);
      else if (residual)
        add_rms_norm_fwd(exec(), oy, rstd, dx, dx, dr, dw, 1e-6f);
      else
        rms_norm_fwd(exec(), oy, rstd, dx, dw, 1e-6f);
      return y.bytes();
    };
    const std::vector<std::byte> first = gpu();
    EXPECT_EQ(first, gpu());

    Exec cpu;
    Host cy(out, matrix), crstd(DType::kF32, tokens), cmean(DType::kF32, tokens);
    float camax = 0;
    Operand co{.high = cy.tensor, .producer_amax = &camax};
    if (layer && residual)
      add_layer_norm_fwd(cpu, co, cmean.tensor, crstd.tensor, x.tensor, x.tensor, r.tensor, w.tensor, b.tensor, 1e-5f);
    else if (layer)
      layer_norm_fwd(cpu, co, cmean.tensor, crstd.tensor, x.tensor, w.tensor, b.tensor, 1e-5f);
    else if (residual)
      add_rms_norm_fwd(cpu, co, crstd.tensor, x.tensor, x.tensor, r.tensor, w.tensor, 1e-6f);
    else
      rms_norm_fwd(cpu, co, crstd.tensor, x.tensor, w.tensor, 1e-6f);
    EXPECT_LT(relative_error(y.floats(), cy.floats()), out == DType::kBF16 ? 1e-3 : kSumError);
    EXPECT_LT(relative_error(rstd.floats(), crstd.floats()), kSumError);
    if (layer) {
      EXPECT_LT(relative_error(mean.floats(), cmean.floats()), 1e-5);
    }
    if (residual) {
      EXPECT_EQ(dx.bytes(), x.bytes);  // h
    }
    EXPECT_NEAR(amax.floats()[0], camax, kSumError * camax);
  }

  // `aliased`: dx is dresidual, as in the residual stream.
  void backward(Sizes s, DType type, DType grad, bool layer, bool dresidual, bool aliased) {
    SCOPED_TRACE(fmt::format("[{},{}] {}, weight gradient {}, layer {}, dresidual {}, aliased {}", s.rows, s.cols,
                             name_of(type), name_of(grad), layer, dresidual, aliased));
    const Shape matrix{s.rows, s.cols}, row{s.cols}, tokens{s.rows};
    Host x(matrix.count(), 1, type, matrix, 2, 0.5f), dy(matrix.count(), 2, type, matrix),
        w(s.cols, 3, type, row, 1, 1), past(matrix.count(), 5, type, matrix), dw(s.cols, 6, grad, row, 10),
        db(s.cols, 7, grad, row, 10);
    Host mean(s.rows, 8, DType::kF32, tokens, 0.1f, 0.5f), rstd(s.rows, 9, DType::kF32, tokens, 0.02f, 0.5f);
    OnDevice gx(device(), x.tensor), gdy(device(), dy.tensor), gw(device(), w.tensor), gmean(device(), mean.tensor),
        grstd(device(), rstd.tensor), gpast(device(), past.tensor), gdx(device(), type, matrix),
        gdw(device(), grad, row), gdb(device(), grad, row);
    const auto gpu = [&] {
      gdw.upload(dw.tensor), gdb.upload(db.tensor), gpast.upload(past.tensor);
      const Tensor out = aliased ? gpast.tensor() : gdx.tensor();
      const ConstTensor given = dresidual ? ConstTensor(gpast) : ConstTensor();
      if (layer)
        layer_norm_bwd(exec(), out, gdw, gdb, gdy, gx, gw, gmean, grstd, given);
      else
        rms_norm_bwd(exec(), out, gdw, gdy, gx, gw, grstd, given);
      return gdw.bytes();
    };
    const std::vector<std::byte> weights = gpu(), values = (aliased ? gpast : gdx).bytes();
    EXPECT_EQ(weights, gpu());
    EXPECT_EQ(values, (aliased ? gpast : gdx).bytes());

    Exec cpu;
    Host cdx(type, matrix);
    const ConstTensor given = dresidual ? ConstTensor(past.tensor) : ConstTensor();
    if (layer)
      layer_norm_bwd(cpu, cdx.tensor, dw.tensor, db.tensor, dy.tensor, x.tensor, w.tensor, mean.tensor, rstd.tensor,
                     given);
    else
      rms_norm_bwd(cpu, cdx.tensor, dw.tensor, dy.tensor, x.tensor, w.tensor, rstd.tensor, given);
    EXPECT_LT(relative_error((aliased ? gpast : gdx).floats(), cdx.floats()), type == DType::kBF16 ? 1e-3 : kSumError);
    EXPECT_LT(relative_error(gdw.floats(), dw.floats()), bound(grad));
    if (layer) {
      EXPECT_LT(relative_error(gdb.floats(), db.floats()), bound(grad));
    }
  }
};

TEST_F(GpuNorm, ForwardAgreesWithTheCpu) {
  for (const Sizes s : kSizes)
    for (const bool layer : {false, true})
      for (const bool residual : {false, true}) {
        forward(s, DType::kBF16, DType::kBF16, layer, residual);
        if (s.rows < 4096) {
          forward(s, DType::kF32, DType::kF32, layer, residual);
          forward(s, DType::kBF16, DType::kF32, layer, residual);
          forward(s, DType::kF32, DType::kBF16, layer, residual);
        }
      }
}

TEST_F(GpuNorm, BackwardAgreesWithTheCpu) {
  for (const Sizes s : kSizes)
    for (const bool layer : {false, true}) {
      backward(s, DType::kBF16, DType::kF32, layer, true, true);
      if (s.rows >= 4096) continue;
      backward(s, DType::kBF16, DType::kBF16, layer, false, false);
      backward(s, DType::kF32, DType::kF32, layer, true, false);
      backward(s, DType::kF32, DType::kBF16, layer, false, false);
    }
}

TEST_F(GpuNorm, ScratchBoundIsEnough) {
  const int64_t rows = 2000, cols = 2048;
  Exec small(device());
  small.reserve_scratch(row_reduction_scratch_bytes(rows, cols));
  OnDevice x(device(), DType::kBF16, {rows, cols}), w(device(), DType::kBF16, {cols}),
      dw(device(), DType::kF32, {cols}), db(device(), DType::kF32, {cols}), t(device(), DType::kF32, {rows});
  EXPECT_NO_THROW(layer_norm_bwd(small, x, dw, db, x, x, w, t, t, {}));
  device().synchronize();
}

}  // namespace
}  // namespace mantissa
