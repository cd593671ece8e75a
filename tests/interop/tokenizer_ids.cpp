// Tokenizer over pipes, for tests/interop/tokenizer_parity.py and bench/tokenizer.py.
//
//   tokenizer_ids TOKENIZER encode|encode-special   stdin: (u32 bytes, text)...  stdout: (u32 count, i32 ids...)...
//   tokenizer_ids TOKENIZER decode|decode-skip      stdin: (u32 count, i32 ids...)...  stdout: (u32 bytes, text)...
//   tokenizer_ids TOKENIZER time ROUNDS             stdin: (u32 bytes, text)...  stdout: seconds of each round, in
//   words
//
// All little-endian. A round encodes every text on one thread with a fresh encoder.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa {
namespace {

bool read_exactly(void* to, size_t bytes) {
  const size_t got = std::fread(to, 1, bytes, stdin);
  if (got == 0 && bytes > 0) return false;
  check(got == bytes, "stdin ends within an item");
  return true;
}

void write_exactly(const void* from, size_t bytes) {
  check(std::fwrite(from, 1, bytes, stdout) == bytes, "cannot write to stdout");
}

template <class Item>
bool read_item(Item& item) {
  uint32_t size;
  if (!read_exactly(&size, 4)) return false;
  item.resize(size);
  if (size > 0) check(read_exactly(item.data(), size * sizeof(item[0])), "stdin ends within an item");
  return true;
}

template <class Item>
void write_item(const Item& item) {
  const uint32_t size = static_cast<uint32_t>(item.size());
  write_exactly(&size, 4);
  write_exactly(item.data(), item.size() * sizeof(item[0]));
}

void run_encode(const Tokenizer& tokenizer, SpecialTokens special) {
  Tokenizer::Encoder encoder(tokenizer);
  std::string text;
  std::vector<int32_t> ids;
  while (read_item(text)) {
    ids.clear();
    encoder.encode(text, special, ids);
    write_item(ids);
  }
}

void run_decode(const Tokenizer& tokenizer, bool skip_special) {
  std::vector<int32_t> ids;
  while (read_item(ids)) write_item(tokenizer.decode(ids, skip_special));
}

void run_time(const Tokenizer& tokenizer, int64_t rounds) {
  std::vector<std::string> texts;
  for (std::string text; read_item(text);) texts.push_back(text);
  std::vector<int32_t> ids;
  for (int64_t round = 0; round < rounds; ++round) {
    const std::clock_t begin = std::clock();
    Tokenizer::Encoder encoder(tokenizer);
    for (const std::string& text : texts) {
      ids.clear();
      encoder.encode(text, SpecialTokens::kLeaveOut, ids);
    }
    std::printf("%.6f\n", static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
}

int run(std::span<char*> arguments) {
  const auto argument = [&](size_t i) { return i < arguments.size() ? std::string(arguments[i]) : std::string(); };
  const std::string mode = argument(2);
  const Tokenizer tokenizer = Tokenizer::open(argument(1));
  if (mode == "encode" || mode == "encode-special") {
    run_encode(tokenizer, mode == "encode" ? SpecialTokens::kLeaveOut : SpecialTokens::kAdd);
  } else if (mode == "decode" || mode == "decode-skip") {
    run_decode(tokenizer, mode == "decode-skip");
  } else if (int64_t rounds; mode == "time" && parse_int(argument(3), rounds)) {
    run_time(tokenizer, rounds);
  } else {
    fail(Exit::kUsage, "mode \"{}\", expected encode, encode-special, decode, decode-skip or time ROUNDS", mode);
  }
  return 0;
}

}  // namespace
}  // namespace mantissa

int main(int count, char** arguments) {
  try {
    return mantissa::run({arguments, static_cast<size_t>(count)});
  } catch (const mantissa::Error& error) {
    std::fprintf(stderr, "tokenizer_ids: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
