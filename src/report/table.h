// The comparison table: columns and cells once, written for a console, as Markdown or as HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run_reader.h"

namespace mantissa::report {

struct Column {
  std::string key, header;
  bool right = true;   // numbers align right
  int importance = 0;  // a narrow console keeps the highest; see kAlways
};
inline constexpr int kAlways = 100;

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // [row][column], UTF-8
  std::vector<bool> faint;                     // per row: its speed is an emulation's
  std::vector<std::string> notes;              // below the table
};

// Columns: # weights recipe scope, MFU %, tok/s, loss, Δ loss, eval, mem %, GEMMs; loss in nats a token. Without a
// baseline (CompareResult::baseline empty: separate runs) there is no Δ loss.
Table compare_table(const CompareResult& result);

struct TableStyle {
  int width = 120;     // columns of the console; less important columns go when the table is wider
  bool color = false;  // ANSI attributes; a caller on a terminal without NO_COLOR sets it
};

std::string render_console(const Table& table, const TableStyle& style);
std::string render_markdown(const Table& table);

// The table that `compare` ends with; ends with a newline. Rows that have not ended show "…".
std::string render_compare_table(const CompareResult& result, const TableStyle& style);

// Columns that a terminal gives `text`; every code point above U+00FF of this report is one column wide.
int display_width(std::string_view text);

// 12,345 and 40,620; "–" where empty.
std::string grouped(const Number& value);
// Fixed decimals; a minus sign U+2212 is not used, so that figures can be copied. "–" where empty.
std::string fixed(const Number& value, int decimals, bool plus = false);

}  // namespace mantissa::report
