// More than 2^31 elements in one tensor: rows behind that place are those of the beginning, to the bit.
#include <cstring>
#include <memory>

#include "ops/activation.h"
#include "ops/loss.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using GpuLarge = GpuTest;

// Device memory without OnDevice's guards, whose copy on the host would take as much there.
struct Release {
  Device* device;
  void operator()(void* p) const { device->release(p); }
};
using Memory = std::unique_ptr<void, Release>;
Memory allocate(Device& device, int64_t bytes) { return {device.allocate(bytes), {&device}}; }

constexpr int64_t kCols = 65536, kRows = 33024, kChunk = 256;  // 129 chunks of rows; 2^31 lies behind the 128th
static_assert(kRows * kCols > int64_t{1} << 31 && kRows % kChunk == 0);

// `rows` rows of `cols` BF16 values, those of one chunk over and over.
Memory repeated_rows(Device& device, int64_t cols, uint64_t seed) {
  const std::vector<std::byte> chunk = packed(random_values(kChunk * cols, seed, 2), DType::kBF16);
  const auto bytes = static_cast<int64_t>(chunk.size());
  Memory memory = allocate(device, kRows / kChunk * bytes);
  for (int64_t i = 0; i < kRows / kChunk; ++i)
    device.copy_in(static_cast<std::byte*>(memory.get()) + i * bytes, chunk.data(), bytes);
  return memory;
}

// Every chunk that is looked at holds the bytes of the first one.
void expect_chunks_alike(Device& device, const Memory& memory, int64_t cols, const char* what) {
  const int64_t bytes = kChunk * cols * 2;
  std::vector<std::byte> first(static_cast<size_t>(bytes)), other(first.size());
  device.copy_out(first.data(), memory.get(), bytes);
  for (const int64_t chunk : {int64_t{63}, int64_t{64}, int64_t{127}, kRows / kChunk - 1}) {
    device.copy_out(other.data(), static_cast<std::byte*>(memory.get()) + chunk * bytes, bytes);
    EXPECT_EQ(std::memcmp(first.data(), other.data(), first.size()), 0) << what << ", chunk " << chunk;
  }
}

TEST_F(GpuLarge, Loss) {
  exec().reserve_scratch(cross_entropy_scratch_bytes(kRows));
  const Memory x = repeated_rows(device(), kCols, 1);
  std::vector<int32_t> labels;
  for (int64_t r = 0; r < kRows; ++r) labels.push_back(static_cast<int32_t>(r % kChunk * 251 % kCols));
  const OnDevice y(device(), ConstTensor(labels.data(), DType::kI32, {kRows}));
  const LossSums zero;
  const OnDevice sums(device(), ConstTensor(&zero, DType::kU8, {int64_t{sizeof zero}}));
  const StepState one{.grad_scale = 1};
  const OnDevice state(device(), ConstTensor(&one, DType::kU8, {int64_t{sizeof one}}));
  const auto sums_now = [&] {
    LossSums now;
    const std::vector<std::byte> raw = sums.bytes();
    std::memcpy(&now, raw.data(), sizeof now);
    return now;
  };
  const OnDevice few(device(), ConstTensor(labels.data(), DType::kI32, {kChunk}));
  cross_entropy(exec(), sums.as<LossSums>(), {x.get(), DType::kBF16, {kChunk, kCols}}, kCols, few, nullptr);
  const double chunk = sums_now().loss;
  cross_entropy(exec(), sums.as<LossSums>(), {x.get(), DType::kBF16, {kRows, kCols}}, kCols, y, state.as<StepState>());
  EXPECT_EQ(sums_now().valid, kChunk + kRows);
  EXPECT_NEAR((sums_now().loss - chunk) / (chunk * (kRows / kChunk)), 1, 1e-9);
  expect_chunks_alike(device(), x, kCols, "gradient");
}

TEST_F(GpuLarge, Swiglu) {
  const int64_t half = kCols / 2;
  const Memory x = repeated_rows(device(), kCols, 2), dy = repeated_rows(device(), half, 3);
  const Memory y = allocate(device(), kRows * half * 2), dx = allocate(device(), kRows * kCols * 2);
  const ConstTensor input(x.get(), DType::kBF16, {kRows, kCols});
  Operand out{.high = {y.get(), DType::kBF16, {kRows, half}}};
  swiglu_fwd(exec(), out, input);
  expect_chunks_alike(device(), y, half, "y");
  Operand gradient{.high = {dx.get(), DType::kBF16, {kRows, kCols}}};
  swiglu_bwd(exec(), gradient, {dy.get(), DType::kBF16, {kRows, half}}, input);
  expect_chunks_alike(device(), dx, kCols, "dx");
}

}  // namespace
}  // namespace mantissa
