// The files of a Hugging Face model folder by name, and what a folder without weights seems to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mantissa::hf {

inline constexpr const char* kConfig = "config.json";
inline constexpr const char* kGenerationConfig = "generation_config.json";
inline constexpr const char* kWeights = "model.safetensors";
inline constexpr const char* kIndex = "model.safetensors.index.json";

// Tokenizer files, as they are copied from folder to folder.
std::span<const std::string_view> tokenizer_files();

// "model-00002-of-00005.safetensors"; shards count from 0.
std::string shard_name(size_t shard, size_t shards);

// True where model.safetensors or its index is in `folder`.
bool has_weights(const std::string& folder);

// Fails with Exit::kInput: no weights in `folder`; says which other files are there (pickles, GGUF, an adapter) and
// what to do about it.
[[noreturn]] void refuse_without_weights(const std::string& folder);

}  // namespace mantissa::hf
