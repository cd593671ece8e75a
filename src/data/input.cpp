#include "data/input.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/sha256.h"

namespace mantissa {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

// Room for one more chunk of output, or an error when the file unpacks to too much.
void grow(std::string& out, size_t used, const MappedFile& file) {
  const uint64_t packed = file.bytes().size();
  const uint64_t limit = std::min(kMaxUnpackedBytes, std::max(kFreeUnpackedBytes, packed * kMaxUnpackRatio));
  if (used > limit) fail(Exit::kInput, "{}: {} packed bytes unpack to more than {}", file.path(), packed, limit);
  out.resize(used + kChunk);
}

std::string unpack_gzip(const MappedFile& file) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) fail(Exit::kInternal, "{}: zlib does not start", file.path());
  const auto close = [](z_stream* s) { inflateEnd(s); };
  const std::unique_ptr<z_stream, decltype(close)> closer(&stream, close);

  std::string out;
  size_t used = 0;
  const auto* data = reinterpret_cast<const Bytef*>(file.bytes().data());
  size_t left = file.bytes().size();
  while (left > 0) {
    grow(out, used, file);
    const size_t feed = std::min(left, kChunk);
    stream.next_in = const_cast<Bytef*>(data);
    stream.avail_in = static_cast<uInt>(feed);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + used);
    stream.avail_out = static_cast<uInt>(kChunk);
    const int state = inflate(&stream, Z_NO_FLUSH);
    const size_t eaten = feed - stream.avail_in;
    data += eaten, left -= eaten;
    used += kChunk - stream.avail_out;
    if (state == Z_STREAM_END) {
      if (left > 0 && inflateReset(&stream) != Z_OK) fail(Exit::kInternal, "{}: zlib does not reset", file.path());
      if (left == 0) {
        out.resize(used);
        return out;
      }
    } else if (state != Z_OK) {
      fail(Exit::kInput, "{}: damaged gzip data at byte {}: {}", file.path(), file.bytes().size() - left,
           stream.msg != nullptr ? stream.msg : "ends too soon");
    }
  }
  // All input is eaten; what is left sits in zlib's window.
  for (;;) {
    grow(out, used, file);
    stream.avail_in = 0;
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + used);
    stream.avail_out = static_cast<uInt>(kChunk);
    const int state = inflate(&stream, Z_NO_FLUSH);
    used += kChunk - stream.avail_out;
    if (state == Z_STREAM_END) break;
    if (state != Z_OK) fail(Exit::kInput, "{}: gzip data is cut short", file.path());
  }
  out.resize(used);
  return out;
}

std::string unpack_zstd(const MappedFile& file) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(), &ZSTD_freeDStream);
  if (stream == nullptr) fail(Exit::kInternal, "{}: zstd does not start", file.path());
  std::string out;
  size_t used = 0;
  ZSTD_inBuffer in{file.bytes().data(), file.bytes().size(), 0};
  size_t expects = 1;
  // At a full output more may be waiting, though all input is eaten.
  for (bool full = true; in.pos < in.size || (full && expects != 0);) {
    grow(out, used, file);
    ZSTD_outBuffer chunk{out.data() + used, kChunk, 0};
    expects = ZSTD_decompressStream(stream.get(), &chunk, &in);
    if (ZSTD_isError(expects))
      fail(Exit::kInput, "{}: damaged zstd data at byte {}: {}", file.path(), in.pos, ZSTD_getErrorName(expects));
    used += chunk.pos;
    full = chunk.pos == kChunk;
  }
  if (expects != 0) fail(Exit::kInput, "{}: zstd data is cut short", file.path());
  out.resize(used);
  return out;
}

}  // namespace

InputText InputText::open(const std::string& path) {
  InputText input;
  input.file_ = MappedFile::open(path);
  const std::string_view head = input.file_.text().substr(0, 4);
  input.packed_ = true;
  if (head.starts_with("\x1f\x8b"))
    input.unpacked_ = unpack_gzip(input.file_);
  else if (head == "\x28\xb5\x2f\xfd")
    input.unpacked_ = unpack_zstd(input.file_);
  else
    input.packed_ = false;
  return input;
}

SourceFile InputText::source() const { return {file_.path(), file_.bytes().size(), sha256(file_.text())}; }

}  // namespace mantissa
