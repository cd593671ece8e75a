#include "report/table.h"

#include <algorithm>
#include <cmath>

#include "base/display.h"
#include "base/error.h"

namespace mantissa::report {
namespace {

constexpr std::string_view kDash = "–", kPending = "…";

std::string percent(const Number& fraction, int decimals) {
  return fixed(fraction ? Number(*fraction * 100) : Number(), decimals);
}

std::string delta(const CompareRow& row) {
  if (row.baseline()) return std::string(kDash);
  std::string text = fixed(row.delta_loss, 4, true);
  if (row.delta_loss && row.delta_spread) text += fmt::format(" ±{:.4f}", *row.delta_spread);
  return text;
}

// " [1]" behind the recipe of a row with a note; rows of one note share its number.
std::string mark_of(const CompareRow& row, std::vector<std::string>& remarks) {
  if (row.note.empty()) return "";
  auto at = std::find(remarks.begin(), remarks.end(), row.note);
  if (at == remarks.end()) at = remarks.insert(at, row.note);
  return fmt::format(" [{}]", at - remarks.begin() + 1);
}

void drop_column(Table& table, std::string_view key) {
  const auto at =
      std::find_if(table.columns.begin(), table.columns.end(), [&](const Column& c) { return c.key == key; });
  if (at == table.columns.end()) return;
  const std::ptrdiff_t index = at - table.columns.begin();
  table.columns.erase(at);
  for (auto& row : table.rows) row.erase(row.begin() + index);
}

std::string padded(const std::string& text, int width, bool right) {
  const std::string space(static_cast<size_t>(std::max(0, width - display_width(text))), ' ');
  return right ? space + text : text + space;
}

std::vector<int> column_widths(const Table& table) {
  std::vector<int> widths;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    int width = display_width(table.columns[c].header);
    for (const auto& row : table.rows) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  return widths;
}

constexpr int kGap = 2;  // columns between two cells

// Which columns fit into `width`, leaving out the least important first.
std::vector<bool> fitting(const Table& table, const std::vector<int>& widths, int width) {
  std::vector<bool> shown(widths.size(), true);
  auto total = [&] {
    int sum = -kGap;
    for (size_t c = 0; c < widths.size(); ++c)
      if (shown[c]) sum += widths[c] + kGap;
    return sum;
  };
  while (total() > width) {
    int least = -1;
    for (size_t c = 0; c < widths.size(); ++c)
      if (shown[c] && table.columns[c].importance < kAlways &&
          (least < 0 || table.columns[c].importance < table.columns[static_cast<size_t>(least)].importance))
        least = static_cast<int>(c);
    if (least < 0) break;
    shown[static_cast<size_t>(least)] = false;
  }
  return shown;
}

// Breaks a note at spaces so that no line is wider than `width`.
std::string wrapped(const std::string& text, int width) {
  std::string out, line;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      out += line + '\n';
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return out + line + '\n';
}

}  // namespace

int display_width(std::string_view text) {
  int width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // all but continuation bytes
  return width;
}

std::string grouped(const Number& value) {
  if (!value || !std::isfinite(*value)) return std::string(kDash);
  const std::string digits = fmt::format("{:.0f}", *value == 0 ? 0.0 : *value);
  const size_t sign = digits.starts_with('-') ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string fixed(const Number& value, int decimals, bool plus) {
  if (!value || !std::isfinite(*value)) return std::string(kDash);
  return plus ? fmt::format("{:+.{}f}", *value, decimals) : fmt::format("{:.{}f}", *value, decimals);
}

Table compare_table(const CompareResult& result) {
  Table table;
  table.columns = {{"index", "#", true, 50},
                   {"weights", "weights", false, kAlways},
                   {"recipe", "recipe", false, kAlways},
                   {"scope", "scope", false, kAlways},
                   {"mfu", "MFU %", true, 30},
                   {"tokens_per_s", "tok/s", true, 90},
                   {"loss", "loss", true, kAlways},
                   {"delta_loss", "Δ loss", true, kAlways},
                   {"eval_loss", "eval", true, 40},
                   {"memory_pct", "mem %", true, 20},
                   {"path", "GEMMs", false, 95}};
  bool emulated = false, spread = false;
  int index = 0;
  std::vector<std::string> remarks;
  for (const CompareRow& row : result.rows) {
    const std::string open(row.ended() ? "" : kPending);
    auto cell = [&](std::string text) { return row.ended() ? std::move(text) : open; };
    table.rows.push_back(
        {std::to_string(++index), displayed(row.weights), displayed(row.recipe) + mark_of(row, remarks),
         row.scope == "none" || row.scope.empty() ? std::string(kDash) : displayed(row.scope),
         cell(percent(row.mfu, 1)), cell(grouped(row.tokens_per_s)), cell(fixed(row.loss, 4)), cell(delta(row)),
         cell(fixed(row.eval_loss, 4)), cell(fixed(row.memory_pct, 1)), cell(row.path)});
    table.faint.push_back(row.ended() && row.emulated());
    emulated |= row.ended() && row.emulated();
    spread |= row.delta_loss && row.delta_spread;
  }
  for (size_t i = 0; i < remarks.size(); ++i)
    table.notes.push_back(fmt::format("[{}] {}.", i + 1, displayed(remarks[i])));
  if (result.ended() < result.planned)
    table.notes.push_back(fmt::format("{} of {} rows have ended.", result.ended(), result.planned));
  std::string loss = "loss: mean of the last tenth of the steps, nats a token";
  if (!result.baseline.empty()) loss += "; Δ loss: against the " + displayed(result.baseline);
  if (spread) loss += "; ±: standard deviation of the paired Δ over seeds";
  table.notes.push_back(loss + ".");
  if (emulated)
    table.notes.push_back(
        "emulated: exact arithmetic of the format on other hardware; tok/s and MFU of these rows are the "
        "emulation's, not the format's.");
  if (result.baseline.empty()) drop_column(table, "delta_loss");
  return table;
}

std::string render_console(const Table& table, const TableStyle& style) {
  const std::vector<int> widths = column_widths(table);
  const std::vector<bool> shown = fitting(table, widths, style.width);
  auto line = [&](auto&& cell) {
    std::string text;
    for (size_t c = 0; c < widths.size(); ++c)
      if (shown[c])
        text += std::string(text.empty() ? 0 : kGap, ' ') + padded(cell(c), widths[c], table.columns[c].right);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  auto styled = [&](const std::string& text, std::string_view code) {
    return style.color ? fmt::format("\x1b[{}m{}\x1b[0m\n", code, text) : text + '\n';
  };
  std::string out = styled(line([&](size_t c) { return table.columns[c].header; }), "1");
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const std::string text = line([&](size_t c) { return table.rows[r][c]; });
    out += table.faint[r] ? styled(text, "2") : text + '\n';
  }
  std::string left_out;
  for (size_t c = 0; c < widths.size(); ++c)
    if (!shown[c]) left_out += (left_out.empty() ? "" : ", ") + table.columns[c].header;
  if (!left_out.empty()) out += wrapped(fmt::format("left out at {} columns: {}.", style.width, left_out), style.width);
  for (const std::string& note : table.notes) out += wrapped(note, style.width);
  return out;
}

std::string render_markdown(const Table& table) {
  // A backslash takes its meaning from any punctuation (CommonMark 0.31, section 2.4; GFM for "|" and "~").
  auto escaped = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (std::string_view("\\`*_[]<>|~&").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
    return out;
  };
  std::string out = "|", rule = "|";
  for (const Column& column : table.columns) {
    out += fmt::format(" {} |", escaped(column.header));
    rule += column.right ? "---:|" : "---|";
  }
  out += "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const std::string& cell : row) out += fmt::format(" {} |", escaped(cell));
    out += "\n";
  }
  for (const std::string& note : table.notes) out += fmt::format("\n{}\n", escaped(note));
  return out;
}

std::string render_compare_table(const CompareResult& result, const TableStyle& style) {
  return render_console(compare_table(result), style);
}

}  // namespace mantissa::report
