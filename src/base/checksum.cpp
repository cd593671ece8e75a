#include "base/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // the state's size
#include <fmt/core.h>
#include <xxhash.h>

namespace mantissa {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Checksum::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.update(bytes);
  return sum.hex();
}

std::string checksum_of(std::string_view text) { return checksum_of(std::as_bytes(std::span(text))); }

}  // namespace mantissa
