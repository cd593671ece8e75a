// The own attention of the GPU against the CPU's in FP32 on the same BF16 values. With outputs of unit size,
// rounding the result to BF16 costs 2^-9 / √3 = 1.1e-3, rounding the probabilities as much again; backward rounds P,
// dS, dout and the saved output, each once: bounds of 4e-3 and 1e-2 hold three times that. F32 sums differ in order
// only.
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "ops/attention.h"
#include "tensor/quant.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using GpuOwnAttention = DeterministicGpuTest;

class GpuFusedAttention : public GpuTest {
 protected:
  GpuFusedAttention() { setenv("MANTISSA_ATTENTION", "own", 1); }
  ~GpuFusedAttention() override { unsetenv("MANTISSA_ATTENTION"); }
};

struct Case {
  const char* name;
  HeadLayout layout;
  std::vector<int> lengths;  // of the documents, 0: an empty slot
  int64_t uniform = 0;

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(layout.head_dim)); }
};

// Documents of 1 to `most` tokens, with empty slots between and behind.
std::vector<int> random_lengths(int count, int most, uint64_t seed) {
  std::vector<int> lengths;
  const RandomKey key{seed, 0, 0, DrawForm::kInit};
  for (int i = 0; i < count; ++i) {
    const Random4 r = draw(key, static_cast<uint64_t>(i));
    lengths.push_back(static_cast<int>(r.x[0] % static_cast<uint32_t>(most)) + 1);
    if (r.x[1] % 5 == 0) lengths.push_back(0);
  }
  lengths.insert(lengths.end(), 3, 0);
  return lengths;
}

std::vector<Case> cases() {
  return {
      {"one_token", {2, 1, 64}, {1}},
      {"one_document", {2, 1, 128}, {700}},
      {"single_tokens", {2, 2, 64}, std::vector<int>(300, 1)},
      {"at_tile_borders", {4, 2, 128}, {128, 64, 64, 256, 128, 0, 0}},
      {"beside_tile_borders", {4, 2, 128}, {127, 1, 129, 63, 65, 255}},
      {"uniform", {4, 1, 128}, std::vector<int>(5, 96), 96},
      {"uniform_tiles", {4, 2, 128}, std::vector<int>(3, 384), 384},
      {"fewer_rows_than_a_tile", {2, 1, 40}, {9, 0, 5}},
      {"group_1", {2, 2, 128}, random_lengths(9, 200, 1)},
      {"group_4", {4, 1, 64}, random_lengths(7, 300, 2)},
      {"group_6", {12, 2, 128}, random_lengths(6, 250, 3)},
      {"group_8", {8, 1, 128}, random_lengths(30, 40, 4)},
      {"width_80", {4, 2, 80}, random_lengths(8, 200, 5)},
      {"width_96", {2, 1, 96}, random_lengths(8, 200, 6)},
      {"width_256", {4, 2, 256}, random_lengths(8, 200, 7)},
      {"width_200", {1, 1, 200}, random_lengths(4, 200, 8)},
      {"width_8", {2, 1, 8}, random_lengths(4, 90, 9)},
      {"odd_width", {3, 1, 33}, random_lengths(5, 100, 10)},
      {"odd_wide", {2, 2, 130}, random_lengths(3, 100, 11)},
  };
}

struct Result {
  std::vector<float> out, lse, dqkv;
};

class Inputs {
 public:
  Inputs(const Case& c, float size = 1)
      : c_(c),
        qkv_(random_values(c.tokens() * c.layout.qkv_cols(), 21, size)),
        dout_(random_values(c.tokens() * c.layout.heads * c.layout.head_dim, 22)) {
    offsets_.push_back(0);
    for (const int n : c.lengths) offsets_.push_back(offsets_.back() + n);
  }
  Shape qkv() const { return {c_.tokens(), c_.layout.qkv_cols()}; }
  Shape out() const { return {c_.tokens(), c_.layout.heads * c_.layout.head_dim}; }
  Shape lse() const { return {c_.layout.heads, c_.tokens()}; }
  std::vector<std::byte> qkv_bytes(DType dtype) const { return packed(qkv_, dtype); }
  std::vector<std::byte> dout_bytes(DType dtype) const { return packed(dout_, dtype); }
  ConstTensor offsets() const { return {offsets_.data(), DType::kI32, {static_cast<int64_t>(offsets_.size())}}; }
  Segments segments(ConstTensor offsets) const { return {.offsets = offsets, .uniform = c_.uniform}; }

  Result on_cpu() const {
    Exec cpu;
    Result r{std::vector<float>(static_cast<size_t>(out().count())),
             std::vector<float>(static_cast<size_t>(lse().count())),
             std::vector<float>(static_cast<size_t>(qkv().count()))};
    const Tensor o(r.out.data(), DType::kF32, out()), l(r.lse.data(), DType::kF32, lse());
    const ConstTensor x(qkv_.data(), DType::kF32, qkv()), dy(dout_.data(), DType::kF32, out());
    attention_fwd(cpu, o, l, x, segments(offsets()), c_.layout, c_.scale());
    attention_bwd(cpu, {r.dqkv.data(), DType::kF32, qkv()}, dy, x, o, l, segments(offsets()), c_.layout, c_.scale());
    return r;
  }

 private:
  const Case& c_;
  std::vector<float> qkv_, dout_;
  std::vector<int32_t> offsets_;
};

// The same on a device.
class OnGpu {
 public:
  OnGpu(Device& device, const Case& c, const Inputs& inputs, DType dtype)
      : c_(c),
        x_(device, ConstTensor(inputs.qkv_bytes(dtype).data(), dtype, inputs.qkv())),
        dy_(device, ConstTensor(inputs.dout_bytes(dtype).data(), dtype, inputs.out())),
        offsets_(device, inputs.offsets()),
        out_(device, dtype, inputs.out()),
        lse_(device, DType::kF32, inputs.lse()),
        dx_(device, dtype, inputs.qkv()) {}
  void run(Exec& exec) const {
    const Segments segments{.offsets = offsets_, .uniform = c_.uniform};
    attention_fwd(exec, out_, lse_, x_, segments, c_.layout, c_.scale());
    attention_bwd(exec, dx_, dy_, x_, out_, lse_, segments, c_.layout, c_.scale());
  }
  // Of no more slots.
  void take_documents_of(const Case& other) {
    std::vector<int32_t> offsets(static_cast<size_t>(offsets_.tensor().dim(0)), static_cast<int32_t>(c_.tokens()));
    offsets[0] = 0;
    for (size_t i = 0; i < other.lengths.size(); ++i) offsets[i + 1] = offsets[i] + other.lengths[i];
    offsets_.upload({offsets.data(), DType::kI32, offsets_.tensor().shape});
  }
  Result result() const { return {out_.floats(), lse_.floats(), dx_.floats()}; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = out_.bytes();
    for (const OnDevice* t : {&lse_, &dx_}) {
      const std::vector<std::byte> part = t->bytes();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  const Case& c_;
  OnDevice x_, dy_, offsets_, out_, lse_, dx_;
};

// Columns [begin, end) of every row.
std::vector<float> columns(const std::vector<float>& x, int64_t cols, int64_t begin, int64_t end) {
  std::vector<float> part;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(cols))
    part.insert(part.end(), x.begin() + static_cast<int64_t>(row) + begin, x.begin() + static_cast<int64_t>(row) + end);
  return part;
}

void match_the_cpu(Device& device, Exec& exec) {
  const std::vector<std::byte> poison(size_t{4} << 20, std::byte{0xff});
  for (const Case& c : cases()) {
    const Inputs inputs(c);
    const Result want = inputs.on_cpu();
    const HeadLayout& layout = c.layout;
    const int64_t q = layout.heads * layout.head_dim, k = q + layout.kv_heads * layout.head_dim,
                  cols = layout.qkv_cols();
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(std::string(c.name) + " " + name_of(dtype));
      const bool exact = dtype == DType::kF32;
      device.copy_in(exec.shared_scratch(), poison.data(), static_cast<int64_t>(poison.size()));
      const OnGpu gpu(device, c, inputs, dtype);
      gpu.run(exec);
      const Result got = gpu.result();
      EXPECT_LT(relative_error(got.out, want.out), exact ? 1e-5 : 4e-3);
      EXPECT_LT(relative_error(got.lse, want.lse), 1e-5);
      const double bound = exact ? 1e-5 : 1e-2;
      // One token of a document has no gradient but dv; what stands there is rounding.
      if (c.tokens() > static_cast<int64_t>(c.lengths.size())) {
        EXPECT_LT(relative_error(columns(got.dqkv, cols, 0, q), columns(want.dqkv, cols, 0, q)), bound) << "dq";
        EXPECT_LT(relative_error(columns(got.dqkv, cols, q, k), columns(want.dqkv, cols, q, k)), bound) << "dk";
      } else {
        for (const float x : columns(got.dqkv, cols, 0, k)) ASSERT_LT(std::abs(x), exact ? 1e-4f : 0.2f);
      }
      EXPECT_LT(relative_error(columns(got.dqkv, cols, k, cols), columns(want.dqkv, cols, k, cols)), bound) << "dv";
    }
  }
}

TEST_F(GpuOwnAttention, MatchesTheCpuInFp32) { match_the_cpu(device(), exec()); }

// Outside of deterministic mode, where Hopper's backward pass is fused.
TEST_F(GpuFusedAttention, MatchesTheCpuInFp32) { match_the_cpu(device(), exec()); }

TEST_F(GpuFusedAttention, ServesOtherDocumentsFromAGraph) {
  const Case first{"first", {4, 2, 128}, {300, 1, 129, 0, 64, 18, 0, 0}}, second{"second", {4, 2, 128}, {512}},
      third{"third", {4, 2, 128}, std::vector<int>(8, 64)};
  const Inputs inputs(first);
  OnGpu gpu(device(), first, inputs, DType::kBF16);
  gpu.run(exec());
  const std::unique_ptr<DeviceGraph> graph = device().capture([&] { gpu.run(exec()); });
  for (const Case& c : {second, first, third}) {
    SCOPED_TRACE(c.name);
    gpu.take_documents_of(c);
    graph->launch();
    const Result want = Inputs(c).on_cpu(), got = gpu.result();
    EXPECT_LT(relative_error(got.out, want.out), 4e-3);
    EXPECT_LT(relative_error(got.dqkv, want.dqkv), 1e-2);
  }
}

// More pieces of 128 keys than three for each multiprocessor: a block takes several, one after another.
TEST_F(GpuFusedAttention, BlocksTakeSeveralPieces) {
  const Case c{"many", {16, 8, 128}, random_lengths(24, 600, 12)};
  int64_t pieces = 0;
  for (const int length : c.lengths) pieces += ceil_div(length, 128) * c.layout.kv_heads;
  ASSERT_GT(pieces, 3 * device().info().multiprocessors);
  ASSERT_GT(pieces, 400);
  const Inputs inputs(c);
  Exec roomy(device());
  roomy.reserve_scratch(int64_t{1} << 30);
  const Result want = inputs.on_cpu();
  const OnGpu own(device(), c, inputs, DType::kBF16);
  own.run(roomy);
  EXPECT_LT(relative_error(own.result().out, want.out), 4e-3);
  EXPECT_LT(relative_error(own.result().dqkv, want.dqkv), 1e-2);
  if (device().info().cudnn.empty()) return;
  setenv("MANTISSA_ATTENTION", "cudnn", 1);
  const OnGpu library(device(), c, inputs, DType::kBF16);
  library.run(roomy);
  EXPECT_LT(relative_error(own.result().out, library.result().out), 1e-2);
  EXPECT_LT(relative_error(own.result().dqkv, library.result().dqkv), 2e-2);
}

TEST_F(GpuOwnAttention, RepeatsEveryBit) {
  const std::vector<std::byte> poison(size_t{4} << 20, std::byte{0xff});
  for (const Case& c : cases()) {
    const Inputs inputs(c);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(std::string(c.name) + " " + name_of(dtype));
      const OnGpu first(device(), c, inputs, dtype), second(device(), c, inputs, dtype);
      first.run(exec());
      device().copy_in(exec().shared_scratch(), poison.data(), static_cast<int64_t>(poison.size()));
      const std::unique_ptr<DeviceGraph> graph = device().capture([&] { second.run(exec()); });
      graph->launch();
      EXPECT_TRUE(first.bytes() == second.bytes());
      Case plain = c;
      plain.uniform = 0;  // the hint changes no bit
      const OnGpu third(device(), plain, inputs, dtype);
      third.run(exec());
      EXPECT_TRUE(first.bytes() == third.bytes());
    }
  }
}

// Rows that do not lie at multiples of 16 bytes, as tiles are loaded by, give the same.
TEST_F(GpuOwnAttention, TakesUnalignedAddresses) {
  const Case c{"unaligned", {4, 2, 128}, {200, 1, 300, 77}};
  const Inputs inputs(c);
  const Result want = inputs.on_cpu();
  const auto moved = [&](const std::vector<std::byte>& bytes) {
    std::vector<std::byte> all(8);
    all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  };
  const auto on_device = [&](const std::vector<std::byte>& bytes) {
    return ConstTensor(bytes.data(), DType::kBF16, {static_cast<int64_t>(bytes.size()) / 2});
  };
  const std::vector<std::byte> x = moved(inputs.qkv_bytes(DType::kBF16)), dy = moved(inputs.dout_bytes(DType::kBF16));
  const OnDevice qkv(device(), on_device(x)), dout(device(), on_device(dy)), offsets(device(), inputs.offsets());
  const OnDevice out(device(), DType::kBF16, inputs.out()), lse(device(), DType::kF32, inputs.lse()),
      dqkv(device(), DType::kBF16, inputs.qkv());
  const ConstTensor rows(qkv.as<std::byte>() + 8, DType::kBF16, inputs.qkv()),
      gradient(dout.as<std::byte>() + 8, DType::kBF16, inputs.out());
  const Segments segments = inputs.segments(offsets);
  attention_fwd(exec(), out, lse, rows, segments, c.layout, c.scale());
  attention_bwd(exec(), dqkv, gradient, rows, out, lse, segments, c.layout, c.scale());
  EXPECT_LT(relative_error(out.floats(), want.out), 4e-3);
  EXPECT_LT(relative_error(dqkv.floats(), want.dqkv), 1e-2);
}

// Scores of several thousand: exponentials overflow unless the row's maximum is taken out first.
TEST_F(GpuOwnAttention, StaysFiniteForLargeScores) {
  const Case c{"large", {4, 2, 128}, {200, 1, 300, 77}};
  const Inputs inputs(c, 30);
  const Result want = inputs.on_cpu();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const OnGpu gpu(device(), c, inputs, dtype);
    gpu.run(exec());
    const Result got = gpu.result();
    EXPECT_LT(relative_error(got.out, want.out), 1e-2) << name_of(dtype);
    EXPECT_LT(relative_error(got.lse, want.lse), 1e-5) << name_of(dtype);
    for (const float x : got.dqkv) ASSERT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace mantissa
