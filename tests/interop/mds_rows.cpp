// Rows of MDS folders as lines of text, for mds_streaming.py.
//
//   mds_rows write FOLDER LENGTH VOCABULARY LABELS ZSTD SIZE_LIMIT   rows from standard input, "ids|document
//   lengths|labels" mds_rows read FOLDER LENGTH EOS                                  rows to standard output,
//   "ids|segment lengths|labels" mds_rows verify FOLDER                                           problems to standard
//   output; exit 3 when there are any
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/mds/rows.h"
#include "data/mds/verify.h"
#include "data/mds/writer.h"

namespace mantissa {
namespace {

std::vector<int32_t> numbers(const std::string& text) {
  std::istringstream stream(text);
  std::vector<int32_t> values;
  for (int32_t value; stream >> value;) values.push_back(value);
  return values;
}

void print(std::span<const int32_t> values, char end) {
  for (size_t i = 0; i < values.size(); ++i) std::printf(i == 0 ? "%d" : " %d", values[i]);
  std::putchar(end);
}

void write(char** arguments) {
  mds::Writer writer(arguments[0], {.sequence_length = std::stoll(arguments[1]),
                                    .vocab_size = std::stoll(arguments[2]),
                                    .labels = std::stoi(arguments[3]) != 0,
                                    .size_limit = std::stoull(arguments[5]),
                                    .zstd_level = std::stoi(arguments[4]),
                                    .hashes = {"sha256", "xxh64", "sha1"}});
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> parts = split(line, '|');
    check(parts.size() == 3, "a line of {} parts", parts.size());
    writer.add(numbers(parts[0]), numbers(parts[1]), numbers(parts[2]));
  }
  writer.finish({});
}

void read(char** arguments) {
  const TokenSource source =
      mds::open_rows({arguments[0]}, {.sequence_length = std::stoll(arguments[1]), .eos = std::stoi(arguments[2])});
  Batch batch;
  for (int64_t row = 0; row < source.rows->rows(); ++row) {
    batch.clear();
    source.rows->append_row(row, batch);
    print(batch.ids, '|');
    std::vector<int32_t> lengths;
    for (size_t s = 0; s + 1 < batch.segments.size(); ++s) lengths.push_back(batch.segments[s + 1] - batch.segments[s]);
    print(lengths, '|');
    print(batch.labels, '\n');
  }
}

int run(int count, char** arguments) {
  const std::string verb = count > 1 ? arguments[1] : "";
  if (verb == "write" && count == 8) {
    write(arguments + 2);
  } else if (verb == "read" && count == 5) {
    read(arguments + 2);
  } else if (verb == "verify" && count == 3) {
    const mds::VerifyReport report = mds::verify(arguments[2]);
    for (const std::string& problem : report.problems) std::puts(problem.c_str());
    return report.problems.empty() ? 0 : 3;
  } else {
    fail(Exit::kUsage, "usage: mds_rows write|read|verify FOLDER ...");
  }
  return 0;
}

}  // namespace
}  // namespace mantissa

int main(int count, char** arguments) {
  try {
    return mantissa::run(count, arguments);
  } catch (const mantissa::Error& error) {
    std::fprintf(stderr, "mds_rows: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
