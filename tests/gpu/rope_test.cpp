#include "ops/rope.h"

#include <cmath>

#include "ops/norm.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

struct Case {
  int64_t tokens;
  HeadLayout layout;
};
const Case kCases[] = {{257, {16, 8, 128}}, {1, {12, 2, 128}}, {100, {32, 8, 128}}, {257, {4, 4, 64}},
                       {65, {6, 2, 96}},    {33, {2, 1, 256}}, {9, {2, 1, 320}},    {129, {4, 2, 16}},
                       {3, {3, 1, 80}},     {257, {4, 2, 10}}, {50, {2, 2, 2}},     {31, {5, 1, 72}},
                       {5000, {2, 1, 32}}};

class GpuRope : public GpuTest {
 protected:
  // Packed documents: positions start again, and reach the table's end.
  void prepare(const Case& c, DType type) {
    const int64_t d = c.layout.head_dim, longest = 70;
    const Shape matrix{c.tokens, c.layout.qkv_cols()};
    x = packed(random_values(matrix.count(), 1, 2, false), type);
    dy = packed(random_values(matrix.count(), 2, 1, false), type);
    q = packed(shifted(d, 3), type), k = packed(shifted(d, 4), type);
    positions.resize(static_cast<size_t>(c.tokens));
    for (int64_t t = 0; t < c.tokens; ++t)
      positions[static_cast<size_t>(t)] = static_cast<int32_t>((t * 7 + 3) % longest);
    angles.resize(static_cast<size_t>(longest * d));
    for (int64_t p = 0; p < longest; ++p)
      for (int64_t i = 0; i < d / 2; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        angles[static_cast<size_t>(p * d + i)] = static_cast<float>(std::cos(angle));
        angles[static_cast<size_t>(p * d + d / 2 + i)] = static_cast<float>(std::sin(angle));
      }
    tx = ConstTensor(x.data(), type, matrix), tdy = ConstTensor(dy.data(), type, matrix);
    tq = ConstTensor(q.data(), type, {d}), tk = ConstTensor(k.data(), type, {d});
    tp = ConstTensor(positions.data(), DType::kI32, {c.tokens});
    ta = ConstTensor(angles.data(), DType::kF32, {longest, d});
  }
  static std::vector<float> shifted(int64_t n, uint64_t seed) {
    std::vector<float> v = random_values(n, seed, 0.3f, false);
    for (float& w : v) w += 1;
    return v;
  }
  static std::vector<float> floats(const std::vector<std::byte>& bytes, DType type) {
    std::vector<float> out(bytes.size() / (type == DType::kBF16 ? 2 : 4));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = type == DType::kBF16 ? to_float(reinterpret_cast<const bf16*>(bytes.data())[i])
                                    : reinterpret_cast<const float*>(bytes.data())[i];
    return out;
  }
  // One flip of a rounding in many for BF16, the order of the sums for F32.
  static double value_bound(DType type) { return type == DType::kBF16 ? 1e-3 : 1e-6; }

  std::vector<std::byte> x, dy, q, k;
  std::vector<int32_t> positions;
  std::vector<float> angles;
  ConstTensor tx, tdy, tq, tk, tp, ta;
};

TEST_F(GpuRope, RotatesAsTheCpu) {
  Exec cpu;
  for (const Case& c : kCases)
    for (const DType type : {DType::kBF16, DType::kF32})
      for (const bool backward : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tokens, {}/{}/{} {}, backward {}", c.tokens, c.layout.heads, c.layout.kv_heads,
                                 c.layout.head_dim, name_of(type), backward));
        prepare(c, type);
        const auto op = backward ? rope_bwd : rope_fwd;
        std::vector<std::byte> expected(x.size());
        op(cpu, {expected.data(), type, tx.shape}, tx, ta, tp, c.layout);
        OnDevice gx(device(), tx), ga(device(), ta), gp(device(), tp), y(device(), type, tx.shape);
        op(exec(), y, gx, ga, gp, c.layout);
        EXPECT_LT(relative_error(y.floats(), floats(expected, type)), value_bound(type));
        op(exec(), gx, gx, ga, gp, c.layout);
        EXPECT_EQ(gx.bytes(), y.bytes());  // in place
      }
}

TEST_F(GpuRope, NormalisesAndRotatesAsTheCpu) {
  Exec cpu;
  for (const Case& c : kCases)
    for (const DType type : {DType::kBF16, DType::kF32}) {
      SCOPED_TRACE(fmt::format("{} tokens, {}/{}/{} {}", c.tokens, c.layout.heads, c.layout.kv_heads, c.layout.head_dim,
                               name_of(type)));
      prepare(c, type);
      const Shape heads{c.tokens, c.layout.heads + c.layout.kv_heads};
      std::vector<std::byte> expected(x.size());
      std::vector<float> rstd(static_cast<size_t>(heads.count()));
      qk_norm_rope_fwd(cpu, {expected.data(), type, tx.shape}, {rstd.data(), DType::kF32, heads}, tx, tq, tk, ta, tp,
                       c.layout, 1e-6f);
      OnDevice gx(device(), tx), ga(device(), ta), gp(device(), tp), gq(device(), tq), gk(device(), tk),
          y(device(), type, tx.shape), grstd(device(), DType::kF32, heads);
      qk_norm_rope_fwd(exec(), y, grstd, gx, gq, gk, ga, gp, c.layout, 1e-6f);
      EXPECT_LT(relative_error(y.floats(), floats(expected, type)), value_bound(type));
      EXPECT_LT(relative_error(grstd.floats(), rstd), 1e-6);
      qk_norm_rope_fwd(exec(), gx, grstd, gx, gq, gk, ga, gp, c.layout, 1e-6f);
      EXPECT_EQ(gx.bytes(), y.bytes());
    }
}

TEST_F(GpuRope, BackwardOfTheNormAgreesWithTheCpu) {
  Exec cpu;
  for (const Case& c : kCases)
    for (const DType type : {DType::kBF16, DType::kF32})
      for (const DType grad : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(fmt::format("{} tokens, {}/{}/{} {}, weight gradient {}", c.tokens, c.layout.heads,
                                 c.layout.kv_heads, c.layout.head_dim, name_of(type), name_of(grad)));
        prepare(c, type);
        const int64_t d = c.layout.head_dim;
        const Shape heads{c.tokens, c.layout.heads + c.layout.kv_heads};
        std::vector<float> rstd = random_values(heads.count(), 5, 0.02f, false);
        for (float& r : rstd) r += 0.5f;
        const ConstTensor tr(rstd.data(), DType::kF32, heads);
        std::vector<std::byte> dq = packed(random_values(d, 6, 10, false), grad),
                               dk = packed(random_values(d, 7, 10, false), grad), expected(x.size());
        const Tensor tdq(dq.data(), grad, {d}), tdk(dk.data(), grad, {d});
        OnDevice gx(device(), tx), gdy(device(), tdy), ga(device(), ta), gp(device(), tp), gq(device(), tq),
            gk(device(), tk), gr(device(), tr), dx(device(), type, tx.shape), gdq(device(), tdq), gdk(device(), tdk);
        qk_norm_rope_bwd(exec(), dx, gdq, gdk, gdy, gx, gr, gq, gk, ga, gp, c.layout);
        const std::vector<std::byte> first_q = gdq.bytes(), first_k = gdk.bytes();
        gdq.upload(tdq), gdk.upload(tdk);
        qk_norm_rope_bwd(exec(), gdy, gdq, gdk, gdy, gx, gr, gq, gk, ga, gp, c.layout);  // in place
        EXPECT_EQ(gdy.bytes(), dx.bytes());
        EXPECT_EQ(gdq.bytes(), first_q);
        EXPECT_EQ(gdk.bytes(), first_k);
        qk_norm_rope_bwd(cpu, {expected.data(), type, tx.shape}, tdq, tdk, tdy, tx, tr, tq, tk, ta, tp, c.layout);
        EXPECT_LT(relative_error(dx.floats(), floats(expected, type)), value_bound(type));
        EXPECT_LT(relative_error(gdq.floats(), floats(dq, grad)), grad == DType::kBF16 ? 4e-3 : 1e-5);
        EXPECT_LT(relative_error(gdk.floats(), floats(dk, grad)), grad == DType::kBF16 ? 4e-3 : 1e-5);
      }
}

}  // namespace
}  // namespace mantissa
