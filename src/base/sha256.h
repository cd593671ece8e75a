// SHA-256 (FIPS 180-4), fed piece by piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mantissa {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // 64 lower-case hex digits of everything fed so far; further updates are not allowed.
  std::string hex();

 private:
  void block(const uint8_t* data);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  uint64_t length_ = 0;  // bytes
};

std::string sha256(std::string_view text);
std::string sha256_file(const std::string& path);

}  // namespace mantissa
