// The parts of tokenizer.json around the BPE: normalizer, pre_tokenizer, post_processor, decoder.
#pragma once

#include <string>

#include "base/json.h"
#include "data/tokenizer/model.h"

namespace mantissa::tokenizer {

// Known: normalizer null or NFC; pre_tokenizer ByteLevel with its own pattern, or a Sequence of a Split by a known
// pattern and a ByteLevel without one; post_processor null, ByteLevel, TemplateProcessing or a Sequence of these;
// decoder ByteLevel. Everything else is Exit::kInput by name. Ids of the post-processor must be tokens of `model`.
void read_steps(const Json& file, const std::string& name, Steps& steps);
// The post-processor; its ids must be tokens of `model`.
void read_post_processor(const Json& file, const Model& model, const std::string& name, Steps& steps);

// Fails unless `object` is one and all its keys are among `keys`; `where` begins the message.
void expect_keys(const Json& object, std::initializer_list<std::string_view> keys, const std::string& where);

// The value as it stands in a message, cut to fit one line.
std::string shown(const Json& value);

bool read_bool(const Json& object, const char* key, bool otherwise, const std::string& where);
std::string read_string(const Json& object, const char* key, const std::string& where);

}  // namespace mantissa::tokenizer
