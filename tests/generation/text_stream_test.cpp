#include "generation/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "data/tokenizer/utf8.h"

namespace mantissa {
namespace {

using Pieces = std::vector<std::string>;

// The pieces that come of feeding `parts`, the last one from finish().
Pieces pieces_of(const Pieces& parts, const Pieces& stops = {}) {
  TextStream stream(stops);
  Pieces out;
  for (const std::string& part : parts) out.emplace_back(stream.add(part));
  out.emplace_back(stream.finish());
  return out;
}

TEST(TextStream, HoldsBackCharactersThatAreNotWhole) {
  EXPECT_EQ(pieces_of({"a", "\xE2", "\x82",
                       "\xAC"
                       "b"}),
            (Pieces{"a", "", "", "€b", ""}));
  EXPECT_EQ(pieces_of({"x\xF0\x9F", "\x98\x80"}), (Pieces{"x", "😀", ""}));
  // Bytes that nothing can complete leave at once, each maximal part as one U+FFFD.
  EXPECT_EQ(pieces_of({"\xFF", "\xE2\x82", "z"}), (Pieces{"\uFFFD", "", "\uFFFDz", ""}));
  EXPECT_EQ(pieces_of({"\x80", "\xC0\xAF"}), (Pieces{"\uFFFD", "\uFFFD\uFFFD", ""}));
  // A surrogate's first bytes cannot be completed.
  EXPECT_EQ(pieces_of({"\xED\xA0"}), (Pieces{"\uFFFD\uFFFD", ""}));
  EXPECT_EQ(pieces_of({"end\xE2\x82"}), (Pieces{"end", "\uFFFD"}));
}

TEST(TextStream, EndsBeforeAStopText) {
  EXPECT_EQ(pieces_of({"one", " \n", "\nUs", "er:", " two"}, {"\n\nUser:"}), (Pieces{"one", " ", "", "", "", ""}));
  // What looked like a stop text and is none.
  EXPECT_EQ(pieces_of({"aab", "aac"}, {"aabaab"}), (Pieces{"", "aabaac", ""}));
  EXPECT_EQ(pieces_of({"aa", "aab"}, {"aab"}), (Pieces{"", "aa", ""}));
  // The first of several in the text counts.
  TextStream stream({"late", "b", ""});
  EXPECT_EQ(stream.add("a b late"), "a ");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.stop(), "b");
  EXPECT_EQ(stream.add("more"), "");
  EXPECT_EQ(stream.text(), "a ");
  // A stop text whose character is cut between tokens.
  EXPECT_EQ(pieces_of({"a\xE2",
                       "\x82\xAC"
                       "b"},
                      {"€"}),
            (Pieces{"a", "", ""}));
  // Held back to the end, then given.
  EXPECT_EQ(pieces_of({"ab"}, {"abc"}), (Pieces{"", "ab"}));
}

// However random bytes are cut, the pieces are the decoded whole, and none ends inside a character.
TEST(TextStream, PiecesAreTheDecodedWhole) {
  std::mt19937 random(7);
  const Pieces alphabet = {"a", "€", "😀", "\xE2", "\x82", "\xF0", "\x9F", "\xC3", "\xA9", "\xFF", "\xED", "\xA0", "é"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes, joined;
    for (int i = 0; i < 12; ++i) bytes += alphabet[random() % alphabet.size()];
    TextStream stream;
    const auto take = [&](std::string_view piece) {
      EXPECT_EQ(tokenizer::find_ill_formed(piece), piece.size());
      joined += piece;
    };
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(1 + random() % 3, bytes.size() - at);
      take(stream.add(std::string_view(bytes).substr(at, n)));
      at += n;
    }
    take(stream.finish());
    ASSERT_EQ(joined, tokenizer::replace_ill_formed(bytes));
  }
}

}  // namespace
}  // namespace mantissa
