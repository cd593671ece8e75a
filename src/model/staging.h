// Host memory that a GPU's copies need not stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/device.h"

namespace mantissa {

class PinnedBytes {
 public:
  PinnedBytes() = default;
  PinnedBytes(Device& device, int64_t bytes)
      : device_(&device), data_(static_cast<std::byte*>(device.allocate_pinned(bytes))) {}
  ~PinnedBytes() {
    if (data_) device_->release_pinned(data_);
  }
  PinnedBytes(PinnedBytes&& other) noexcept { *this = std::move(other); }
  PinnedBytes& operator=(PinnedBytes&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }

  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace mantissa
