#include "data/mds/hashes.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "base/sha256.h"

namespace mantissa::mds {
namespace {

void sha1_block(uint32_t (&state)[5], const uint8_t* data) {
  uint32_t w[80];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t{data[4 * i]} << 24 | uint32_t{data[4 * i + 1]} << 16 | uint32_t{data[4 * i + 2]} << 8 |
           uint32_t{data[4 * i + 3]};
  for (int i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  auto [a, b, c, d, e] = state;
  for (int i = 0; i < 80; ++i) {
    uint32_t f, k;
    if (i < 20)
      f = (b & c) | (~b & d), k = 0x5a827999;
    else if (i < 40)
      f = b ^ c ^ d, k = 0x6ed9eba1;
    else if (i < 60)
      f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
    else
      f = b ^ c ^ d, k = 0xca62c1d6;
    const uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

std::string sha1(std::string_view bytes) {
  uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 64; data += 64, left -= 64) sha1_block(state, data);
  // The rest, a bit 1, zeros and the length in bits: one or two blocks.
  uint8_t tail[128] = {};
  if (left > 0) std::memcpy(tail, data, left);
  tail[left] = 0x80;
  const size_t size = left < 56 ? 64 : 128;
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (size_t i = 0; i < 8; ++i) tail[size - 8 + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  for (size_t at = 0; at < size; at += 64) sha1_block(state, tail + at);
  std::string out;
  for (const uint32_t word : state) out += fmt::format("{:08x}", word);
  return out;
}

}  // namespace

bool known_hash(std::string_view algorithm) {
  for (const std::string_view known : {"sha1", "sha256", "xxh32", "xxh64", "xxh128", "xxh3_64"})
    if (algorithm == known) return true;
  return false;
}

std::string hash_hex(std::string_view algorithm, std::string_view bytes) {
  if (algorithm == "sha1") return sha1(bytes);
  if (algorithm == "sha256") return sha256(bytes);
  if (algorithm == "xxh32") return fmt::format("{:08x}", XXH32(bytes.data(), bytes.size(), 0));
  if (algorithm == "xxh64") return fmt::format("{:016x}", XXH64(bytes.data(), bytes.size(), 0));
  if (algorithm == "xxh128") return checksum_of(bytes);
  check(algorithm == "xxh3_64", "hash {}", algorithm);
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace mantissa::mds
