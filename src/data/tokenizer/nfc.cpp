#include "data/tokenizer/nfc.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

// Hangul syllables are computed: The Unicode Standard, section 3.12.
constexpr uint32_t kSBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;

struct Mark {
  uint32_t code;
  uint8_t combining;
};

uint8_t combining_class(uint32_t code) {
  const uint8_t value = nfc_class(code);
  return value == kNfcStarter ? 0 : value;
}

void decompose(uint32_t code, std::vector<Mark>& out) {
  if (code - kSBase < kSCount) {
    const uint32_t index = code - kSBase, t = index % kTCount;
    out.push_back({kLBase + index / (kVCount * kTCount), 0});
    out.push_back({kVBase + index % (kVCount * kTCount) / kTCount, 0});
    if (t > 0) out.push_back({kTBase + t, 0});
    return;
  }
  const Decomposition* const end = kDecompositions + kDecompositionCount;
  const Decomposition* const at =
      std::lower_bound(kDecompositions, end, code, [](const Decomposition& d, uint32_t c) { return d.code < c; });
  if (code < 0x80 || at == end || at->code != code) {
    out.push_back({code, combining_class(code)});
    return;
  }
  decompose(at->first, out);
  if (at->second != 0) decompose(at->second, out);
}

// The code point that two compose to, or 0.
uint32_t compose(uint32_t first, uint32_t second) {
  if (first - kLBase < kLCount && second - kVBase < kVCount) {
    return kSBase + ((first - kLBase) * kVCount + second - kVBase) * kTCount;
  }
  if (first - kSBase < kSCount && (first - kSBase) % kTCount == 0 && second - kTBase - 1 < kTCount - 1) {
    return first + (second - kTBase);
  }
  const auto less = [](uint16_t place, std::pair<uint32_t, uint32_t> pair) {
    return std::pair(kDecompositions[place].first, kDecompositions[place].second) < pair;
  };
  const uint16_t* const end = kCompositions + kCompositionCount;
  const uint16_t* const at = std::lower_bound(kCompositions, end, std::pair(first, second), less);
  if (at == end || kDecompositions[*at].first != first || kDecompositions[*at].second != second) return 0;
  return kDecompositions[*at].code;
}

// Canonical order: every run of combining marks sorted by class, equal classes as they stand.
void reorder(std::vector<Mark>& marks) {
  for (size_t i = 0; i < marks.size();) {
    size_t j = i;
    while (j < marks.size() && marks[j].combining != 0) ++j;
    const auto first = marks.begin() + static_cast<ptrdiff_t>(i), last = marks.begin() + static_cast<ptrdiff_t>(j);
    std::stable_sort(first, last, [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    i = j + 1;
  }
}

void compose_into(const std::vector<Mark>& marks, std::vector<uint32_t>& out) {
  out.clear();
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;  // place of the last one in out
  uint8_t last = 0;        // class of the last mark behind it that stayed
  bool adjacent = false;   // nothing stayed behind it
  for (const Mark& mark : marks) {
    if (starter != kNone && (adjacent || (last != 0 && last < mark.combining))) {
      if (const uint32_t composed = compose(out[starter], mark.code)) {
        out[starter] = composed;
        continue;
      }
    }
    out.push_back(mark.code);
    if (mark.combining == 0) {
      starter = out.size() - 1;
      adjacent = true;
      last = 0;
    } else {
      adjacent = false;
      last = mark.combining;
    }
  }
}

// The first code point at or behind p that NFC has to look at, or end.
const char* find_suspect(const char* p, const char* end) {
  while (p < end) {
    if (end - p >= 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      if ((word & 0x8080808080808080u) == 0) {
        p += 8;
        continue;
      }
    }
    const uint8_t lead = static_cast<uint8_t>(*p);
    if (lead < 0x80) {
      ++p;
    } else if (lead < 0xCC) {  // below U+0300 there are no marks
      p += 2;
    } else {
      const CodePoint point = code_point_at(p);
      if (nfc_class(point.code) != 0) return p;
      p += point.size;
    }
  }
  return end;
}

}  // namespace

bool surely_nfc(std::string_view text) {
  const char* const end = text.data() + text.size();
  return find_suspect(text.data(), end) == end;
}

void to_nfc(std::string_view text, std::string& out) {
  out.clear();
  std::vector<Mark> marks;
  std::vector<uint32_t> composed;
  const char *p = text.data(), *const end = p + text.size();
  while (p < end) {
    const char* const suspect = find_suspect(p, end);
    if (suspect == end) {
      out.append(p, end);
      return;
    }
    // The starter before the suspect composes with nothing on its left: the segment begins there and lasts until the
    // next such starter.
    const char* from = suspect > p ? suspect - code_point_before(suspect).size : suspect;
    out.append(p, from);
    marks.clear();
    do {
      const CodePoint point = code_point_at(from);
      if (from > suspect && nfc_class(point.code) == 0) break;
      decompose(point.code, marks);
      from += point.size;
    } while (from < end);
    reorder(marks);
    compose_into(marks, composed);
    for (const uint32_t code : composed) append_utf8(out, code);
    p = from;
  }
}

}  // namespace mantissa::tokenizer
