// Where a benchmark runs: memory of a GPU or of the host filled with random values, and a clock.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tensor/arena.h"
#include "tensor/exec.h"

namespace mantissa {

class BenchStage : public Allocator {
 public:
  // null: the CPU.
  explicit BenchStage(Device* device);
  ~BenchStage() override;
  BenchStage(const BenchStage&) = delete;
  BenchStage& operator=(const BenchStage&) = delete;

  Exec& exec() { return exec_; }
  Device* device() const { return device_; }
  // At least so much scratch for ops on a GPU.
  void reserve_scratch(int64_t bytes);

  // Memory until clear(). Element i of two stages' random tensors with one seed is the same.
  Tensor zeros(DType dtype, Shape shape);
  Tensor normal(DType dtype, Shape shape, uint64_t seed);  // about normal(0, 1); F32 or BF16
  // Element `index` of normal(dtype, ..., seed).
  double normal_at(DType dtype, uint64_t seed, int64_t index);
  Tensor positive(DType dtype, Shape shape, uint64_t seed);   // its absolute value
  Tensor upload(DType dtype, Shape shape, const void* host);  // any dtype
  Tensor integers(const std::vector<int32_t>& values);
  Tensor tensor(std::string_view purpose, DType dtype, Shape shape) override;  // zeros
  void clear();

  // F32, BF16 or U8 as numbers.
  std::vector<float> read(ConstTensor x);
  void synchronize();
  // Microseconds of `work`, by the device's events or the host's clock.
  double time_us(const std::function<void()>& work);

 private:
  std::byte* allocate(int64_t bytes);
  Tensor fill(DType dtype, Shape shape, uint64_t seed, const std::vector<std::byte>& pool);
  const std::vector<std::byte>& pool(DType dtype, bool positive);

  Device* device_;
  Exec exec_;
  std::vector<std::byte*> blocks_;
  // Random values that tensors are cut from, [f32, bf16] x [normal, positive].
  std::vector<std::byte> pools_[4];
};

// Bytes a second (read + write) of copies of 1 GiB on a GPU, of 128 MiB on a CPU with all threads.
double copy_rate(BenchStage& stage);

// Sets of buffers that repetitions rotate: until they exceed kCaches bytes, four times an H200's second-level cache.
constexpr double kCaches = 200e6;
constexpr size_t kMaxSets = 8;

struct BenchTiming {
  double us = 0;      // median
  double spread = 0;  // (upper - lower quartile) / median
  int repeats = 0;    // of the median
};

// `work(i)` runs the i-th of endless repetitions, which rotate their buffers. Warm for `warm_s`, then repeats until
// `seconds` are over, at least five; on a GPU one repeat is as many runs back to back as fill two milliseconds.
BenchTiming time_repeats(BenchStage& stage, const std::function<void(int64_t)>& work, double warm_s, double seconds);

// Values of a large quantity of random integers below `limit`, the same in every run.
std::vector<int32_t> random_integers(int64_t count, int64_t limit, uint64_t seed);

}  // namespace mantissa
