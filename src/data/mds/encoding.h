// Columns of MDS samples: the encodings by their names and what a value's bytes mean.
// Format: https://github.com/mosaicml/streaming, streaming/base/format/mds/encodings.py.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/token_files/elements.h"

namespace mantissa::mds {

enum class Kind : uint8_t {
  kBytes,     // bytes
  kText,      // str, json
  kNumeral,   // str_int, str_float, str_decimal: decimal text
  kScalar,    // int (int64), uint8 ... float64
  kArray,     // ndarray[:dtype[:d0,d1,...]]
  kRawArray,  // a scalar's name without a size: values end to end, as user-registered encodings write them
  kOther,     // images and names that are not known: bytes nobody here decodes
};

inline constexpr size_t kMaxArrayRank = 8;

struct Column {
  std::string name, encoding;
  Kind kind = Kind::kOther;
  uint32_t size = 0;               // bytes of each value; 0: a size word stands before it
  bool typed = false;              // kScalar, kRawArray, kArray with a dtype
  Element element = Element::kU8;  // where typed
  std::vector<uint32_t> shape;     // of kArray where it is fixed

  bool operator==(const Column&) const = default;
};

// A column of index.json; `size` < 0 stands for null. Exit::kInput, with `where` in front: pkl (a pickle can run code),
// a malformed ndarray, a size that contradicts the encoding.
Column make_column(const std::string& name, const std::string& encoding, int64_t size, const std::string& where);

// A value of a kArray or kRawArray column.
struct Array {
  Elements values;
  size_t rank = 1;
  std::array<int64_t, kMaxArrayRank> shape{};
};

// Exit::kInput for bytes that do not hold what their header says. Allocates nothing.
Array decode_array(const Column& column, std::span<const std::byte> value);

}  // namespace mantissa::mds
