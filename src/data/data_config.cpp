#include "data/data_config.h"

namespace mantissa {

void DataConfig::describe(config::Fields& f) {
  f.text("train", train,
         "file with the documents to train on (.txt, .jsonl, DICT .index or .dict.dz; .gz and .zst too)");
  f.text("validation", validation, "file with the documents to evaluate on; empty: a share of the training documents");
  f.number("validation_fraction", validation_fraction, "share of the documents kept for evaluation",
           {.min = 0, .max = 0.9});
  f.choice("format", format, {"auto", "text", "jsonl", "dictd"}, "how the file holds documents; auto: by its name",
           "Parquet and MDS are not available in this version");
  f.choice("document_separator", document_separator, {"blank-line", "line", "none"},
           "what parts the documents of a text file");
  f.text("text_key", text_key, "key of the text in a JSONL line");
  f.choice("dictd_text", dictd_text, {"prose", "layout", "raw"},
           "text of a DICT entry: prose (no pronunciation, etymology, sources), layout (spaces collapsed), raw");
  f.integer("max_documents", max_documents, "take the first N documents of the file; 0: all", {.min = 0});
  f.integer("min_document_bytes", min_document_bytes, "leave out shorter documents", {.min = 0});
  f.choice("tokenizer", tokenizer, {"bytes"}, "bytes: vocabulary 256, byte 0 separates documents",
           "Hugging Face tokenizers are not available in this version");
  f.boolean("append_eos", append_eos, "close each document with the separator token");
  f.integer("sequence_length", sequence_length, "tokens a row", {.min = 2, .max = 1 << 20});
  f.choice("packing", packing, {"truncate"}, "truncate: documents end to end, cut every sequence_length tokens",
           "best_fit is not available in this version");
}

}  // namespace mantissa
