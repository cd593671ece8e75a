#include "report/html.h"

#include "base/error.h"
#include "base/file.h"
#include "base/output_file.h"
#include "report/assets.h"
#include "report/html_sections.h"
#include "report/html_text.h"
#include "report/page_data.h"
#include "report/page_policy.h"

namespace mantissa::report {
namespace {

// dygraphs without its first line (its licence stands in full beside it) and without the reference to a source map.
// Where it writes a style attribute it sets the style's text instead: the same style, and the one way the page's policy
// allows.
std::string dygraphs_script() {
  constexpr std::string_view kAttribute = ".setAttribute(\"style\",", kStyle = ".style.cssText=(";
  std::string_view text = asset("dygraph.min.js");
  if (text.starts_with("/*!")) text.remove_prefix(std::min(text.find('\n'), text.size()));
  std::string script(text.substr(0, text.rfind("//# sourceMappingURL")));
  for (size_t at = 0; (at = script.find(kAttribute, at)) != std::string::npos;)
    script.replace(at, kAttribute.size(), kStyle);
  return fmt::format("/*\n{}*/{}", asset("dygraphs_license.txt"), script);
}

std::string_view without_source_map(std::string_view css) { return css.substr(0, css.rfind("/*# sourceMappingURL")); }

// The scripts in their order; the data comes before them.
std::vector<std::string> scripts() {
  std::vector<std::string> texts;
  if (has_charts()) texts.push_back(dygraphs_script());
  for (const char* name : {"page.js", "charts.js", "quantization.js"})
    texts.push_back(fmt::format("\n{}", asset(name)));
  return texts;
}

std::string title_of(const ReportData& data) {
  if (data.compare) {
    const Json name = at_path(data.runs.empty() ? Json() : data.runs.front().info, "model.arch");
    const std::string model = plain(name);
    return model.empty() ? "Precision comparison" : "Precision comparison of " + model;
  }
  if (data.runs.size() == 1) return "Run " + data.runs.front().label;
  return fmt::format("{} runs", data.runs.size());
}

std::string subtitle(const ReportData& data) {
  if (data.runs.empty()) return {};
  const Json& info = data.runs.front().info;
  std::string out;
  auto add = [&](const std::string& text) {
    if (!text.empty()) out += (out.empty() ? std::string() : std::string(" · ")) + text;
  };
  add(plain(at_path(info, "model.parameters")) + " parameters");
  add(plain(at_path(info, "data.name")));
  add(plain(at_path(info, "steps")) + " steps");
  add(plain(at_path(info, "machine.cpu")));
  add(plain(at_path(info, "started")));
  return out;
}

}  // namespace

bool has_charts() { return !asset("dygraph.min.js").empty(); }

std::string render_html(const ReportData& data) {
  const Section sections[] = {result_section(data),  table_section(data),        curves_section(data),
                              samples_section(data), quantization_section(data), memory_section(data),
                              mfu_section(data),     setup_section(data),        method_section(data)};
  const std::string title = escaped(title_of(data));
  const std::string style = fmt::format("\n{}\n{}", without_source_map(asset("dygraph.min.css")), asset("report.css"));
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{} – "
      "mantissa</title>\n"
      "<style>{}</style>\n</head>\n<body>\n",
      page_policy(scripts(), {style}), title, style);
  page += fmt::format(
      "<header><p class=\"brand\">mantissa report</p><h1>{}</h1><p class=\"subtitle\">{}</p>\n<nav "
      "aria-label=\"Sections\">",
      title, escaped(subtitle(data)));
  for (const Section& section : sections)
    if (!section.body.empty()) page += fmt::format("<a href=\"#{}\">{}</a>", section.id, escaped(section.title));
  page += "</nav></header>\n<main>\n";
  for (const Section& section : sections)
    if (!section.body.empty())
      page += fmt::format("<section id=\"{0}\" aria-labelledby=\"h-{0}\">\n<h2 id=\"h-{0}\">{1}</h2>\n{2}</section>\n",
                          section.id, escaped(section.title), section.body);
  page += "</main>\n<footer><p>Written by mantissa";
  if (has_charts()) page += ". Charts: dygraphs 2, MIT licence, embedded; its notice stands in this file";
  page += ".</p></footer>\n";
  page += fmt::format("<script type=\"application/json\" id=\"page-data\">{}</script>\n", script_json(page_data(data)));
  for (const std::string& script : scripts()) page += "<script>" + script + "</script>\n";
  return page + "</body>\n</html>\n";
}

void write_report(const std::vector<std::filesystem::path>& dirs, const std::filesystem::path& out) {
  if (dirs.empty())
    fail(Exit::kUsage, "report: no directory given, expected one or more run or comparison directories");
  const std::string page = render_html(read_all(dirs));  // what cannot be read is named before what cannot be written
  expect_replaceable(out.string());
  write_atomic(out.string(), page);
}

}  // namespace mantissa::report
