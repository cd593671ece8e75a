#include "app/prepare_preview.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/display.h"
#include "base/text.h"
#include "base/units.h"
#include "data/tokenizer/utf8.h"

namespace mantissa {
namespace {

constexpr int32_t kFirstTokens = 12, kLastTokens = 4;  // of a segment
constexpr int32_t kFirstUnlabelled = 2;                // of one without labels, as padding
constexpr size_t kSegments = 6;                        // of a row

// Controls, what turns the direction of a line, and what takes no room: the soft hyphen and the joiners too.
bool invisible(uint32_t code) { return !is_shown(code) || code == 0xad || code == 0x200c || code == 0x200d; }

// The bytes of a token between quotes: as text where they are UTF-8, else as \xNN.
std::string quoted(std::string_view bytes) {
  if (tokenizer::find_ill_formed(bytes) < bytes.size()) return "\"" + printable(bytes) + "\"";
  std::string out = "\"";
  for (size_t at = 0; at < bytes.size();) {
    const auto [code, size] = tokenizer::code_point_at(bytes.data() + at);
    if (code == '\n')
      out += "\\n";
    else if (code == '\t')
      out += "\\t";
    else if (code == '"' || code == '\\')
      out += fmt::format("\\{}", static_cast<char>(code));
    else if (invisible(code))
      out += fmt::format("\\u{:04x}", code);
    else
      out += bytes.substr(at, size);
    at += size;
  }
  return out + "\"";
}

std::string token_text(const Tokenizer* tokenizer, int32_t id) {
  if (tokenizer == nullptr) return "";
  if (!tokenizer->known(id)) return "(unknown)";
  return quoted(tokenizer->bytes_of(id)) + (tokenizer->special(id) ? "  special" : "");
}

void add_token(const Batch& batch, int32_t at, const Tokenizer* tokenizer, std::string& out) {
  const auto i = static_cast<size_t>(at);
  const int32_t label = batch.labels[i];
  out += fmt::format("    {:>8} {:>8} {:>8}  {}\n", batch.positions[i], batch.ids[i],
                     label == kIgnoredLabel ? "-" : std::to_string(label), token_text(tokenizer, batch.ids[i]));
}

void add_segment(const Batch& batch, size_t segment, const Tokenizer* tokenizer, std::string& out) {
  const int32_t begin = batch.segments[segment], end = batch.segments[segment + 1];
  const auto labels = std::count_if(batch.labels.begin() + begin, batch.labels.begin() + end,
                                    [](int32_t label) { return label != kIgnoredLabel; });
  out += fmt::format("  segment {} · tokens {} to {} · {} with a label\n", segment + 1, begin, end - 1,
                     grouped(static_cast<int64_t>(labels)));
  out += fmt::format("    {:>8} {:>8} {:>8}  token\n", "position", "id", "label");
  const int32_t first = labels > 0 ? kFirstTokens : kFirstUnlabelled, last = labels > 0 ? kLastTokens : 0;
  for (int32_t at = begin; at < end; ++at) {
    if (at == begin + first && end - at > last + 1) {
      out += fmt::format("    {:>8}\n", "...");
      if (last == 0) break;
      at = end - last;
    }
    add_token(batch, at, tokenizer, out);
  }
}

}  // namespace

std::string preview_rows(const Dataset& data, int64_t rows) {
  const RowSource& source = *data.source(Split::kTrain);
  const int64_t shown = std::min(rows, source.rows());
  std::string out;
  Batch batch;
  for (int64_t row = 0; row < shown; ++row) {
    batch.clear();
    batch.sequence_length = source.sequence_length();
    source.append_row(row, batch);
    const size_t segments = batch.segments.size() - 1;
    out += fmt::format("row {} · {} tokens · {} segments · {} labels\n", row, grouped(source.sequence_length()),
                       segments, grouped(batch.valid_tokens));
    for (size_t segment = 0; segment < std::min(segments, kSegments); ++segment)
      add_segment(batch, segment, data.tokenizer().get(), out);
    if (segments > kSegments) out += fmt::format("  and {} segments more\n", segments - kSegments);
  }
  return out;
}

}  // namespace mantissa
