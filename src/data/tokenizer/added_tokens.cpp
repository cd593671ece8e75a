#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

bool word_before(std::string_view text, size_t at) {
  return at > 0 && is_word_char(code_point_before(text.data() + at).code);
}

bool word_at(std::string_view text, size_t at) {
  return at < text.size() && is_word_char(code_point_at(text.data() + at).code);
}

size_t space_begin(std::string_view text, size_t at, size_t floor) {
  while (at > floor) {
    const CodePoint point = code_point_before(text.data() + at);
    if (char_class(point.code) != kSpace) break;
    at -= point.size;
  }
  return std::max(at, floor);
}

size_t space_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint point = code_point_at(text.data() + at);
    if (char_class(point.code) != kSpace) break;
    at += point.size;
  }
  return at;
}

}  // namespace

void AddedTokenMatcher::add(std::string_view pattern, const AddedToken& token) {
  int32_t* link = &first_[static_cast<uint8_t>(pattern[0])];
  for (size_t i = 0;; ++i) {
    if (*link < 0) {
      *link = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    Node& node = nodes_[static_cast<size_t>(*link)];
    if (i + 1 == pattern.size()) {
      if (node.token >= 0) return;
      node.token = static_cast<int32_t>(tokens_.size());
      break;
    }
    const char byte = pattern[i + 1];
    auto edge = std::find_if(node.edges.begin(), node.edges.end(), [&](const Edge& e) { return e.byte == byte; });
    if (edge == node.edges.end()) edge = node.edges.insert(edge, {byte, -1});
    link = &edge->node;
  }
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    int32_t node = first_[static_cast<uint8_t>(text[begin])];
    if (node < 0) [[likely]]
      continue;
    Match match = {begin, begin, -1};
    for (size_t at = begin + 1;; ++at) {
      const Node& here = nodes_[static_cast<size_t>(node)];
      if (here.token >= 0) match = {begin, at, here.token};
      if (at == text.size()) break;
      const auto edge =
          std::find_if(here.edges.begin(), here.edges.end(), [&](const Edge& e) { return e.byte == text[at]; });
      if (edge == here.edges.end()) break;
      node = edge->node;
    }
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Piece>& pieces) const {
  pieces.clear();
  size_t done = 0;                         // all before it is in pieces
  size_t space_from = 0, space_until = 0;  // the last run of space that a token took
  for (size_t from = 0; !empty();) {
    const Match match = find(text, from);
    if (match.token < 0) break;
    from = match.end;
    const Flags& token = tokens_[static_cast<size_t>(match.token)];
    if (token.single_word && (word_before(text, match.begin) || word_at(text, match.end))) continue;
    size_t begin = match.begin, end = match.end;
    if (token.lstrip) begin = begin > done ? space_begin(text, begin, done) : done;
    if (token.rstrip) {
      if (end < space_from || end > space_until) {
        space_from = end;
        space_until = space_end(text, end);
      }
      end = space_until;
    }
    if (done < begin) pieces.push_back({text.substr(done, begin - done), -1});
    pieces.push_back({text.substr(std::min(begin, end), end - std::min(begin, end)), token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), -1});
}

}  // namespace mantissa::tokenizer
