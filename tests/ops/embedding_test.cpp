#include "ops/embedding.h"

#include <gtest/gtest.h>

#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

ConstTensor indices(const std::vector<int32_t>& v) { return {v.data(), DType::kI32, {static_cast<int64_t>(v.size())}}; }

// Token ids with a heavy head, as text has.
std::vector<int32_t> skewed_ids(int64_t tokens, int32_t vocab) {
  std::mt19937 generator(3);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids)
    id = generator() % 3 == 0 ? 0 : static_cast<int32_t>(generator() % static_cast<uint32_t>(vocab));
  return ids;
}

TEST(Embedding, ForwardCopiesRowsAndAddsPositions) {
  for (Isa isa : machine_isas()) {
    Exec exec(isa);
    const int64_t h = 100;
    const std::vector<int32_t> ids = {4, 0, 4, 2}, positions = {0, 1, 2, 0};
    Values table = random_values(DType::kBF16, {5, h}, 1), places = random_values(DType::kBF16, {3, h}, 2);
    Values y(DType::kBF16, {4, h}), wide(DType::kF32, {4, h});
    embedding_fwd(exec, y, indices(ids), table, {}, {});
    embedding_fwd(exec, wide, indices(ids), table, indices(positions), places);
    const auto w = table.floats(), p = places.floats(), got = y.floats(), sums = wide.floats();
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t i = 0; i < h; ++i) {
        ASSERT_EQ(got[t * h + i], w[ids[t] * h + i]);
        ASSERT_EQ(sums[t * h + i], w[ids[t] * h + i] + p[positions[t] * h + i]);
      }
  }
}

// F32 gradients equal additions in token order, bit for bit.
TEST(Embedding, BackwardAddsInTokenOrder) {
  for (Isa isa : machine_isas())
    for (auto [tokens, vocab, h] : {std::tuple{1, 1, 1}, {200, 7, 100}, {500, 1000, 300}}) {
      Exec exec(isa);
      const std::vector<int32_t> ids = skewed_ids(tokens, vocab);
      std::vector<int32_t> positions(ids.size());
      for (size_t t = 0; t < ids.size(); ++t) positions[t] = static_cast<int32_t>(t % 50);
      Values dy = random_values(DType::kBF16, {tokens, h}, 1), dtable = random_values(DType::kF32, {vocab, h}, 2);
      Values dplaces = random_values(DType::kF32, {50, h}, 3);
      std::vector<float> want = dtable.floats(), want_places = dplaces.floats();
      const std::vector<float> d = dy.floats();
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < h; ++i) {
          want[ids[t] * h + i] += d[t * h + i];
          want_places[positions[t] * h + i] += d[t * h + i];
        }
      embedding_bwd(exec, dtable, dplaces, dy, indices(ids), indices(positions));
      EXPECT_TRUE(dtable == Values(DType::kF32, {vocab, h}, want));
      EXPECT_TRUE(dplaces == Values(DType::kF32, {50, h}, want_places));
    }
}

TEST(Embedding, Bf16GradientRoundsEachRowOnce) {
  Exec exec;
  const int64_t tokens = 900, vocab = 9, h = 33;
  const std::vector<int32_t> ids = skewed_ids(tokens, vocab);
  Values dy = random_values(DType::kBF16, {tokens, h}, 1), narrow = random_values(DType::kBF16, {vocab, h}, 2, 50);
  Values wide(DType::kF32, {vocab, h}, narrow.floats());
  embedding_bwd(exec, narrow, {}, dy, indices(ids), {});
  embedding_bwd(exec, wide, {}, dy, indices(ids), {});
  EXPECT_TRUE(narrow == Values(DType::kBF16, {vocab, h}, wide.floats()));
}

TEST(Embedding, BitsDoNotDependOnThreads) {
  const int64_t tokens = 700, vocab = 256, h = 256;
  const std::vector<int32_t> ids = skewed_ids(tokens, vocab);
  auto run = [&](int threads) {
    return with_threads(threads, [&] {
      Exec exec;
      Values dtable(DType::kF32, {vocab, h});
      embedding_bwd(exec, dtable, {}, random_values(DType::kBF16, {tokens, h}, 1), indices(ids), {});
      return dtable;
    });
  };
  EXPECT_TRUE(run(1) == run(2));
  EXPECT_TRUE(run(2) == run(3));
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  Exec exec;
  Values table(DType::kBF16, {5, 8}), y(DType::kBF16, {2, 8});
  const std::vector<int32_t> high = {1, 5}, low = {-1, 0};
  EXPECT_EQ(error_of([&] { embedding_fwd(exec, y, indices(high), table, {}, {}); }),
            "embedding_fwd: ids[1] is 5, expected 0 to 4");
  EXPECT_EQ(error_of([&] { embedding_bwd(exec, table, {}, y, indices(low), {}); }),
            "embedding_bwd: ids[0] is -1, expected 0 to 4");
}

}  // namespace
}  // namespace mantissa
