#include "data/data_config.h"

namespace mantissa {

void DataConfig::describe(config::Fields& f) {
  f.text("train", train,
         "file or folder with the data to train on: text, JSONL, Parquet, DICT, MDS shards, token files; .gz and .zst "
         "of text too");
  f.text("validation", validation, "file or folder to evaluate on; empty: a share of the training documents");
  f.text("split", split, "of a folder: take the files named SPLIT.*, SPLIT-* or in SPLIT/; empty: all");
  f.text("validation_split", validation_split, "likewise for validation; with no validation path, of the train folder");
  f.number("validation_fraction", validation_fraction, "share of the documents kept for evaluation",
           {.min = 0, .max = 0.9});
  f.choice("format", format, {"auto", "text", "jsonl", "dictd", "parquet", "mds", "nanogpt", "llmc", "megatron"},
           "how the files hold the data; auto: by their names");
  f.choice("document_separator", document_separator, {"blank-line", "line", "none"},
           "what parts the documents of a text file");
  f.text("text_key", text_key, "column of the text in JSONL, Parquet and MDS; a.b: b inside a");
  f.text("prompt_key", prompt_key,
         "fine-tuning: column of the prompt, a text or a list of messages; the loss is on the response alone");
  f.text("response_key", response_key, "fine-tuning: column of the response");
  f.text("messages_key", messages_key,
         "fine-tuning: column of the conversation, [{role, content}, ...] or [{from, value}, ...]");
  f.choice("chat_template", chat_template, {"none", "auto", "chatml", "llama3", "qwen3"},
           "how turns are written; auto: as the tokenizer's folder says");
  f.text("system_prompt", system_prompt, "system turn of conversations that have none; empty: none is added");
  f.text("prompt_suffix", prompt_suffix, "between prompt and response where chat_template is none");
  f.choice("dictd_text", dictd_text, {"prose", "layout", "raw"},
           "text of a DICT entry: prose (no pronunciation, etymology, sources), layout (spaces collapsed), raw");
  f.choice("token_dtype", token_dtype, {"auto", "uint16", "int32", "uint32", "int64"},
           "of headerless token files and MDS bytes columns; auto: uint16 and int64");
  f.integer("max_documents", max_documents, "take the first N documents; 0: all", {.min = 0});
  f.integer("min_document_bytes", min_document_bytes, "leave out shorter documents", {.min = 0});
  f.text("tokenizer", tokenizer,
         "bytes (vocabulary 256, byte 0 separates documents), or a folder or file with a "
         "tokenizer.json");
  f.boolean("add_special_tokens", add_special_tokens, "add what the tokenizer's post-processor adds (BOS)");
  f.boolean("append_eos", append_eos, "close each document with the EOS token");
  f.text("eos_token", eos_token,
         "EOS; empty: of the model's config.json, else of the tokenizer. Where token files "
         "are read, a given one ends a document");
  f.integer("sequence_length", sequence_length, "tokens a row", {.min = 2, .max = 1 << 20});
  f.choice("packing", packing, {"truncate", "best_fit", "none"},
           "truncate: documents end to end, cut every sequence_length tokens; best_fit: whole documents where they fit "
           "best, padded; none: one document a row, padded");
}

}  // namespace mantissa
