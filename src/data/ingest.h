// Records to a corpus: one thread reads, all encode, and the documents are appended in the order read, whatever the
// timing. Memory holds a bounded number of records.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "data/corpus.h"
#include "data/encode.h"
#include "data/record.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa {

struct IngestProgress {
  std::string what;        // path that is read
  double share = 0;        // of its bytes, 0 to 1
  int64_t documents = 0;   // so far
  int64_t text_bytes = 0;  // of them
};
// Called at most once in kProgressInterval, in the thread that waits for the result.
using ProgressHook = std::function<void(const IngestProgress&)>;

inline constexpr std::chrono::milliseconds kProgressInterval{100};

struct IngestOptions {
  int64_t max_documents = 0;  // the first ones that are kept; 0 takes all
  std::string what;           // path, for messages
  ProgressHook progress;
};

// Appends what `reader` gives until its end; `corpus` stays open for more. The first error in the order of the records
// is the one that is thrown. Exit::kInterrupted when a stop signal was caught.
EncodeCounts ingest(RecordReader& reader, const DocumentEncoder& encoder, const Tokenizer& tokenizer,
                    const IngestOptions& options, Corpus& corpus);

}  // namespace mantissa
