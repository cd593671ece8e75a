// Compressed shards: a whole shard through one compressor, whose unpacked size the index gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa::mds {

// "zstd", "zstd:LEVEL", "gz", "gz:LEVEL" can be unpacked. Other names are Exit::kInput with what to do; `name` is the
// file.
void check_compression(const std::string& compression, const std::string& name);

// Unpacks `packed` into exactly `bytes` bytes. Exit::kInput when it is damaged, holds more or less, or when `bytes` is
// beyond the bounds of data/input.h, which is checked before anything is allocated.
std::string unpack(std::string_view packed, const std::string& compression, uint64_t bytes, const std::string& name);

}  // namespace mantissa::mds
