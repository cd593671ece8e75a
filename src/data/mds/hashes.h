// Hashes of shard files by the names that index.json gives them: sha1 (FIPS 180-4), sha256, and those of
// github.com/Cyan4973/xxHash with seed 0. They find damage; who can change a shard can change the index too.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::mds {

inline constexpr std::string_view kKnownHashes = "sha1, sha256, xxh32, xxh64, xxh128, xxh3_64";

bool known_hash(std::string_view algorithm);
// Lower-case hex digits, as Python's hexdigest(). Exit::kInternal for an algorithm that is not known.
std::string hash_hex(std::string_view algorithm, std::string_view bytes);

}  // namespace mantissa::mds
