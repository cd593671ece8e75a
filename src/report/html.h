// report.html: one self-contained file with tables, curves and quantization errors of one comparison or of any runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run_reader.h"

namespace mantissa::report {

// The page as text. Every text of the run directories is escaped; nothing in the page reaches the network.
std::string render_html(const ReportData& data);

// Reads run and comparison directories and writes the page to `out`, a file of the program's own, by way of a temporary
// file beside it.
// Errors: Exit::kUsage when no directory is given, Exit::kInput for what cannot be read, Exit::kStorage for `out`.
void write_report(const std::vector<std::filesystem::path>& dirs, const std::filesystem::path& out);

// False when the build found no dygraphs: the page then has its tables and says that curves are missing.
bool has_charts();

}  // namespace mantissa::report
