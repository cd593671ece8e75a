// Token files: llm.c by its magic, else nanoGPT; every row is read.
#include "data/token_files/token_files.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

MANTISSA_FUZZ(input, {
  const fuzz::InputFile file(input, ".bin");
  TokenOptions options;
  options.sequence_length = 8;
  const TokenSource source = open_token_rows({file.path()}, token_file_format(file.path()), options);
  Batch batch;
  for (int64_t row = 0; row < source.rows->rows() && row < 64; ++row) {
    batch.clear();
    batch.sequence_length = 8;
    source.rows->append_row(row, batch);
  }
})
