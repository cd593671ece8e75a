// Arrays of numbers inside mapped files: little-endian, not aligned, of an element type that the file names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace mantissa {

enum class Element : uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kF32, kF64 };

int bytes_of(Element type);
std::string_view name_of(Element type);                   // numpy's: "uint16"
bool find_element(std::string_view name, Element& type);  // by numpy's name
inline bool is_float(Element type) { return type >= Element::kF16; }

// What stands at any address.
template <class T>
T load_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// A view of `count` elements; at() is for whole numbers alone.
struct Elements {
  const std::byte* data = nullptr;
  int64_t count = 0;
  Element type = Element::kU8;

  int64_t at(int64_t i) const;  // of uint64 above 2^63 - 1: negative
};

// Ids below this fit the type; at most 2^31 - 1.
int64_t vocabulary_of(Element type);

// Copies out.size() ids from element `begin` on, which must be there. The first that is neither in [0, vocab_size) nor
// `also` gives its index in `out`, else -1; `out` is filled either way. vocab_size <= 2^31 - 1.
int64_t copy_ids(const Elements& from, int64_t begin, std::span<int32_t> out, int64_t vocab_size, int32_t also = 0);

}  // namespace mantissa
