// Added tokens: recognised in the text before BPE, leftmost first, at each place the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::tokenizer {

struct AddedToken {
  int32_t id = -1;
  std::string content{};
  bool single_word = false;  // not beside a word character
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // is looked for, itself normalised, in the normalised text
  bool special = false;      // decode may leave it out
};

// A piece of a text: plain, or an added token with the space that it strips.
struct Piece {
  std::string_view text{};
  int32_t id = -1;  // -1: plain
};

class AddedTokenMatcher {
 public:
  // Looks for `pattern` and reports `token`; of two equal patterns the first one counts. Not empty.
  void add(std::string_view pattern, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }
  // Replaces `pieces` by what the text consists of; no piece is empty. Takes at most bytes x longest pattern steps.
  void split(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  struct Flags {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  struct Edge {
    char byte;
    int32_t node;
  };
  struct Node {
    int32_t token = -1;  // place in tokens_
    std::vector<Edge> edges{};
  };
  struct Match {
    size_t begin, end;
    int32_t token;  // -1: none
  };

  Match find(std::string_view text, size_t from) const;

  std::vector<Flags> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> first_ = no_nodes();  // node of a first byte

  static constexpr std::array<int32_t, 256> no_nodes() {
    std::array<int32_t, 256> nodes{};
    nodes.fill(-1);
    return nodes;
  }
};

}  // namespace mantissa::tokenizer
