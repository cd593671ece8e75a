// The keys of the config's section `data`.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace mantissa {

struct DataConfig {
  std::string train;                    // file, or folder of files, to train on
  std::string validation;               // of its own; "" takes a share of `train`
  std::string split, validation_split;  // of a folder: its files named SPLIT.*, SPLIT-* or in SPLIT/; "" takes all
  double validation_fraction = 0.01;    // share of the documents, rounded to whole documents
  std::string format = "auto";          // auto, text, jsonl, dictd, parquet, mds, nanogpt, llmc, megatron
  std::string document_separator = "blank-line";  // of text: blank-line, line, none (one document)
  std::string text_key = "text";                  // column of the text
  std::string prompt_key, response_key;           // fine-tuning: columns of prompt and response
  std::string messages_key;                       // fine-tuning: column of the conversation
  std::string chat_template = "none";             // none, auto, chatml, llama3, qwen3
  std::string system_prompt;                      // system turn of conversations that have none; "" adds none
  std::string prompt_suffix = "\n";               // between prompt and response where there is no template
  std::string dictd_text = "prose";               // of dictd: prose, layout, raw
  std::string token_dtype = "auto";               // of token files: auto, uint16, int32, uint32, int64
  int64_t max_documents = 0;                      // the first ones; 0 takes all
  int64_t min_document_bytes = 0;                 // shorter documents are left out and counted
  std::string tokenizer = "bytes";                // bytes, or a folder or file with a tokenizer.json
  bool add_special_tokens = true;                 // what the tokenizer's post-processor adds (BOS)
  bool append_eos = true;                         // close each document with the EOS token (bytes: byte 0)
  std::string eos_token;                          // "": of the model's config.json, else of the tokenizer
  int64_t sequence_length = 512;                  // S, tokens a row
  std::string packing = "truncate";               // truncate, best_fit, none

  // Of the model that the data is for; set by the owner, no keys.
  std::string model_folder;      // whose config.json names the EOS
  int64_t model_vocab_size = 0;  // ids of token files are below it; 0: as the files say

  bool fine_tuning() const { return !prompt_key.empty() || !messages_key.empty(); }

  void describe(config::Fields& f);
};

}  // namespace mantissa
