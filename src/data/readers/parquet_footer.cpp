#include "data/readers/parquet_footer.h"

#include "base/error.h"

namespace mantissa {
namespace {

constexpr int kMaxDepth = 32;
// Bytes that Apache Arrow 26 holds for each, rounded up.
constexpr uint64_t kColumnBytes = 1536, kStructBytes = 320, kTextBytes = 48, kValueBytes = 8;

enum Type : uint8_t { kTrue = 1, kFalse, kByte, kI16, kI32, kI64, kDouble, kBinary, kList, kSet, kMap, kStruct };

// What a struct is: FileMetaData {4: [RowGroup {1: [ColumnChunk]}]}.
enum class Role { kFile, kRowGroup, kColumn, kOther };

class Walk {
 public:
  Walk(std::string_view footer, const std::string& path) : footer_(footer), path_(path) {}

  void structure(Role role, int depth) {
    if (depth > kMaxDepth) bad("is nested more than 32 deep");
    spend(role == Role::kColumn ? kColumnBytes : kStructBytes);
    for (int64_t id = 0;;) {
      const uint8_t head = byte();
      if (head == 0) return;
      const int delta = head >> 4;
      const uint64_t given = delta == 0 ? varint() : 0;
      id = delta != 0 ? id + delta : static_cast<int64_t>(given >> 1) ^ -static_cast<int64_t>(given & 1);
      const Role inner = role == Role::kFile && id == 4       ? Role::kRowGroup
                         : role == Role::kRowGroup && id == 1 ? Role::kColumn
                                                              : Role::kOther;
      const auto type = static_cast<Type>(head & 15);
      if (type != kTrue && type != kFalse) value(type, inner, depth);
    }
  }

  bool ended() const { return at_ == footer_.size(); }

 private:
  [[noreturn]] void bad(const char* what) const {
    fail(Exit::kInput, "{}: its footer {} (byte {} of {})", path_, what, at_, footer_.size());
  }
  void spend(uint64_t bytes) {
    if (bytes > left_)
      fail(Exit::kInput, "{}: its footer describes more row groups and columns than {} MiB hold (byte {} of {})", path_,
           kMaxFooterMemory >> 20, at_, footer_.size());
    left_ -= bytes;
  }
  uint8_t byte() {
    if (ended()) bad("ends within a value");
    return static_cast<uint8_t>(footer_[at_++]);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t part = byte();
      value |= uint64_t{part & 127u} << shift;
      if (part < 128) return value;
    }
    bad("holds a number of more than 64 bits");
  }
  void skip(uint64_t bytes) {
    if (bytes > footer_.size() - at_) bad("ends within a value");
    at_ += bytes;
  }
  void value(Type type, Role role, int depth) {
    switch (type) {
      case kTrue:
      case kFalse:
      case kByte:
        return skip(1);  // inside a list
      case kI16:
      case kI32:
      case kI64:
        return static_cast<void>(varint());
      case kDouble:
        return skip(8);
      case kBinary:
        return skip(varint());
      case kList:
      case kSet:
        return list(role, depth);
      case kMap:
        return map(depth);
      case kStruct:
        return structure(role, depth + 1);
    }
    bad("has a value of no known type");
  }
  void list(Role role, int depth) {
    if (depth > kMaxDepth) bad("is nested more than 32 deep");
    const uint8_t head = byte();
    const auto type = static_cast<Type>(head & 15);
    const uint64_t size = head >> 4 == 15 ? varint() : head >> 4;
    if (size > footer_.size() - at_) bad("has a list that is longer than itself");
    for (uint64_t i = 0; i < size; ++i) {
      spend(type == kBinary ? kTextBytes : kValueBytes);
      value(type, role, depth + 1);
    }
  }
  void map(int depth) {
    if (depth > kMaxDepth) bad("is nested more than 32 deep");
    const uint64_t size = varint();
    if (size == 0) return;
    const uint8_t types = byte();
    if (size > footer_.size() - at_) bad("has a map that is longer than itself");
    for (uint64_t i = 0; i < 2 * size; ++i) {
      spend(kTextBytes);
      value(static_cast<Type>(i % 2 == 0 ? types >> 4 : types & 15), Role::kOther, depth + 1);
    }
  }

  const std::string_view footer_;
  const std::string& path_;
  size_t at_ = 0;
  uint64_t left_ = kMaxFooterMemory;
};

}  // namespace

void check_parquet_footer(std::string_view footer, const std::string& path) {
  Walk walk(footer, path);
  walk.structure(Role::kFile, 0);
  if (!walk.ended()) fail(Exit::kInput, "{}: bytes follow the end of its footer", path);
}

}  // namespace mantissa
