// The sections of the page, each a <section> or empty where there is nothing to show.
#pragma once

#include <string>
#include <vector>

#include "report/run_reader.h"

namespace mantissa::report {

struct Section {
  std::string id, title, body;  // body: HTML
};

Section result_section(const ReportData& data);   // headline, sentences, speed at a given loss
Section table_section(const ReportData& data);    // the comparison
Section curves_section(const ReportData& data);   // places for the charts
Section samples_section(const ReportData& data);  // what the models wrote while they trained
Section quantization_section(const ReportData& data);
Section memory_section(const ReportData& data);
Section mfu_section(const ReportData& data);
Section setup_section(const ReportData& data);   // machine, model, data, batch, config
Section method_section(const ReportData& data);  // how the figures were taken, notes of the reader

// The label of a run for the first cell of a row: the recipe, then the rest fainter.
std::string run_cell(const Run& run);

// A titled table from header cells and rows of HTML cells; `numeric[c]` aligns column c right. The first column heads
// the row.
std::string html_table(const std::string& caption, const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& numeric,
                       const std::string& css_class = "");

}  // namespace mantissa::report
