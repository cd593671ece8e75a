// Headline, comparison table, places for the charts, quantization summary.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "report/html.h"
#include "report/html_sections.h"
#include "report/html_text.h"
#include "report/page_data.h"
#include "report/table.h"
#include "report/verdict.h"

namespace mantissa::report {
namespace {

// Native picks by the loss that is acceptable, lowest first.
std::string picks_table(const CompareResult& result) {
  std::vector<Pick> front = native_front(result);
  if (front.size() < 2) return {};
  std::reverse(front.begin(), front.end());
  std::vector<std::vector<std::string>> rows;
  for (const Pick& pick : front)
    rows.push_back({fixed(pick.row->loss, 4), escaped(row_words(*pick.row)), grouped(pick.row->tokens_per_s),
                    fixed(pick.above, 4, true)});
  return html_table("Speed at a given loss, native rows", {"loss up to", "pick", "tok/s", "above lowest"}, rows,
                    {true, false, true, true}, "narrow");
}

struct TensorError {
  std::vector<double> snr;  // of the layers that have any error
  int exact = 0;
  double worst = 0, saturated = 0, flushed = 0;
  std::string worst_layer;
};

// Errors by tensor kind at the last step that has them.
std::map<std::string, TensorError> last_errors(const Run& run) {
  std::map<std::string, TensorError> errors;
  const auto& lines = run.metrics.quantization;
  for (const QuantLine& line : lines) {
    if (line.step != lines.back().step) continue;
    TensorError& error = errors[line.tensor];
    error.saturated = std::max(error.saturated, line.saturated);
    error.flushed = std::max(error.flushed, line.flushed);
    if (!line.snr_db) {
      ++error.exact;
      continue;
    }
    if (error.snr.empty() || *line.snr_db < error.worst) {
      error.worst = *line.snr_db;
      error.worst_layer = line.layer;
    }
    error.snr.push_back(*line.snr_db);
  }
  return errors;
}

std::string snr_cell(TensorError error) {
  if (error.snr.empty()) return error.exact ? "exact" : "–";
  const auto middle = error.snr.begin() + static_cast<std::ptrdiff_t>(error.snr.size() / 2);
  std::nth_element(error.snr.begin(), middle, error.snr.end());
  return fmt::format("{:.1f}<span class=\"sub\" title=\"{}\">{:.1f}</span>", *middle, escaped(error.worst_layer),
                     error.worst);
}

// A share in percent with enough digits to tell it from zero.
std::string share_text(double share) {
  if (share == 0) return "0";
  return share * 100 < 0.001 ? "&lt;0.001" : fmt::format("{:.3f}", share * 100);
}

std::string chart(const std::string& id, const std::string& title, const std::string& help) {
  return fmt::format(
      "<figure class=\"chart\" id=\"{}\"><figcaption><h3>{}</h3><p>{}</p></figcaption>"
      "<div class=\"plot\"></div></figure>\n",
      id, escaped(title), escaped(help));
}

}  // namespace

std::string html_table(const std::string& caption, const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& numeric,
                       const std::string& css_class) {
  std::string out = fmt::format(
      "<h3 class=\"caption\">{0}</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{0}\"><table class=\"{1}\" aria-label=\"{0}\"><thead><tr>",
      escaped(caption), css_class);
  for (size_t c = 0; c < header.size(); ++c)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", numeric[c] ? " class=\"n\"" : "", header[c]);
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (size_t c = 0; c < row.size(); ++c)
      out += fmt::format("<{0}{1}>{2}</{3}>", c == 0 ? "th scope=\"row\"" : "td", numeric[c] ? " class=\"n\"" : "",
                         row[c], c == 0 ? "th" : "td");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string run_cell(const Run& run) {
  const CompareRow& row = run.row;
  if (row.recipe.empty() || !run.label.starts_with(row.recipe)) return escaped(run.label);
  const std::string rest =
      row.scope == "none" || row.scope.empty() ? row.weights + " weights" : row.weights + " · " + row.scope;
  return fmt::format("{} <span class=\"rest\">{}</span>", escaped(row.recipe), escaped(rest));
}

Section result_section(const ReportData& data) {
  const Verdict verdict = judge(data);
  std::string body = fmt::format("<p class=\"headline\">{}</p>\n", escaped(verdict.headline));
  if (!verdict.sentences.empty()) {
    body += "<ul class=\"findings\">\n";
    for (const std::string& sentence : verdict.sentences) body += fmt::format("<li>{}</li>\n", escaped(sentence));
    body += "</ul>\n";
  }
  if (data.compare) body += picks_table(*data.compare);
  return {"result", "Result", body};
}

Section table_section(const ReportData& data) {
  const CompareResult result = rows_of(data);
  if (result.rows.empty()) return {};
  const Table table = compare_table(result);
  std::string body =
      "<div class=\"tools\"><button type=\"button\" id=\"all-columns\" aria-pressed=\"false\">all "
      "columns</button></div>\n"
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Comparison\">"
      "<table id=\"compare-table\" class=\"sortable\"><thead><tr>";
  for (const Column& column : table.columns)
    body += fmt::format("<th scope=\"col\" class=\"c-{}{}\">{}</th>", column.key, column.right ? " n" : "",
                        escaped(column.header));
  body += "</tr></thead><tbody>\n";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const CompareRow& row = result.rows[r];
    body += fmt::format("<tr{}>", table.faint[r] ? " class=\"emulated\"" : row.baseline() ? " class=\"baseline\"" : "");
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const Column& column = table.columns[c];
      std::string cell = escaped(table.rows[r][c]);
      if (column.key == "recipe")
        cell += fmt::format("<span class=\"sub narrow-only\">{}{}</span>", escaped(row.weights),
                            row.scope.empty() || row.scope == "none" ? "" : " · " + escaped(row.scope));
      if (column.key == "tokens_per_s" && table.faint[r]) cell += "<span class=\"sub narrow-only\">emulated</span>";
      if (column.key == "path" && table.faint[r]) cell = fmt::format("<span class=\"mark\">{}</span>", cell);
      const char* tag = column.key == "recipe" ? "th" : "td";
      body += fmt::format("<{0}{1} class=\"c-{2}{3}\">{4}</{0}>", tag, column.key == "recipe" ? " scope=\"row\"" : "",
                          column.key, column.right ? " n" : "", cell);
    }
    body += "</tr>\n";
  }
  body += "</tbody></table></div>\n";
  for (const std::string& note : table.notes) body += fmt::format("<p class=\"note\">{}</p>\n", escaped(note));
  return {"comparison", data.compare ? "Comparison" : "Runs", body};
}

Section curves_section(const ReportData& data) {
  const bool any =
      std::any_of(data.runs.begin(), data.runs.end(), [](const Run& r) { return !r.metrics.steps.empty(); });
  if (!any) return {};
  if (!has_charts())
    return {"curves", "Curves",
            "<p class=\"note\">This build of mantissa found no dygraphs (package libjs-dygraphs), so the "
            "curves are missing here; the figures stand in each run's metrics.jsonl.</p>\n"};
  std::string body = "<div id=\"legend\"></div>\n<div id=\"loss-controls\" class=\"tools\"></div>\n";
  body += chart("chart-loss", "Loss", "Nats a token.");
  if (data.compare) body += chart("chart-delta", "Δ loss", "");
  body += "<div class=\"grid\">";
  body += chart("chart-grad", "Gradient norm", "Before clipping.");
  body += chart("chart-lr", "Learning rate", "As the schedule gave it.");
  body += chart("chart-speed", "Speed", "Tokens a second; the emulation's where a row is emulated.");
  body += "</div>\n";
  size_t longest = 0;
  for (const Run& run : data.runs) longest = std::max(longest, run.metrics.steps.size());
  if (longest > kMaxPoints)
    body += fmt::format(
        "<p class=\"note\">Series of more than {} steps (longest: {}) are thinned out here: each stretch keeps "
        "its lowest and highest loss, highest gradient norm and lowest speed. Every step stands in "
        "metrics.jsonl.</p>\n",
        kMaxPoints, longest);
  body += "<noscript><p class=\"note\">The curves need JavaScript.</p></noscript>\n";
  return {"curves", "Curves", body};
}

Section quantization_section(const ReportData& data) {
  std::vector<std::vector<std::string>> rows;
  for (const Run& run : data.runs) {
    if (run.metrics.quantization.empty()) continue;
    auto errors = last_errors(run);
    double saturated = 0, flushed = 0;
    for (const auto& [tensor, error] : errors) {
      saturated = std::max(saturated, error.saturated);
      flushed = std::max(flushed, error.flushed);
    }
    rows.push_back({run_cell(run), snr_cell(errors["input"]), snr_cell(errors["weight"]), snr_cell(errors["grad"]),
                    share_text(saturated), share_text(flushed)});
  }
  if (rows.empty()) return {};
  std::string body =
      "<p>Signal-to-noise ratio of each quantized tensor against its unquantized value, in dB: higher is closer. The "
      "share "
      "saturated was clipped at the format's largest value, the share flushed became zero.</p>\n";
  body += "<div id=\"quantization-view\"></div>\n";
  body += html_table("At the last step recorded",
                     {"run", "input<span class=\"sub\">dB</span>", "weight<span class=\"sub\">dB</span>",
                      "grad<span class=\"sub\">dB</span>", "saturated<span class=\"sub\">%</span>",
                      "flushed<span class=\"sub\">%</span>"},
                     rows, {false, true, true, true, true, true}, "dense");
  body +=
      "<p class=\"note\">dB: median over the layers and, below it, the lowest; saturated and flushed: the highest "
      "share of any "
      "layer and tensor. The view has some steps of a long run, evenly spaced; all stand in metrics.jsonl.</p>\n";
  return {"quantization", "Quantization error", body};
}

}  // namespace mantissa::report
