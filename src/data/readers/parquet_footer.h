// What a Parquet footer costs to read, found before anything is allocated: Thrift's compact protocol lets a few bytes
// stand for a description of a column of over a kilobyte, millions of times.
// Format: github.com/apache/thrift, doc/specs/thrift-compact-protocol.md; github.com/apache/parquet-format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa {

inline constexpr uint64_t kMaxFooterMemory = uint64_t{192} << 20;

// Walks the footer. Exit::kInput, with `path` in front, when it is not well formed, or when its row groups and columns
// would take more than kMaxFooterMemory.
void check_parquet_footer(std::string_view footer, const std::string& path);

}  // namespace mantissa
