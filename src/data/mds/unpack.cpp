#include "data/mds/unpack.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "data/input.h"

namespace mantissa::mds {
namespace {

std::string_view compressor(std::string_view compression) { return compression.substr(0, compression.find(':')); }

void unpack_zstd(std::string_view packed, std::string& out, const std::string& name) {
  const size_t size = ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size());
  if (ZSTD_isError(size))
    fail(Exit::kInput, "{}: damaged zstd data, or more than the {} bytes of index.json (zstd: \"{}\")", name,
         out.size(), ZSTD_getErrorName(size));
  if (size != out.size()) fail(Exit::kInput, "{}: unpacks to {} bytes, index.json says {}", name, size, out.size());
}

void unpack_gzip(std::string_view packed, std::string& out, const std::string& name) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) fail(Exit::kInternal, "{}: zlib does not start", name);
  const auto close = [](z_stream* s) { inflateEnd(s); };
  const std::unique_ptr<z_stream, decltype(close)> closer(&stream, close);
  // Sizes of zlib are 32 bits wide; a shard's offsets are too, so one call takes all.
  char beyond = 0;  // a byte more than expected
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  int state = inflate(&stream, Z_NO_FLUSH);
  if (state == Z_OK && stream.avail_out == 0) {
    stream.next_out = reinterpret_cast<Bytef*>(&beyond);
    stream.avail_out = 1;
    state = inflate(&stream, Z_NO_FLUSH);
    if (stream.avail_out == 0)
      fail(Exit::kInput, "{}: unpacks to more than the {} bytes of index.json", name, out.size());
  }
  if (state != Z_STREAM_END)
    fail(Exit::kInput, "{}: damaged gzip data{}", name,
         stream.msg != nullptr ? fmt::format(" (zlib: \"{}\")", stream.msg) : ": ends too soon");
  if (stream.total_out != out.size())
    fail(Exit::kInput, "{}: unpacks to {} bytes, index.json says {}", name, stream.total_out, out.size());
  if (stream.avail_in != 0) fail(Exit::kInput, "{}: {} bytes follow the gzip data", name, stream.avail_in);
}

}  // namespace

void check_compression(const std::string& compression, const std::string& name) {
  const std::string_view kind = compressor(compression);
  if (kind != "zstd" && kind != "gz")
    fail(Exit::kInput, "{}: compression \"{}\" is not read, expected zstd or gz; unpack the shards or write them anew",
         name, printable(compression));
}

std::string unpack(std::string_view packed, const std::string& compression, uint64_t bytes, const std::string& name) {
  check_compression(compression, name);
  const uint64_t limit = std::max<uint64_t>(kFreeUnpackedBytes, packed.size() * kMaxUnpackRatio);
  if (bytes > limit || bytes > UINT32_MAX || packed.size() > UINT32_MAX)
    fail(Exit::kInput, "{}: {} packed bytes, of which index.json says they unpack to {}, more than {}", name,
         packed.size(), bytes, std::min<uint64_t>(limit, UINT32_MAX));
  std::string out(bytes, '\0');
  if (compressor(compression) == "zstd")
    unpack_zstd(packed, out, name);
  else
    unpack_gzip(packed, out, name);
  return out;
}

}  // namespace mantissa::mds
