#include "app/bench/stage.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "numerics/bf16.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr int64_t kPool = (int64_t{1} << 22) + 3;  // values; odd, so that rows of a matrix differ
constexpr int64_t kAlignment = 256;

uint64_t mix(uint64_t x) {  // Steele et al. 2014, SplitMix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// About normal(0, 1): the sum of four uniform 16-bit numbers, whose variance is 1/3.
float normal_value(uint64_t i) {
  const uint64_t r = mix(i);
  const auto sum = static_cast<float>((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) / 65536 - 2;
  return sum * 1.7320508f;
}

int64_t pool_begin(uint64_t seed) { return static_cast<int64_t>(mix(~seed) % kPool); }

std::vector<std::byte> make_pool(DType dtype, bool positive) {
  std::vector<std::byte> pool(static_cast<size_t>(bytes_of(dtype, kPool)));
  parallel_for(kPool, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = normal_value(static_cast<uint64_t>(i)), x = positive ? std::abs(value) : value;
      if (dtype == DType::kF32)
        reinterpret_cast<float*>(pool.data())[i] = x;
      else
        reinterpret_cast<bf16*>(pool.data())[i] = to_bf16(x);
    }
  });
  return pool;
}

}  // namespace

BenchStage::BenchStage(Device* device) : device_(device), exec_(device ? Exec(*device) : Exec()) {}

BenchStage::~BenchStage() { clear(); }

void BenchStage::reserve_scratch(int64_t bytes) {
  if (device_ && exec_.shared_scratch_bytes() < bytes) exec_.reserve_scratch(bytes);
}

std::byte* BenchStage::allocate(int64_t bytes) {
  const int64_t room = ceil_div(std::max<int64_t>(bytes, 1), kAlignment) * kAlignment;
  std::byte* p = nullptr;
  if (device_) {
    p = static_cast<std::byte*>(device_->allocate(room));
  } else {
    p = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(room)));
    if (!p) fail(Exit::kMemory, "memory: {} bytes could not be allocated", room);
    parallel_for(room, 1 << 20,
                 [p](int64_t begin, int64_t end) { std::memset(p + begin, 0, static_cast<size_t>(end - begin)); });
  }
  blocks_.push_back(p);
  return p;
}

void BenchStage::clear() {
  for (std::byte* p : blocks_) device_ ? device_->release(p) : std::free(p);
  blocks_.clear();
}

Tensor BenchStage::zeros(DType dtype, Shape shape) { return {allocate(bytes_of(dtype, shape.count())), dtype, shape}; }

Tensor BenchStage::tensor(std::string_view, DType dtype, Shape shape) { return zeros(dtype, shape); }

Tensor BenchStage::upload(DType dtype, Shape shape, const void* host) {
  const Tensor x = zeros(dtype, shape);
  if (device_)
    device_->copy_in(x.data, host, x.bytes());
  else
    std::memcpy(x.data, host, static_cast<size_t>(x.bytes()));
  return x;
}

Tensor BenchStage::integers(const std::vector<int32_t>& values) {
  return upload(DType::kI32, {static_cast<int64_t>(values.size())}, values.data());
}

// Value i is pool[(pool_begin(seed) + i) mod kPool].
Tensor BenchStage::fill(DType dtype, Shape shape, uint64_t seed, const std::vector<std::byte>& pool) {
  const Tensor x = zeros(dtype, shape);
  const int64_t n = shape.count(), first = pool_begin(seed);
  auto* to = static_cast<std::byte*>(x.data);
  const auto put = [&](int64_t at, int64_t from, int64_t count) {
    std::byte* out = to + bytes_of(dtype, at);
    const std::byte* in = pool.data() + bytes_of(dtype, from);
    if (device_)
      device_->copy_in(out, in, bytes_of(dtype, count));
    else
      std::memcpy(out, in, static_cast<size_t>(bytes_of(dtype, count)));
  };
  const int64_t head = std::min(n, kPool - first), one = std::min(n, kPool);
  put(0, first, head);
  if (one > head) put(head, 0, one - head);
  // What follows repeats the first kPool values.
  for (int64_t at = one; at < n;) {
    const int64_t count = std::min(at / kPool * kPool, n - at);
    if (device_)
      device_->copy_within(to + bytes_of(dtype, at), to, bytes_of(dtype, count));
    else
      std::memcpy(to + bytes_of(dtype, at), to, static_cast<size_t>(bytes_of(dtype, count)));
    at += count;
  }
  return x;
}

const std::vector<std::byte>& BenchStage::pool(DType dtype, bool positive) {
  check(dtype == DType::kF32 || dtype == DType::kBF16, "random values: dtype is {}", name_of(dtype));
  std::vector<std::byte>& values = pools_[(dtype == DType::kF32 ? 0 : 1) + (positive ? 2 : 0)];
  if (values.empty()) values = make_pool(dtype, positive);
  return values;
}

Tensor BenchStage::normal(DType dtype, Shape shape, uint64_t seed) {
  return fill(dtype, shape, seed, pool(dtype, false));
}

double BenchStage::normal_at(DType dtype, uint64_t seed, int64_t index) {
  const std::byte* values = pool(dtype, false).data();
  const int64_t at = (pool_begin(seed) + index) % kPool;
  return dtype == DType::kF32 ? double{reinterpret_cast<const float*>(values)[at]}
                              : double{to_float(reinterpret_cast<const bf16*>(values)[at])};
}

Tensor BenchStage::positive(DType dtype, Shape shape, uint64_t seed) {
  return fill(dtype, shape, seed, pool(dtype, true));
}

std::vector<float> BenchStage::read(ConstTensor x) {
  std::vector<std::byte> raw(static_cast<size_t>(x.bytes()));
  if (device_)
    device_->copy_out(raw.data(), x.data, x.bytes());
  else
    std::memcpy(raw.data(), x.data, raw.size());
  std::vector<float> out(static_cast<size_t>(x.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    if (x.dtype == DType::kF32)
      out[i] = reinterpret_cast<const float*>(raw.data())[i];
    else if (x.dtype == DType::kBF16)
      out[i] = to_float(reinterpret_cast<const bf16*>(raw.data())[i]);
    else
      out[i] = static_cast<float>(std::to_integer<uint8_t>(raw[i]));
  }
  return out;
}

void BenchStage::synchronize() {
  if (device_) device_->synchronize();
}

double BenchStage::time_us(const std::function<void()>& work) {
  if (device_) return device_->time_us(work);
  const Clock::time_point begin = Clock::now();
  work();
  return since(begin) * 1e6;
}

BenchTiming time_repeats(BenchStage& stage, const std::function<void(int64_t)>& work, double warm_s, double seconds) {
  int64_t next = 0;
  const auto group = [&](int64_t runs) {
    return stage.time_us([&] {
      for (int64_t i = 0; i < runs; ++i) work(next++);
    }) / static_cast<double>(runs);
  };
  constexpr double kGroupUs = 2000;
  double once = group(1);
  int64_t runs = 1;
  const Clock::time_point warm = Clock::now();
  do {
    once = std::min(once, group(runs));
    if (stage.device()) runs = std::clamp<int64_t>(static_cast<int64_t>(kGroupUs / std::max(once, 1.0)), 1, 500);
  } while (since(warm) < warm_s);
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  while (times.size() < 5 || since(begin) < seconds) times.push_back(group(runs));
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  return {
      .us = times[n / 2], .spread = (times[n * 3 / 4] - times[n / 4]) / times[n / 2], .repeats = static_cast<int>(n)};
}

double copy_rate(BenchStage& stage) {
  const int64_t bytes = stage.device() ? int64_t{1} << 30 : int64_t{1} << 27;
  BenchStage memory(stage.device());
  const Tensor from = memory.normal(DType::kBF16, {bytes / 2}, 1), to = memory.zeros(DType::kBF16, {bytes / 2});
  const auto copy = [&](int64_t) {
    if (stage.device()) {
      stage.device()->copy_within(to.data, from.data, bytes);
      return;
    }
    parallel_for(bytes, 1 << 20, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<std::byte*>(to.data) + begin, static_cast<const std::byte*>(from.data) + begin,
                  static_cast<size_t>(end - begin));
    });
  };
  const BenchTiming timing = time_repeats(stage, copy, 0.3, 0.2);
  return 2 * static_cast<double>(bytes) / timing.us * 1e6;
}

std::vector<int32_t> random_integers(int64_t count, int64_t limit, uint64_t seed) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] =
        static_cast<int32_t>(mix(mix(seed) + static_cast<uint64_t>(i)) % static_cast<uint64_t>(limit));
  return values;
}

}  // namespace mantissa
