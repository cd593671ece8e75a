#include "tests/gpu/on_device.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/philox.h"
#include "numerics/bf16.h"

namespace mantissa {
namespace {

constexpr int64_t kGuard = 256;  // bytes on both sides
constexpr int kPoison = 0xff;

}  // namespace

Device* shared_device(bool deterministic, std::string& absence) {
  static std::string why;
  static std::unique_ptr<Device> devices[2];
  static const int count = device_count(why);
  absence = why;
  if (count == 0) return nullptr;
  std::unique_ptr<Device>& device = devices[deterministic ? 1 : 0];
  if (!device) device = open_device({.deterministic = deterministic, .search = false});
  return device.get();
}

OnDevice::OnDevice(Device& device, DType dtype, Shape shape) : device_(device) {
  const int64_t bytes = bytes_of(dtype, shape.count());
  base_ = static_cast<std::byte*>(device.allocate(bytes + 2 * kGuard));
  tensor_ = Tensor(base_ + kGuard, dtype, shape);
  const std::vector<std::byte> poison(static_cast<size_t>(bytes + 2 * kGuard), std::byte{kPoison});
  device.copy_in(base_, poison.data(), bytes + 2 * kGuard);
}

OnDevice::OnDevice(Device& device, ConstTensor host) : OnDevice(device, host.dtype, host.shape) { upload(host); }

OnDevice::~OnDevice() {
  std::vector<std::byte> guard(static_cast<size_t>(kGuard));
  for (const std::byte* at : {base_, base_ + kGuard + tensor_.bytes()}) {
    device_.copy_out(guard.data(), at, kGuard);
    for (const std::byte b : guard)
      if (b != std::byte{kPoison}) {
        ADD_FAILURE() << "bytes outside of " << tensor_.str() << " were written";
        break;
      }
  }
  device_.release(base_);
}

void OnDevice::upload(ConstTensor host) {
  check(host.bytes() == tensor_.bytes(), "upload: {} into {}", host, tensor_);
  device_.copy_in(tensor_.data, host.data, host.bytes());
}

std::vector<std::byte> OnDevice::bytes() const {
  std::vector<std::byte> out(static_cast<size_t>(tensor_.bytes()));
  device_.copy_out(out.data(), tensor_.data, tensor_.bytes());
  return out;
}

std::vector<float> OnDevice::floats() const {
  const std::vector<std::byte> raw = bytes();
  std::vector<float> out(static_cast<size_t>(tensor_.count()));
  if (tensor_.dtype == DType::kF32) {
    std::memcpy(out.data(), raw.data(), raw.size());
  } else {
    const auto* p = reinterpret_cast<const bf16*>(raw.data());
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(p[i]);
  }
  return out;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  check(a.size() == b.size(), "relative_error: {} values against {}", a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

std::vector<float> random_values(int64_t count, uint64_t seed, float scale, bool bf16_values) {
  std::vector<float> values(static_cast<size_t>(count));
  const RandomKey key{seed, 0, 0, DrawForm::kInit};
  for (int64_t block = 0; block * 4 < count; ++block) {
    const Random4 r = draw(key, static_cast<uint64_t>(block));
    for (int64_t i = 0; i < 4 && block * 4 + i < count; ++i) {
      // The sum of four bytes, about normal.
      const uint32_t x = r.x[i];
      const float sum = static_cast<float>((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24)) / 256 - 2;
      const float value = sum * 1.73f * scale + scale * 1e-3f * static_cast<float>(x % 997) / 997;
      values[static_cast<size_t>(block * 4 + i)] = bf16_values ? to_float(to_bf16(value)) : value;
    }
  }
  return values;
}

std::vector<std::byte> packed(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> out(static_cast<size_t>(bytes_of(dtype, static_cast<int64_t>(values.size()))));
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), values.data(), out.size());
  } else {
    auto* p = reinterpret_cast<bf16*>(out.data());
    for (size_t i = 0; i < values.size(); ++i) p[i] = to_bf16(values[i]);
  }
  return out;
}

}  // namespace mantissa
