#include "data/corpus.h"

#include <cstring>

#include "base/error.h"
#include "data/byte_store.h"

namespace mantissa {
namespace {

int width_of(int64_t vocab_size) {
  check(vocab_size > 0 && vocab_size <= INT32_MAX, "Corpus: vocabulary of {}", vocab_size);
  if (vocab_size <= 1 << 8) return 1;
  return vocab_size <= 1 << 16 ? 2 : 4;
}

template <class T>
void narrow(std::span<const int32_t> ids, std::vector<std::byte>& out) {
  out.resize(ids.size() * sizeof(T));
  auto* to = reinterpret_cast<T*>(out.data());
  for (size_t i = 0; i < ids.size(); ++i) to[i] = static_cast<T>(ids[i]);
}

template <class T>
void widen(const std::byte* from, int64_t begin, std::span<int32_t> out) {
  const auto* tokens = reinterpret_cast<const T*>(from) + begin;
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(tokens[i]);
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

struct Corpus::Impl {
  Impl(int64_t vocab, const std::string& folder)
      : vocab_size(vocab), width(width_of(vocab)), tokens(folder), starts(folder), learned(folder) {}

  // Adds bits to `learned`, the lowest of a byte first. Documents before the first masked one are all ones.
  void append_learned(const EncodedDocument& document, int64_t begin) {
    if (!masked) {
      if (document.learned.empty()) return;
      masked = true;
      for (int64_t i = 0; i < begin; ++i) append_bit(true);
    }
    for (size_t i = 0; i < document.ids.size(); ++i) append_bit(document.learned.empty() || document.learned[i] != 0);
  }

  void append_bit(bool bit) {
    open_byte |= static_cast<uint8_t>(bit ? 1u << bits % 8 : 0u);
    if (++bits % 8 == 0) close_byte();
  }
  void close_byte() {
    learned.append(bytes_of(open_byte));
    open_byte = 0;
  }

  int64_t vocab_size;
  int width;          // bytes a token
  ByteStore tokens;   // end to end
  ByteStore starts;   // int64, of each document
  ByteStore learned;  // a bit a token, where some document is masked
  int64_t count = 0;  // tokens
  int64_t documents = 0;
  int64_t bits = 0;
  uint8_t open_byte = 0;
  bool masked = false;
  std::vector<std::byte> scratch;
};

Corpus::Corpus(int64_t vocab_size, const std::string& spill_folder)
    : impl_(std::make_unique<Impl>(vocab_size, spill_folder)) {}
Corpus::~Corpus() = default;
Corpus::Corpus(Corpus&&) noexcept = default;
Corpus& Corpus::operator=(Corpus&&) noexcept = default;

void Corpus::append(const EncodedDocument& document) {
  Impl& c = *impl_;
  check(document.learned.empty() || document.learned.size() == document.ids.size(), "Corpus: {} flags for {} tokens",
        document.learned.size(), document.ids.size());
  for (const int32_t id : document.ids)
    check(id >= 0 && id < c.vocab_size, "Corpus: token {} of a vocabulary of {}", id, c.vocab_size);
  if (c.width == 1)
    narrow<uint8_t>(document.ids, c.scratch);
  else if (c.width == 2)
    narrow<uint16_t>(document.ids, c.scratch);
  else
    narrow<int32_t>(document.ids, c.scratch);
  c.append_learned(document, c.count);
  c.starts.append(bytes_of(c.count));
  c.tokens.append(c.scratch);
  c.count += static_cast<int64_t>(document.ids.size());
  ++c.documents;
}

void Corpus::finish() {
  Impl& c = *impl_;
  c.starts.append(bytes_of(c.count));
  if (c.bits % 8 != 0) c.close_byte();
  c.tokens.finish(), c.starts.finish(), c.learned.finish();
  c.scratch = {};
}

int64_t Corpus::vocab_size() const { return impl_->vocab_size; }
int64_t Corpus::documents() const { return impl_->documents; }
int64_t Corpus::tokens() const { return impl_->count; }
bool Corpus::masked() const { return impl_->masked; }

int64_t Corpus::begin(int64_t document) const {
  const int64_t begin = reinterpret_cast<const int64_t*>(impl_->starts.data())[document];
  impl_->starts.check_whole();
  return begin;
}

void Corpus::read(int64_t begin, std::span<int32_t> out) const {
  const Impl& c = *impl_;
  check(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= c.count, "Corpus: tokens {} to {} of {}", begin,
        begin + static_cast<int64_t>(out.size()), c.count);
  if (c.width == 1)
    widen<uint8_t>(c.tokens.data(), begin, out);
  else if (c.width == 2)
    widen<uint16_t>(c.tokens.data(), begin, out);
  else
    widen<int32_t>(c.tokens.data(), begin, out);
  c.tokens.check_whole();
}

bool Corpus::learned(int64_t token) const {
  const Impl& c = *impl_;
  if (!c.masked) return true;
  const bool learned = (std::to_integer<unsigned>(c.learned.data()[token / 8]) >> token % 8 & 1) != 0;
  c.learned.check_whole();
  return learned;
}

}  // namespace mantissa
