// Attention through cuDNN, dense and packed, against the CPU's in FP32 on the same BF16 values, and the choice between
// it and the own kernels.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "ops/attention.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

// Rounding P and out to BF16 leaves 2^-9/√3 each, 1.6e-3 together; backward rounds P, dS, out and the result, and
// dP - Σ dout out cancels: about 4e-3. Both with room for cuDNN's approximate exponentials; a wrong mask, head or
// document is off by more than 1e-1.
constexpr double kForwardBound = 1e-2, kBackwardBound = 2e-2;

// MANTISSA_ATTENTION while it lives.
class Forced {
 public:
  explicit Forced(const char* which) { setenv("MANTISSA_ATTENTION", which, 1); }
  ~Forced() { unsetenv("MANTISSA_ATTENTION"); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;
};

struct Case {
  const char* name;
  HeadLayout layout;
  std::vector<int> lengths;  // of the documents
  int empty = 0;             // slots behind them
  int64_t longest = 0, uniform = 0;

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t out_cols() const { return layout.heads * layout.head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(layout.head_dim)); }
  std::vector<int32_t> offsets(bool with_empty) const {
    std::vector<int32_t> s{0};
    for (const int n : lengths) s.push_back(s.back() + n);
    if (with_empty) s.insert(s.end(), static_cast<size_t>(empty), s.back());
    return s;
  }
};

const Case kCases[] = {
    {"equal_rows", {16, 8, 128}, {160, 160}, 0, 160, 160},
    {"equal_rows_by_the_longest", {16, 8, 128}, {128, 128, 128}, 0, 128, 0},
    {"one_row_group_4", {32, 8, 128}, {320}, 0, 0, 320},
    {"one_odd_row_group_6", {12, 2, 128}, {131}, 0, 131, 131},
    {"equal_rows_head_dim_64", {12, 12, 64}, {256, 256, 256}, 0, 256, 256},
    {"equal_rows_head_dim_80", {4, 2, 80}, {100, 100}, 0, 100, 100},
    {"equal_rows_head_dim_96", {6, 6, 96}, {72, 72}, 0, 72, 72},
    {"equal_rows_head_dim_256", {4, 2, 256}, {129, 129}, 0, 129, 129},
    {"packed_one_a_row", {16, 8, 128}, {200, 256}, 5, 256, 0},
    {"packed_six_a_row", {16, 8, 128}, {30, 70, 1, 64, 128, 91, 200, 2, 65, 63, 53, 1}, 12, 384, 0},
    {"packed_thirteen_a_row", {16, 8, 128}, {5, 17, 33, 1, 64, 20, 31, 9, 80, 2, 3, 7, 112}, 0, 112, 0},
    {"packed_group_4", {32, 8, 128}, {129, 7, 64, 200}, 60, 256, 0},
    {"packed_group_6_unknown_longest", {12, 2, 128}, {77, 130, 50}, 1, 0, 0},
    {"packed_head_dim_64", {12, 12, 64}, {256, 100, 3, 153, 129, 127}, 2, 256, 0},
    {"packed_group_4_head_dim_64", {32, 8, 64}, {100, 31, 125}, 13, 125, 0},
    {"packed_head_dim_80", {4, 2, 80}, {100, 31}, 3, 100, 0},
    {"packed_empty_between", {4, 4, 64}, {40, 0, 50, 0, 0, 38}, 2, 64, 0},
};

// Columns [begin, begin + n) of rows of `cols`.
std::vector<float> columns(const std::vector<float>& x, int64_t cols, int64_t begin, int64_t n) {
  std::vector<float> part;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(cols))
    part.insert(part.end(), x.begin() + static_cast<int64_t>(row) + begin,
                x.begin() + static_cast<int64_t>(row) + begin + n);
  return part;
}

struct Result {
  std::vector<float> out, dqkv;
};

Result on_cpu(const Case& c, const std::vector<float>& qkv, const std::vector<float>& dout) {
  Exec cpu;
  const int64_t t = c.tokens();
  const std::vector<int32_t> offsets = c.offsets(false);
  Result r{.out = std::vector<float>(static_cast<size_t>(t * c.out_cols())), .dqkv = std::vector<float>(qkv.size())};
  std::vector<float> lse(static_cast<size_t>(t * c.layout.heads));
  const Segments segments{.offsets = {offsets.data(), DType::kI32, {static_cast<int64_t>(offsets.size())}}};
  const ConstTensor x(qkv.data(), DType::kF32, {t, c.layout.qkv_cols()});
  const Tensor out(r.out.data(), DType::kF32, {t, c.out_cols()}), sums(lse.data(), DType::kF32, {c.layout.heads, t});
  attention_fwd(cpu, out, sums, x, segments, c.layout, c.scale());
  attention_bwd(cpu, {r.dqkv.data(), DType::kF32, x.shape}, {dout.data(), DType::kF32, out.shape}, x, out, sums,
                segments, c.layout, c.scale());
  return r;
}

// A case's tensors on the device, and its two passes.
class OnGpu {
 public:
  OnGpu(Device& device, const Case& c, const std::vector<float>& qkv, const std::vector<float>& dout)
      : case_(c),
        host_offsets_(c.offsets(true)),
        offsets_(device, ConstTensor(host_offsets_.data(), DType::kI32, {static_cast<int64_t>(host_offsets_.size())})),
        qkv_(device, DType::kBF16, {c.tokens(), c.layout.qkv_cols()}),
        dqkv_(device, DType::kBF16, qkv_.tensor().shape),
        out_(device, DType::kBF16, {c.tokens(), c.out_cols()}),
        dout_(device, DType::kBF16, out_.tensor().shape),
        lse_(device, DType::kF32, {c.layout.heads, c.tokens()}) {
    qkv_.upload({packed(qkv, DType::kBF16).data(), DType::kBF16, qkv_.tensor().shape});
    dout_.upload({packed(dout, DType::kBF16).data(), DType::kBF16, dout_.tensor().shape});
  }

  void forward(Exec& exec) { attention_fwd(exec, out_, lse_, qkv_, segments(), case_.layout, case_.scale()); }
  void backward(Exec& exec) {
    attention_bwd(exec, dqkv_, dout_, qkv_, out_, lse_, segments(), case_.layout, case_.scale());
  }
  void take_documents_of(const Case& other) {
    host_offsets_ = other.offsets(true);
    offsets_.upload({host_offsets_.data(), DType::kI32, offsets_.tensor().shape});
  }
  void clear(Device& device) {
    for (const OnDevice* x : {&out_, &dqkv_, &lse_}) device.zero(x->tensor().data, x->tensor().bytes());
  }
  Result result() const { return {out_.floats(), dqkv_.floats()}; }
  std::vector<std::byte> out_bytes() const { return out_.bytes(); }

 private:
  Segments segments() const {
    return {.offsets = offsets_.tensor(), .longest = case_.longest, .uniform = case_.uniform};
  }

  Case case_;
  std::vector<int32_t> host_offsets_;
  OnDevice offsets_, qkv_, dqkv_, out_, dout_, lse_;
};

struct Values {
  explicit Values(const Case& c)
      : qkv(random_values(c.tokens() * c.layout.qkv_cols(), 1)), dout(random_values(c.tokens() * c.out_cols(), 2)) {}
  std::vector<float> qkv, dout;
};

void expect_near(const Case& c, const Result& gpu, const Result& expected, double forward, double backward) {
  const int64_t cols = c.layout.qkv_cols(), q = c.out_cols(), kv = c.layout.kv_heads * c.layout.head_dim;
  const auto error = [&](int64_t begin, int64_t n) {
    return relative_error(columns(gpu.dqkv, cols, begin, n), columns(expected.dqkv, cols, begin, n));
  };
  EXPECT_LT(relative_error(gpu.out, expected.out), forward) << c.name;
  EXPECT_LT(error(0, q), backward) << c.name << " dq";
  EXPECT_LT(error(q, kv), backward) << c.name << " dk";
  EXPECT_LT(error(q + kv, kv), backward) << c.name << " dv";
}

class GpuAttentionCudnn : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().info().cudnn.empty()) GTEST_SKIP() << "no cuDNN: " << device().info().cudnn_absence;
  }
};

TEST_F(GpuAttentionCudnn, AgreesWithTheCpu) {
  for (const Case& c : kCases) {
    const Values v(c);
    const Result expected = on_cpu(c, v.qkv, v.dout);
    for (const char* which : {"cudnn", ""}) {  // not forced, packed gradients may be the own kernel's
      SCOPED_TRACE(which);
      const Forced forced(which);
      OnGpu gpu(device(), c, v.qkv, v.dout);
      gpu.forward(exec());
      gpu.backward(exec());
      expect_near(c, gpu.result(), expected, kForwardBound, kBackwardBound);
    }
  }
}

TEST_F(GpuAttentionCudnn, AgreesWithTheOwnKernels) {
  for (const Case& c : kCases) {
    const Values v(c);
    OnGpu gpu(device(), c, v.qkv, v.dout), own(device(), c, v.qkv, v.dout);
    gpu.forward(exec());
    gpu.backward(exec());
    const Forced forced("own");
    own.forward(exec());
    own.backward(exec());
    expect_near(c, gpu.result(), own.result(), kForwardBound, kBackwardBound);
  }
}

// A run's plans are the next one's: by their names, which are said as "SHAPE -> PLAN".
TEST_F(GpuAttentionCudnn, ARecordFixesThePlans) {
  const Case& c = kCases[0];
  const Values v(c);
  const Forced forced("cudnn");
  std::vector<std::string> lines;
  std::vector<std::byte> out;
  for (int start = 0; start < 2; ++start) {
    const std::unique_ptr<Device> opened = open_device({});
    Exec exec(*opened);
    exec.reserve_scratch(int64_t{256} << 20);
    opened->set_attention_plans(lines);
    ::testing::internal::CaptureStderr();
    OnGpu gpu(*opened, c, v.qkv, v.dout);
    gpu.forward(exec);
    gpu.backward(exec);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    if (start == 0) {
      lines = opened->attention_plans(), out = gpu.out_bytes();
      ASSERT_EQ(lines.size(), 2u);
      EXPECT_TRUE(lines[0].starts_with("attention_bwd bf16 2x160 tokens 16+8 heads of 128 scale ")) << lines[0];
      EXPECT_TRUE(lines[1].starts_with("attention_fwd bf16 2x160 tokens 16+8 heads of 128 scale ")) << lines[1];
      continue;
    }
    EXPECT_EQ(opened->attention_plans(), lines);
    EXPECT_EQ(gpu.out_bytes(), out);
  }
  // A name that cuDNN does not have is said, and another plan taken.
  const std::unique_ptr<Device> opened = open_device({});
  Exec exec(*opened);
  exec.reserve_scratch(int64_t{256} << 20);
  opened->set_attention_plans({lines[1].substr(0, lines[1].find(" -> ")) + " -> no_such_plan"});
  ::testing::internal::CaptureStderr();
  OnGpu gpu(*opened, c, v.qkv, v.dout);
  gpu.forward(exec);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no_such_plan"), std::string::npos);
  EXPECT_EQ(gpu.out_bytes(), out);
  for (const char* line : {"", "attention_fwd bf16", "attention_fwd bf16 -> ", "gemm -> plan"}) {
    try {
      opened->set_attention_plans({line});
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kInput) << line;
    }
  }
}

// One graph serves other documents of the same capacity.
void replay_as_a_graph(Device& device, Exec& exec) {
  const Case first{"first", {16, 8, 128}, {30, 70, 1, 64, 128, 91}, 8, 256, 0};
  const Case second{"second", {16, 8, 128}, {250, 3, 131}, 11, 256, 0};
  const Case equal{"equal", {12, 12, 64}, {128, 128}, 0, 128, 128};
  for (const Case& c : {first, equal}) {
    const Values v(c);
    OnGpu gpu(device, c, v.qkv, v.dout);
    const auto both = [&] {
      gpu.forward(exec);
      gpu.backward(exec);
    };
    both();
    const Result eager = gpu.result();
    const std::vector<std::byte> out = gpu.out_bytes();
    const std::unique_ptr<DeviceGraph> graph = device.capture(both);
    for (int launch = 0; launch < 2; ++launch) {
      gpu.clear(device);
      graph->launch();
      EXPECT_EQ(gpu.out_bytes(), out) << c.name;
      // FP32 sums in another order, then rounded: a few last bits.
      expect_near(c, gpu.result(), eager, 1e-9, 1e-3);
    }
    if (c.uniform) continue;
    gpu.take_documents_of(second);
    gpu.clear(device);
    graph->launch();
    expect_near(c, gpu.result(), on_cpu(second, v.qkv, v.dout), kForwardBound, kBackwardBound);
  }
}

TEST_F(GpuAttentionCudnn, ReplaysAsAGraph) {
  for (const char* which : {"cudnn", ""}) {
    SCOPED_TRACE(which);
    const Forced forced(which);
    replay_as_a_graph(device(), exec());
  }
}

TEST_F(GpuAttentionCudnn, ScratchBoundHoldsForTrainingSizes) {
  struct Sizes {
    HeadLayout layout;
    int64_t tokens, longest, slots;
  };
  for (const Sizes& s : {Sizes{{16, 8, 128}, 16384, 4096, 4}, Sizes{{16, 8, 128}, 16384, 4096, 52},
                         Sizes{{32, 8, 128}, 8192, 8192, 1}, Sizes{{32, 8, 128}, 8192, 1024, 64},
                         Sizes{{12, 2, 128}, 16384, 1024, 16}, Sizes{{12, 2, 128}, 16384, 1000, 200},
                         Sizes{{12, 12, 64}, 32768, 1024, 32}, Sizes{{12, 12, 64}, 32768, 1024, 256},
                         Sizes{{40, 8, 128}, 8192, 1024, 8}, Sizes{{40, 8, 128}, 8192, 1024, 64}}) {
    const int64_t bytes = attention_scratch_bytes(DType::kBF16, s.tokens, s.longest, s.slots, s.layout);
    Exec exact(device());
    exact.reserve_scratch(bytes);
    std::vector<int32_t> offsets(static_cast<size_t>(s.slots) + 1);
    for (size_t i = 0; i < offsets.size(); ++i)
      offsets[i] = static_cast<int32_t>(std::min(s.tokens, static_cast<int64_t>(i) * s.longest));
    const int64_t documents = (s.tokens + s.longest - 1) / s.longest;
    ASSERT_LE(documents, s.slots);
    const OnDevice ends(device(), ConstTensor(offsets.data(), DType::kI32, {s.slots + 1}));
    const OnDevice qkv(device(), DType::kBF16, {s.tokens, s.layout.qkv_cols()});
    const OnDevice dqkv(device(), DType::kBF16, qkv.tensor().shape);
    const OnDevice out(device(), DType::kBF16, {s.tokens, s.layout.heads * s.layout.head_dim});
    const OnDevice lse(device(), DType::kF32, {s.layout.heads, s.tokens});
    device().zero(qkv.tensor().data, qkv.tensor().bytes());
    const Segments segments{.offsets = ends.tensor(), .longest = s.longest};
    for (const char* which : {"cudnn", "own", ""}) {
      const Forced forced(which);
      EXPECT_NO_THROW(attention_fwd(exact, out, lse, qkv, segments, s.layout, 0.1f)) << which << s.slots;
      EXPECT_NO_THROW(attention_bwd(exact, dqkv, out, qkv, out, lse, segments, s.layout, 0.1f)) << which << s.slots;
    }
    device().synchronize();
  }
}

TEST_F(GpuAttentionCudnn, RefusesWhatItCannotDo) {
  const Case c{"odd_head_dim", {2, 1, 24}, {40, 9}, 0, 40, 0};
  const Values v(c);
  OnGpu gpu(device(), c, v.qkv, v.dout);
  {
    const Forced cudnn("cudnn");
    try {
      gpu.forward(exec());
      ADD_FAILURE() << "head_dim 24 was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kUnavailable);
      EXPECT_NE(std::string(error.what()).find("multiple of 16"), std::string::npos) << error.what();
    }
  }
  gpu.forward(exec());
  gpu.backward(exec());
  expect_near(c, gpu.result(), on_cpu(c, v.qkv, v.dout), kForwardBound, kBackwardBound);
  const Forced unknown("fast");
  try {
    gpu.forward(exec());
    ADD_FAILURE() << "MANTISSA_ATTENTION=fast was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kUsage) << error.what();
  }
}

using DeterministicGpuAttention = DeterministicGpuTest;

TEST_F(DeterministicGpuAttention, TakesTheOwnKernels) {
  const Case& c = kCases[0];
  const Values v(c);
  OnGpu gpu(device(), c, v.qkv, v.dout), own(device(), c, v.qkv, v.dout);
  gpu.forward(exec());
  gpu.backward(exec());
  {
    const Forced forced("own");
    own.forward(exec());
    own.backward(exec());
  }
  EXPECT_EQ(gpu.result().out, own.result().out);
  EXPECT_EQ(gpu.result().dqkv, own.result().dqkv);
  const Forced cudnn("cudnn");
  EXPECT_THROW(gpu.forward(exec()), Error);
}

}  // namespace
}  // namespace mantissa
