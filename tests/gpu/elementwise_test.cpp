#include "ops/elementwise.h"

#include <cmath>
#include <limits>

#include "ops/norm.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using GpuElementwise = GpuTest;

TEST_F(GpuElementwise, AddsAndCastsAsTheCpu) {
  Exec cpu;
  for (const int64_t n : {1, 7, 8, 1000, 70001})
    for (const DType out : {DType::kBF16, DType::kF32}) {
      const std::vector<float> x = random_values(n, 1), r = random_values(n, 2);
      const std::vector<std::byte> a = packed(x, DType::kBF16), b = packed(r, DType::kF32);
      std::vector<std::byte> expected(static_cast<size_t>(bytes_of(out, n)));
      const ConstTensor ta(a.data(), DType::kBF16, {n}), tb(b.data(), DType::kF32, {n});
      add(cpu, {expected.data(), out, {n}}, ta, tb);
      const OnDevice da(device(), ta), db(device(), tb), y(device(), out, {n});
      add(exec(), y, da, db);
      EXPECT_EQ(y.bytes(), expected) << n;
      cast(cpu, {expected.data(), out, {n}}, tb);
      cast(exec(), y, db);
      EXPECT_EQ(y.bytes(), expected) << n;
    }
}

TEST_F(GpuElementwise, AddsInPlaceAndUnaligned) {
  const int64_t n = 1000;
  const std::vector<std::byte> a = packed(random_values(n + 1, 1), DType::kBF16);
  std::vector<std::byte> expected = a;
  const ConstTensor ta(a.data(), DType::kBF16, {n + 1});
  const OnDevice x(device(), ta);
  // The elements from 1 on lie off any 16-byte boundary.
  const auto off = [&](void* p) { return Tensor(static_cast<bf16*>(p) + 1, DType::kBF16, {n}); };
  Exec cpu;
  add(cpu, off(expected.data()), off(expected.data()), off(const_cast<std::byte*>(a.data())));
  add(exec(), off(x.tensor().data), off(x.tensor().data), off(x.tensor().data));
  EXPECT_EQ(x.bytes(), expected);
}

TEST_F(GpuElementwise, BiasGradientAgreesWithTheCpu) {
  struct Case {
    int64_t rows, cols;
    DType dy, db;
  };
  Exec cpu;
  for (const Case& c : {Case{1, 8, DType::kBF16, DType::kF32}, Case{3, 100, DType::kF32, DType::kBF16},
                        Case{257, 1000, DType::kBF16, DType::kF32}, Case{4096, 768, DType::kBF16, DType::kF32},
                        Case{4096, 2304, DType::kBF16, DType::kBF16}, Case{1000, 1, DType::kF32, DType::kF32},
                        Case{300, 5123, DType::kBF16, DType::kF32}, Case{20000, 264, DType::kF32, DType::kF32}}) {
    const std::vector<std::byte> dy = packed(random_values(c.rows * c.cols, 1), c.dy);
    std::vector<std::byte> db = packed(random_values(c.cols, 2, 10, false), c.db);
    const ConstTensor tdy(dy.data(), c.dy, {c.rows, c.cols});
    const Tensor tdb(db.data(), c.db, {c.cols});
    OnDevice gdy(device(), tdy), gdb(device(), tdb);
    Exec small(device());
    small.reserve_scratch(row_reduction_scratch_bytes(c.rows, c.cols));
    bias_bwd(small, gdb, gdy);
    const std::vector<std::byte> first = gdb.bytes();
    gdb.upload(tdb);
    bias_bwd(exec(), gdb, gdy);
    EXPECT_EQ(gdb.bytes(), first);
    bias_bwd(cpu, tdb, tdy);
    std::vector<float> expected(static_cast<size_t>(c.cols));
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = c.db == DType::kBF16 ? to_float(reinterpret_cast<const bf16*>(db.data())[i])
                                         : reinterpret_cast<const float*>(db.data())[i];
    EXPECT_LT(relative_error(gdb.floats(), expected), c.db == DType::kBF16 ? 4e-3 : 1e-5) << c.rows << " " << c.cols;
  }
}

TEST_F(GpuElementwise, SumsSquaresAsTheCpu) {
  Exec cpu;
  for (const int64_t n : {1, 7, 1000, 5000001})
    for (const DType type : {DType::kBF16, DType::kF32}) {
      const std::vector<std::byte> x = packed(random_values(n, 1, 3, false), type);
      const ConstTensor tx(x.data(), type, {n});
      const OnDevice gx(device(), tx);
      const double expected = sum_of_squares(cpu, tx), got = sum_of_squares(exec(), gx);
      EXPECT_NEAR(got, expected, 1e-13 * expected) << n;
      EXPECT_EQ(got, sum_of_squares(exec(), gx));
    }
}

TEST_F(GpuElementwise, FindsTheFirstNonFinite) {
  const int64_t n = 3000003;
  for (const DType type : {DType::kBF16, DType::kF32}) {
    std::vector<float> x = random_values(n, 1);
    const auto first = [&] {
      const std::vector<std::byte> bytes = packed(x, type);
      const OnDevice gx(device(), ConstTensor(bytes.data(), type, {n}));
      return first_nonfinite(exec(), gx);
    };
    EXPECT_EQ(first(), -1);
    for (const int64_t at : {n - 1, int64_t{2100000}, int64_t{1048577}, int64_t{12}, int64_t{0}}) {
      x[static_cast<size_t>(at)] =
          at % 2 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(first(), at);
    }
  }
}

}  // namespace
}  // namespace mantissa
