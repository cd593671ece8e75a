// Decoding over a KV cache on the GPU, against the CPU's training attention over the whole sequence in FP32 on the same
// values; bounds as in attention_own_test.cpp.
#include "ops/cached_attention.h"

#include <cmath>

#include "tests/gpu/on_device.h"
#include "tests/ops/cached_case.h"

namespace mantissa {
namespace {

using test::CachedCase;
using GpuCachedAttention = GpuTest;

// Contexts on, below and above a split of 128 positions; rows of a call on and off the blocks of 16 and 256.
const CachedCase kCases[] = {
    {"one_token", {1, 1, 16}, 1, {}},
    {"group_1", {2, 2, 64}, 300, {1, 127, 128, 129, 256}},
    {"group_2", {4, 2, 128}, 520, {128, 384, 385}},
    {"group_3", {6, 2, 32}, 140, {5, 133}},
    {"group_6", {12, 2, 128}, 257, {256}},
    {"group_20", {20, 1, 64}, 150, {10, 140}},
    {"width_6", {2, 1, 6}, 140, {20}},
    {"width_80", {2, 1, 80}, 150, {48}},
    {"width_96", {4, 1, 96}, 260, {128}},
    {"width_256", {2, 2, 256}, 200, {3}},
    {"width_33", {2, 1, 33}, 140, {130}},
};

// The calls [.., cuts, T) over a cache whose memory is poisoned: what no call wrote may not be read.
std::vector<std::byte> run(Device& device, Exec& exec, const CachedCase& c, DType dtype,
                           const std::vector<std::byte>& values, const std::vector<int64_t>& cuts) {
  const int64_t capacity = ceil_div(c.tokens, int64_t{32}) * 32, width = ceil_div(c.layout.head_dim, int64_t{16}) * 16;
  const OnDevice keys(device, dtype, {c.layout.kv_heads, capacity / 16, c.layout.head_dim, 16});
  const OnDevice cached(device, dtype, {c.layout.kv_heads, capacity, width});
  const OnDevice qkv(device, ConstTensor(values.data(), dtype, c.qkv())), out(device, dtype, c.out());
  int64_t begin = 0;
  const auto call = [&](int64_t end) {
    cached_attention(exec, out.tensor().slice(begin, end - begin), {keys, cached}, begin,
                     qkv.tensor().slice(begin, end - begin), c.layout, c.scale());
    begin = end;
  };
  for (const int64_t end : cuts) call(end);
  call(c.tokens);
  return out.bytes();
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes, DType dtype, Shape shape, Device& device) {
  return OnDevice(device, ConstTensor(bytes.data(), dtype, shape)).floats();
}

TEST_F(GpuCachedAttention, MatchesTrainingHoweverTokensAreCut) {
  const std::vector<std::byte> poison(size_t{8} << 20, std::byte{0xff});
  device().copy_in(exec().shared_scratch(), poison.data(), static_cast<int64_t>(poison.size()));
  for (const CachedCase& c : kCases) {
    const std::vector<float> values = random_values(c.qkv().count(), 31);
    Exec cpu;
    std::vector<float> want(static_cast<size_t>(c.out().count())), lse(static_cast<size_t>(c.layout.heads * c.tokens));
    const std::vector<int32_t> offsets{0, static_cast<int32_t>(c.tokens)};
    attention_fwd(cpu, {want.data(), DType::kF32, c.out()}, {lse.data(), DType::kF32, {c.layout.heads, c.tokens}},
                  {values.data(), DType::kF32, c.qkv()}, {.offsets = {offsets.data(), DType::kI32, {2}}}, c.layout,
                  c.scale());
    std::vector<int64_t> singly;
    for (int64_t t = 1; t < c.tokens; ++t) singly.push_back(t);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(std::string(c.name) + " " + name_of(dtype));
      const std::vector<std::byte> bytes = packed(values, dtype);
      const std::vector<std::byte> whole = run(device(), exec(), c, dtype, bytes, {});
      EXPECT_LT(relative_error(floats_of(whole, dtype, c.out(), device()), want), dtype == DType::kF32 ? 1e-5 : 4e-3);
      EXPECT_TRUE(run(device(), exec(), c, dtype, bytes, c.cuts) == whole);
      EXPECT_TRUE(run(device(), exec(), c, dtype, bytes, singly) == whole);
    }
  }
}

TEST_F(GpuCachedAttention, ScratchOfOneTokenSufficesAndChangesNoBit) {
  const CachedCase c{"", {4, 2, 64}, 300, {}};
  const std::vector<std::byte> bytes = packed(random_values(c.qkv().count(), 32), DType::kBF16);
  Exec small(device());
  small.reserve_scratch(cached_attention_scratch_bytes(c.layout, c.tokens, 1));
  EXPECT_TRUE(run(device(), small, c, DType::kBF16, bytes, {}) == run(device(), exec(), c, DType::kBF16, bytes, {}));
  Exec none(device());
  EXPECT_THROW(run(device(), none, c, DType::kBF16, bytes, {}), Error);
}

}  // namespace
}  // namespace mantissa
