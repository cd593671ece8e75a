#include "ops/embedding.h"

#include <algorithm>

#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using GpuEmbedding = GpuTest;

enum class Ids { kUniform, kZipf, kOne, kPositions };

std::vector<int32_t> make_ids(Ids kind, int64_t tokens, int64_t rows) {
  std::vector<int32_t> ids;
  uint64_t state = 88172645463325252u;
  for (int64_t t = 0; t < tokens; ++t) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const auto any = static_cast<int64_t>(state % static_cast<uint64_t>(rows));
    int64_t id = any;
    if (kind == Ids::kZipf)
      id = state >> 40 & 15 ? static_cast<int64_t>(1.0 * any * any / static_cast<double>(rows) / 8) : 7;
    if (kind == Ids::kOne) id = rows - 1;
    if (kind == Ids::kPositions) id = t % rows;
    ids.push_back(static_cast<int32_t>(std::min(id, rows - 1)));
  }
  return ids;
}

struct Case {
  int64_t tokens, rows, cols;
  Ids kind;
};
constexpr Case kCases[] = {{1, 1, 8, Ids::kUniform},          {5, 3, 7, Ids::kUniform},
                           {33, 2, 64, Ids::kUniform},        {1000, 600, 768, Ids::kPositions},
                           {4096, 151936, 104, Ids::kZipf},   {3000, 50257, 768, Ids::kUniform},
                           {2500, 300, 5120, Ids::kZipf},     {9000, 1000, 104, Ids::kOne},
                           {2048, 3000, 4096, Ids::kUniform}, {40000, 500, 33, Ids::kZipf}};

TEST_F(GpuEmbedding, ForwardGivesTheCpusBits) {
  Exec cpu;
  for (const Case& c : kCases)
    for (const DType table_type : {DType::kBF16, DType::kF32})
      for (const DType y_type : {DType::kBF16, DType::kF32})
        for (const bool with_positions : {false, true}) {
          SCOPED_TRACE(testing::Message() << c.tokens << " of " << c.rows << " x " << c.cols);
          if (c.rows * c.cols > 10000000 && (table_type != y_type || !with_positions)) continue;
          const int64_t places = std::min<int64_t>(c.rows, 512);
          const std::vector<int32_t> ids = make_ids(c.kind, c.tokens, c.rows),
                                     positions = make_ids(Ids::kPositions, c.tokens, places);
          const std::vector<std::byte> table = packed(random_values(c.rows * c.cols, 1), table_type),
                                       place_table = packed(random_values(places * c.cols, 2), table_type);
          const ConstTensor tid(ids.data(), DType::kI32, {c.tokens}), tpos(positions.data(), DType::kI32, {c.tokens}),
              tt(table.data(), table_type, {c.rows, c.cols}), tp(place_table.data(), table_type, {places, c.cols});
          std::vector<std::byte> want(static_cast<size_t>(bytes_of(y_type, c.tokens * c.cols)));
          embedding_fwd(cpu, {want.data(), y_type, {c.tokens, c.cols}}, tid, tt, with_positions ? tpos : ConstTensor(),
                        with_positions ? tp : ConstTensor());
          const OnDevice did(device(), tid), dpos(device(), tpos), dt(device(), tt), dp(device(), tp),
              y(device(), y_type, {c.tokens, c.cols});
          embedding_fwd(exec(), y, did, dt, with_positions ? dpos : ConstTensor(), with_positions ? dp : ConstTensor());
          EXPECT_EQ(y.bytes(), want);
        }
}

TEST_F(GpuEmbedding, BackwardAgreesWithTheCpuAndWithItself) {
  Exec cpu;
  for (const Case& c : kCases)
    for (const DType grad_type : {DType::kBF16, DType::kF32})
      for (const DType dy_type : {DType::kBF16, DType::kF32}) {
        SCOPED_TRACE(testing::Message() << c.tokens << " of " << c.rows << " x " << c.cols << " " << name_of(grad_type)
                                        << name_of(dy_type));
        if (c.rows * c.cols > 10000000 && grad_type != dy_type) continue;
        const int64_t places = std::min<int64_t>(c.rows, 512);
        const std::vector<int32_t> ids = make_ids(c.kind, c.tokens, c.rows),
                                   positions = make_ids(Ids::kPositions, c.tokens, places);
        const std::vector<std::byte> dy = packed(random_values(c.tokens * c.cols, 1), dy_type);
        std::vector<std::byte> table = packed(random_values(c.rows * c.cols, 2), grad_type),
                               place_table = packed(random_values(places * c.cols, 3), grad_type);
        const ConstTensor tid(ids.data(), DType::kI32, {c.tokens}), tpos(positions.data(), DType::kI32, {c.tokens}),
            tdy(dy.data(), dy_type, {c.tokens, c.cols});
        const Tensor tt(table.data(), grad_type, {c.rows, c.cols}), tp(place_table.data(), grad_type, {places, c.cols});
        const OnDevice did(device(), tid), dpos(device(), tpos), ddy(device(), tdy), dt(device(), ConstTensor(tt)),
            dp(device(), ConstTensor(tp)), dt2(device(), ConstTensor(tt)), dp2(device(), ConstTensor(tp));
        embedding_bwd(exec(), dt, dp, ddy, did, dpos);
        embedding_bwd(exec(), dt2, dp2, ddy, did, dpos);
        EXPECT_EQ(dt.bytes(), dt2.bytes());
        EXPECT_EQ(dp.bytes(), dp2.bytes());
        embedding_bwd(cpu, tt, tp, tdy, tid, tpos);
        // Upload of the expected bytes gives them as floats.
        const OnDevice want(device(), ConstTensor(tt)), want_place(device(), ConstTensor(tp));
        const double bound = grad_type == DType::kF32 ? 2e-6 : 4e-3;
        EXPECT_LT(relative_error(dt.floats(), want.floats()), bound);
        EXPECT_LT(relative_error(dp.floats(), want_place.floats()), bound);
        // Rows without a token keep every bit.
        const std::vector<std::byte> got = dt.bytes(), before = packed(random_values(c.rows * c.cols, 2), grad_type);
        std::vector<bool> used(static_cast<size_t>(c.rows));
        for (const int32_t id : ids) used[static_cast<size_t>(id)] = true;
        const int64_t row_bytes = bytes_of(grad_type, c.cols);
        for (int64_t r = 0; r < c.rows; ++r)
          if (!used[static_cast<size_t>(r)]) {
            ASSERT_TRUE(std::equal(got.begin() + r * row_bytes, got.begin() + (r + 1) * row_bytes,
                                   before.begin() + r * row_bytes))
                << r;
          }
      }
}

TEST_F(GpuEmbedding, SaysWhatScratchItNeeds) {
  Exec small(device());
  small.reserve_scratch(4096);
  const std::vector<int32_t> ids(100);
  const OnDevice did(device(), ConstTensor(ids.data(), DType::kI32, {100})), dy(device(), DType::kF32, {100, 64}),
      dt(device(), DType::kF32, {10, 64});
  EXPECT_THROW(embedding_bwd(small, dt, Tensor(), dy, did, ConstTensor()), Error);
  EXPECT_LE(embedding_scratch_bytes(16384, 151936, 2048), int64_t{10} << 20);
}

}  // namespace
}  // namespace mantissa
