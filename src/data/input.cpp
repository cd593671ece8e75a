#include "data/input.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "base/error.h"
#include "base/foreign.h"
#include "base/signal.h"

namespace mantissa {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

// How text comes out of a file that holds none.
std::string_view way_out(Foreign kind) {
  switch (kind) {
    case Foreign::kArrow:
      return "; save it as Parquet (datasets: Dataset.to_parquet)";
    case Foreign::kZip:
      return "; unpack it, or write its text as JSON lines";
    default:
      return "";
  }
}

}  // namespace

// Takes bytes off `in`, fills `out` and returns how much; 0 only when `in` is empty or the end of the data is reached.
class InputStream::Unpacker {
 public:
  virtual ~Unpacker() = default;
  virtual size_t unpack(std::string_view& in, std::span<char> out) = 0;
  // Nothing is open: the data may end here.
  virtual bool complete() const = 0;
  virtual const char* name() const = 0;
};

class InputStream::Gzip final : public Unpacker {
 public:
  explicit Gzip(const InputStream& input) : input_(input) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) fail(Exit::kInternal, "{}: zlib does not start", input.path());
  }
  ~Gzip() override { inflateEnd(&stream_); }
  bool complete() const override { return ended_; }
  const char* name() const override { return "gzip"; }

  size_t unpack(std::string_view& in, std::span<char> out) override {
    if (ended_) {
      if (in.empty()) return 0;
      if (inflateReset(&stream_) != Z_OK) fail(Exit::kInternal, "{}: zlib does not reset", input_.path());
      ended_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int state = inflate(&stream_, Z_NO_FLUSH);
    in.remove_prefix(in.size() - stream_.avail_in);
    ended_ = state == Z_STREAM_END;
    // Z_BUF_ERROR: no progress for want of input, which may be the file's end.
    if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
      fail(Exit::kInput, "{}: damaged gzip data at byte {}{}", input_.path(), input_.taken() - in.size(),
           stream_.msg != nullptr ? fmt::format(" (zlib: \"{}\")", stream_.msg) : ": asks for a dictionary");
    return out.size() - stream_.avail_out;
  }

 private:
  const InputStream& input_;
  z_stream stream_{};
  bool ended_ = false;
};

class InputStream::Zstd final : public Unpacker {
 public:
  explicit Zstd(const InputStream& input) : input_(input), stream_(ZSTD_createDStream(), &ZSTD_freeDStream) {
    if (stream_ == nullptr) fail(Exit::kInternal, "{}: zstd does not start", input.path());
  }
  bool complete() const override { return expects_ == 0; }
  const char* name() const override { return "zstd"; }

  size_t unpack(std::string_view& in, std::span<char> out) override {
    // Between frames there is nothing to flush.
    if (in.empty() && expects_ == 0) return 0;
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    expects_ = ZSTD_decompressStream(stream_.get(), &to, &from);
    if (ZSTD_isError(expects_))
      fail(Exit::kInput, "{}: damaged zstd data at byte {} (zstd: \"{}\")", input_.path(),
           input_.taken() - (in.size() - from.pos), ZSTD_getErrorName(expects_));
    in.remove_prefix(from.pos);
    return to.pos;
  }

 private:
  const InputStream& input_;
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_;
  size_t expects_ = 1;
};

InputStream::InputStream(const std::string& path) : file_(path) {
  packed_.resize(kPiece);
  pending_ = read();
  const Foreign kind = recognise_foreign(pending_.substr(0, 64));
  if (kind == Foreign::kGzip)
    unpacker_ = std::make_unique<Gzip>(*this);
  else if (kind == Foreign::kZstd)
    unpacker_ = std::make_unique<Zstd>(*this);
  else if (kind != Foreign::kNone)
    fail(Exit::kInput, "{}: expected text, found {}{}", path, foreign_name(kind), way_out(kind));
  if (unpacker_ != nullptr) unpacked_.resize(kPiece);
}

InputStream::~InputStream() = default;

std::string_view InputStream::read() {
  throw_if_stopped("reading " + path());
  const std::string_view bytes(packed_.data(), file_.read(packed_));
  hash_.update(bytes);
  taken_ += bytes.size();
  return bytes;
}

std::string_view InputStream::next() {
  if (unpacker_ == nullptr) {
    const std::string_view piece = pending_.empty() ? read() : pending_;
    pending_ = {};
    return piece;
  }
  for (bool ended = false;;) {
    if (pending_.empty() && !ended) {
      pending_ = read();
      ended = pending_.empty();
    }
    const size_t got = unpacker_->unpack(pending_, unpacked_);
    given_ += got;
    if (given_ % (uint64_t{64} << 20) < got) throw_if_stopped("unpacking " + path());
    const uint64_t limit = std::max(kFreeUnpackedBytes, taken_ * kMaxUnpackRatio);
    if (given_ > limit) fail(Exit::kInput, "{}: {} packed bytes unpack to more than {}", path(), taken(), limit);
    if (got > 0) return {unpacked_.data(), got};
    if (!ended) continue;
    if (!unpacker_->complete()) fail(Exit::kInput, "{}: {} data is cut short", path(), unpacker_->name());
    return {};
  }
}

SourceFile InputStream::source() {
  while (!read().empty()) {
  }
  return {path(), taken(), hash_.hex()};
}

std::string read_input(const std::string& path, SourceFile& source) {
  InputStream input(path);
  std::string text;
  for (std::string_view piece; !(piece = input.next()).empty();) {
    if (text.size() + piece.size() > kMaxMemoryText)
      fail(Exit::kInput, "{}: holds more than {} MiB of text, which is read as a whole", path, kMaxMemoryText >> 20);
    text += piece;
  }
  source = input.source();
  return text;
}

}  // namespace mantissa
