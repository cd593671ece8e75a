// JSON lines, packed or not: text columns and conversations.
#include "data/record.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

namespace {

void read(const std::string& path, const RecordSpec& spec) {
  DataConfig config;
  config.format = "jsonl";
  const auto reader = open_records(find_source(path, "", config), spec, config);
  Record record;
  while (reader->next(record)) {
  }
}

}  // namespace

MANTISSA_FUZZ(input, {
  const fuzz::InputFile file(input, ".jsonl");
  for (const RecordSpec& spec : {RecordSpec{{"text"}, ""}, RecordSpec{{}, "messages"}}) {
    try {
      read(file.path(), spec);
    } catch (const Error&) {
    }
  }
})
