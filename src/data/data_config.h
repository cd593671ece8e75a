// The keys of the config's section `data`.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace mantissa {

struct DataConfig {
  std::string train;                              // file with the documents
  std::string validation;                         // file of its own; "" takes a share of `train`
  double validation_fraction = 0.01;              // share of the documents, rounded to whole documents
  std::string format = "auto";                    // auto, text, jsonl, dictd
  std::string document_separator = "blank-line";  // of text: blank-line, line, none (one document)
  std::string text_key = "text";                  // of jsonl
  std::string dictd_text = "prose";               // of dictd: prose, layout, raw
  int64_t max_documents = 0;                      // the first ones of the file; 0 takes all
  int64_t min_document_bytes = 0;                 // shorter documents are left out and counted
  std::string tokenizer = "bytes";
  bool append_eos = true;         // close each document with the separator (bytes: byte 0)
  int64_t sequence_length = 512;  // S, tokens a row
  std::string packing = "truncate";

  void describe(config::Fields& f);
};

}  // namespace mantissa
