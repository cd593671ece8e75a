// Scaling state moved on the GPU: the bits of the CPU's.
#include "ops/delayed_scaling.h"

#include <cstring>
#include <limits>

#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// Slots [count] whose histories are columns of [length, count], in host memory and in the device's.
class State {
 public:
  State(int64_t length, int64_t count, bool most_recent, uint64_t seed)
      : length_(length), count_(count), most_recent_(most_recent) {
    for (const float v : random_values(length * count, seed, 3, false)) history.push_back(std::abs(v));
    for (const float v : random_values(count, seed + 1, 3, false)) scales.push_back(std::abs(v));
    next.assign(static_cast<size_t>(count), -1.0f);
  }
  std::vector<DelayedSlot> slots(float* scale, float* to_come, float* h) const {
    std::vector<DelayedSlot> all;
    for (int64_t i = 0; i < count_; ++i)
      all.push_back({.scale = scale + i,
                     .next = to_come + i,
                     .history = h + i,
                     .length = length_,
                     .stride = count_,
                     .numerator = i % 2 ? 57344.0f : 448.0f,
                     .most_recent = most_recent_});
    return all;
  }
  static ConstTensor view(const std::vector<float>& v) {
    return {v.data(), DType::kF32, {static_cast<int64_t>(v.size())}};
  }

  std::vector<float> history, scales, next;

 private:
  int64_t length_, count_;
  bool most_recent_;
};

class GpuDelayedScaling : public GpuTest {
 protected:
  // `updates` rounds with amaxes of every kind; all state and the first fault after each.
  void expect_cpu(int64_t length, bool most_recent) {
    SCOPED_TRACE(fmt::format("length {} most_recent {}", length, most_recent));
    constexpr int64_t kCount = 7;
    State state(length, kCount, most_recent, 5);
    const OnDevice scales(device(), State::view(state.scales)), next(device(), State::view(state.next)),
        history(device(), State::view(state.history));
    std::vector<DelayedSlot> host = state.slots(state.scales.data(), state.next.data(), state.history.data());
    const std::vector<DelayedSlot> there = state.slots(scales.as<float>(), next.as<float>(), history.as<float>());
    const auto bytes = static_cast<int64_t>(there.size() * sizeof(DelayedSlot));
    const OnDevice table(device(), ConstTensor(there.data(), DType::kU8, {bytes}));
    uint32_t fault = 0;
    const OnDevice fault_there(device(), ConstTensor(&fault, DType::kI32, {1}));
    const DelayedSlots on_cpu{host.data(), kCount, &fault},
        on_gpu{table.as<DelayedSlot>(), kCount, fault_there.as<uint32_t>()};
    const float amaxes[] = {0.0f, 2.5f, kInf, 1e-38f, kNan, 3e38f, 700.0f};
    for (int round = 0; round < 9; ++round) {
      for (int64_t i = 0; i < kCount; ++i)  // the first rounds are finite in the first slots
        state.history[static_cast<size_t>(i)] =
            round < 3 && i < 5 ? 1.0f + static_cast<float>(round * i) : amaxes[(i + round) % 7];
      device().copy_in(history.as<float>(), state.history.data(), kCount * 4);
      const int64_t split = round % (kCount + 1);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, split}, {split, kCount}}) {
        update_scales(cpu, on_cpu, begin, end);
        update_scales(exec(), on_gpu, begin, end);
      }
      EXPECT_EQ(scales.bytes(), bytes_of_host(state.scales)) << "a scale moved before it was published";
      publish_scales(cpu, on_cpu);
      publish_scales(exec(), on_gpu);
      EXPECT_EQ(scales.bytes(), bytes_of_host(state.scales)) << "round " << round;
      EXPECT_EQ(next.bytes(), bytes_of_host(state.next)) << "round " << round;
      EXPECT_EQ(history.bytes(), bytes_of_host(state.history)) << "round " << round;
      uint32_t found = 0;
      device().copy_out(&found, fault_there.as<uint32_t>(), sizeof found);
      EXPECT_EQ(found, fault) << "round " << round;
    }
    EXPECT_NE(fault, 0u);
    std::vector<DelayedSlot> back(there.size());
    device().copy_out(back.data(), table.as<DelayedSlot>(), bytes);
    for (size_t i = 0; i < back.size(); ++i)
      EXPECT_EQ(0, std::memcmp(&back[i].fault, &host[i].fault, sizeof host[i].fault)) << "slot " << i;
  }
  static std::vector<std::byte> bytes_of_host(const std::vector<float>& v) {
    const auto* p = reinterpret_cast<const std::byte*>(v.data());
    return {p, p + v.size() * sizeof(float)};
  }

  Exec cpu;
};

TEST_F(GpuDelayedScaling, MovesAsTheCpu) {
  for (const int64_t length : {1, 2, 3, 4, 256, 257, 258, 1024, 1300})
    for (const bool most_recent : {false, true}) expect_cpu(length, most_recent);
}

}  // namespace
}  // namespace mantissa
