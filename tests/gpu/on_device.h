// What tests of the GPU share. Without a GPU they are skipped, and say why.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tensor/exec.h"

namespace mantissa {

// The device of this process, opened once (deterministic or not); null and `absence` where there is none.
Device* shared_device(bool deterministic, std::string& absence);

// Memory of a device with a tensor's shape, behind a guard of 256 bytes on both sides that the destructor checks: an op
// that writes outside its tensor fails the test.
class OnDevice {
 public:
  OnDevice(Device& device, DType dtype, Shape shape);  // poisoned with 0xff bytes: NaN in every float
  OnDevice(Device& device, ConstTensor host);          // uploaded
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  operator Tensor() const { return tensor_; }       // NOLINT: implicit by design
  operator ConstTensor() const { return tensor_; }  // NOLINT: implicit by design
  Tensor tensor() const { return tensor_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(tensor_.data);
  }
  void upload(ConstTensor host);
  std::vector<std::byte> bytes() const;
  std::vector<float> floats() const;  // F32 or BF16

 private:
  Device& device_;
  std::byte* base_;
  Tensor tensor_;
};

// ‖a - b‖ / ‖b‖ in double; infinite where a value of `a` is not finite.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

// Pseudo-random values about normal(0, scale), rounded to BF16 where `bf16_values`; the same in every run.
std::vector<float> random_values(int64_t count, uint64_t seed, float scale = 1, bool bf16_values = true);
// The bytes of `values` in `dtype` (F32 or BF16).
std::vector<std::byte> packed(const std::vector<float>& values, DType dtype);

// A test with `device()` and `exec()`.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string absence;
    device_ = shared_device(deterministic_, absence);
    if (!device_) GTEST_SKIP() << "no GPU: " << absence;
    exec_ = std::make_unique<Exec>(*device_);
    exec_->reserve_scratch(int64_t{256} << 20);
  }
  Device& device() { return *device_; }
  Exec& exec() { return *exec_; }

  bool deterministic_ = false;

 private:
  Device* device_ = nullptr;
  std::unique_ptr<Exec> exec_;
};

class DeterministicGpuTest : public GpuTest {
 protected:
  DeterministicGpuTest() { deterministic_ = true; }
};

}  // namespace mantissa
