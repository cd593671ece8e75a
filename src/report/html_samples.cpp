// What the models wrote while they trained.
#include <algorithm>

#include "base/error.h"
#include "report/html_sections.h"
#include "report/html_text.h"

namespace mantissa::report {
namespace {

constexpr size_t kMostLines = 200;  // of a run on the page

std::string as_written(const std::string& text) { return "<span class=\"written\">" + escaped(text) + "</span>"; }

// Lines [begin, end).
std::string table_of(const std::string& caption, const std::vector<SampleLine>& samples, size_t begin, size_t end) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = begin; i < end; ++i)
    rows.push_back({std::to_string(samples[i].step), as_written(samples[i].prompt), as_written(samples[i].text),
                    std::to_string(samples[i].tokens), escaped(samples[i].stop)});
  return html_table(caption, {"step", "prompt", "generated", "tokens", "ended by"}, rows,
                    {true, false, false, true, false});
}

std::string samples_of(const Run& run) {
  const std::vector<SampleLine>& all = run.samples;
  const auto last =
      std::find_if(all.begin(), all.end(), [&](const SampleLine& s) { return s.step == all.back().step; });
  const auto split = static_cast<size_t>(last - all.begin());
  std::string body = fmt::format("<h3>{}</h3>\n", run_cell(run));
  body += table_of(fmt::format("At step {}", all.back().step), all, split, all.size());
  if (split > 0) {
    const size_t first = split > kMostLines ? split - kMostLines : 0;
    body += fmt::format("<details><summary>Earlier steps</summary>{}{}</details>\n",
                        first > 0 ? fmt::format("<p>The first {} stand in samples.jsonl alone.</p>\n", first) : "",
                        table_of("Before", all, first, split));
  }
  return body;
}

}  // namespace

Section samples_section(const ReportData& data) {
  std::string body;
  for (const Run& run : data.runs)
    if (!run.samples.empty()) body += samples_of(run);
  return {"samples", "Samples", body};
}

}  // namespace mantissa::report
