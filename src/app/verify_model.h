// Checks of model folders and safetensors files: each prints a line for what held and throws at the first rule that
// does not (Exit::kInput).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa {

// "tensors   2 shards, 21 tensors": one check that held.
void verified(std::string_view what, std::string_view found);

// config.json, index, headers, names and shapes, finite values, tokenizer and token ids.
void verify_model(const std::string& folder);
// Header, places, finite values.
void verify_tensors(const std::string& path);
// A folder or file with a tokenizer.json; `vocab_size` of the model that it goes with, 0: none.
void verify_tokenizer(const std::string& path, int64_t vocab_size = 0);

}  // namespace mantissa
