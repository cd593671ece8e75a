// XXH3 with 128 bits (github.com/Cyan4973/xxHash), fed piece by piece: finds damage at the speed of memory. It proves
// nothing against someone who changes a file on purpose; sha256.h does.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mantissa {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // 32 lower-case hex digits of everything fed so far, as `xxhsum -H2` prints them.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::span<const std::byte> bytes);
std::string checksum_of(std::string_view text);

}  // namespace mantissa
