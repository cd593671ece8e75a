// mantissa report DIR...: tables and one self-contained page from run folders.
#include "app/flags.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/output_file.h"
#include "report/html.h"
#include "report/table.h"

namespace mantissa {

int report_verb(const std::vector<std::string>& args) {
  CommandLine command("Tables and one self-contained HTML page from run or comparison folders.", "report");
  std::vector<std::string> folders;
  std::string output;
  bool markdown = false;
  command.option("folders", folders, "run or comparison folders").required();
  command.option("--output", output, "the page; default: report.html in the first folder");
  command.flag("--markdown", markdown, "print the comparison as Markdown");
  if (!command.parse(args)) return 0;
  Console console;
  const std::vector<std::filesystem::path> paths(folders.begin(), folders.end());
  if (output.empty()) {
    output = join_path(folders.front(), "report.html");
    report::write_report(paths, output);
  } else {
    write_output(output, report::render_html(report::read_all(paths)));
  }
  for (const std::string& folder : folders) {
    if (!exists(join_path(folder, "compare.json"))) continue;
    const report::CompareResult result = report::read_compare(folder);
    const report::TableStyle style{.width = console.interactive() ? console.width() : 120, .color = console.color()};
    std::string text =
        markdown ? report::render_markdown(report::compare_table(result)) : report::render_compare_table(result, style);
    if (text.ends_with('\n')) text.pop_back();
    console.block(text);
  }
  console.line(fmt::format("report    {}", output));
  console.flush();
  return 0;
}

}  // namespace mantissa
