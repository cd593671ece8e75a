// What a run's folder holds, as a page of text.
#pragma once

#include <string>

#include "report/run_reader.h"

namespace mantissa {

// Sections (run, machine, model, precision, data, batch, FLOPs, memory, course, result), each a title and its facts in
// two columns; what a run did not record is left out.
std::string run_page(const report::Run& run);

// run.json and result.json under "run" and "result" (null: not finished).
Json run_record(const report::Run& run);

}  // namespace mantissa
