#include "data/tokenizer/pipeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace mantissa::tokenizer {
namespace {

std::string type_of(const Json& part, const std::string& where) { return read_string(part, "type", where); }

const Json& array_at(const Json& object, const char* key, const std::string& where) {
  const Json& array = member(object, key, where);
  if (!array.is_array()) fail(Exit::kInput, "{}.{}: is {}, expected an array", where, key, array.type_name());
  return array;
}

bool read_nfc(const Json& file, const std::string& name) {
  const auto part = file.find("normalizer");
  if (part == file.end() || part->is_null()) return false;
  const std::string where = name + ": normalizer", type = type_of(*part, where);
  if (type != "NFC") fail(Exit::kInput, "{}: {} is not supported, expected null or NFC", where, printable(type));
  expect_keys(*part, {"type"}, where);
  return true;
}

// ByteLevel; trim_offsets has no part in ids.
bool byte_level_uses_regex(const Json& part, const std::string& where, bool& add_prefix_space) {
  const std::string type = type_of(part, where);
  if (type != "ByteLevel") {
    fail(Exit::kInput, "{}: {} is not supported, expected ByteLevel or a Sequence of Split and ByteLevel", where,
         printable(type));
  }
  expect_keys(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, where);
  add_prefix_space = read_bool(part, "add_prefix_space", true, where);
  return read_bool(part, "use_regex", true, where);
}

Pattern read_split(const Json& part, const std::string& where) {
  const std::string type = type_of(part, where);
  if (type != "Split") fail(Exit::kInput, "{}: {} is not supported, expected Split", where, printable(type));
  expect_keys(part, {"type", "pattern", "behavior", "invert"}, where);
  const std::string behavior = read_string(part, "behavior", where);
  if (behavior != "Isolated") {
    fail(Exit::kInput, "{}: behavior {} is not supported, expected Isolated", where, printable(behavior));
  }
  if (read_bool(part, "invert", false, where)) fail(Exit::kInput, "{}: invert is true, expected false", where);
  const Json& pattern = member(part, "pattern", where);
  expect_keys(pattern, {"Regex"}, where + ".pattern");
  const std::string regex = read_string(pattern, "Regex", where + ".pattern");
  for (const Pattern known : {Pattern::kGpt2, Pattern::kLlama3, Pattern::kQwen2}) {
    if (regex == pattern_text(known)) return known;
  }
  fail(Exit::kInput, "{}: the pattern {} is not supported, expected that of GPT-2, Llama 3 or Qwen2", where,
       printable(regex, 200));
}

void read_pre_tokenizer(const Json& file, const std::string& name, Steps& steps) {
  const std::string where = name + ": pre_tokenizer";
  const Json& part = member(file, "pre_tokenizer", name);
  if (part.is_null()) fail(Exit::kInput, "{}: is null, expected ByteLevel or a Sequence of Split and ByteLevel", where);
  if (type_of(part, where) != "Sequence") {
    if (!byte_level_uses_regex(part, where, steps.add_prefix_space)) {
      fail(Exit::kInput, "{}: ByteLevel has use_regex = false and no Split before it", where);
    }
    steps.pattern = Pattern::kGpt2;
    return;
  }
  expect_keys(part, {"type", "pretokenizers"}, where);
  const Json& parts = array_at(part, "pretokenizers", where);
  if (parts.size() != 2) {
    fail(Exit::kInput, "{}: is a Sequence of {} parts, expected Split and ByteLevel", where, parts.size());
  }
  steps.pattern = read_split(parts[0], where + "[0]");
  const std::string second = where + "[1]";
  if (byte_level_uses_regex(parts[1], second, steps.add_prefix_space)) {
    fail(Exit::kInput, "{}: use_regex is true behind a Split, expected false", second);
  }
  if (steps.add_prefix_space) fail(Exit::kInput, "{}: add_prefix_space is true behind a Split, expected false", second);
}

// The ids of the special token that an item of a template names.
std::vector<int32_t> template_ids(const Json& part, const std::string& token, const Model& model,
                                  const std::string& where) {
  const Json& tokens = member(part, "special_tokens", where);
  const std::string at = where + ".special_tokens." + printable(token, 60);
  const Json& entry = member(member(part, "special_tokens", where), token, where + ".special_tokens");
  if (!tokens.is_object())
    fail(Exit::kInput, "{}.special_tokens: is {}, expected an object", where, tokens.type_name());
  expect_keys(entry, {"id", "ids", "tokens"}, at);
  std::vector<int32_t> ids;
  for (const Json& id : array_at(entry, "ids", at)) {
    const int64_t value = id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(kMaxTokenId)
                              ? id.get<int64_t>()
                              : int64_t{-1};
    if (!model.vocab.known(static_cast<int32_t>(value))) {
      fail(Exit::kInput, "{}: id {} is not a token of this tokenizer", at, shown(id));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

void read_template(const Json& part, const Model& model, const std::string& where, Steps& steps) {
  expect_keys(part, {"type", "single", "pair", "special_tokens"}, where);
  std::vector<int32_t> before, after;
  int sequences = 0;
  for (const Json& item : array_at(part, "single", where)) {
    if (item.is_object() && item.size() == 1 && item.contains("Sequence")) {
      const std::string id = read_string(item["Sequence"], "id", where + ".single");
      if (id != "A") fail(Exit::kInput, "{}.single: names the sequence {}, expected A", where, printable(id));
      ++sequences;
    } else if (item.is_object() && item.size() == 1 && item.contains("SpecialToken")) {
      const std::string token = read_string(item["SpecialToken"], "id", where + ".single");
      const std::vector<int32_t> ids = template_ids(part, token, model, where);
      std::vector<int32_t>& side = sequences == 0 ? before : after;
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      fail(Exit::kInput, "{}.single: found {}, expected Sequence or SpecialToken", where, shown(item));
    }
  }
  if (sequences != 1) fail(Exit::kInput, "{}.single: names {} sequences, expected 1", where, sequences);
  // A later part wraps what the parts before it made.
  steps.before.insert(steps.before.begin(), before.begin(), before.end());
  steps.after.insert(steps.after.end(), after.begin(), after.end());
}

void read_processor(const Json& part, const Model& model, const std::string& where, Steps& steps, bool nested) {
  if (part.is_null() && !nested) return;
  const std::string type = type_of(part, where);
  if (type == "ByteLevel") {  // moves offsets, never ids
    expect_keys(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, where);
  } else if (type == "TemplateProcessing") {
    read_template(part, model, where, steps);
  } else if (type == "Sequence" && !nested) {
    expect_keys(part, {"type", "processors"}, where);
    const Json& parts = array_at(part, "processors", where);
    for (size_t i = 0; i < parts.size(); ++i) {
      read_processor(parts[i], model, fmt::format("{}[{}]", where, i), steps, true);
    }
  } else {
    fail(Exit::kInput, "{}: {} is not supported, expected ByteLevel, TemplateProcessing or one Sequence of these",
         where, printable(type));
  }
}

void read_decoder(const Json& file, const std::string& name) {
  const std::string where = name + ": decoder";
  const Json& part = member(file, "decoder", name);
  if (part.is_null()) fail(Exit::kInput, "{}: is null, expected ByteLevel", where);
  const std::string type = type_of(part, where);
  if (type != "ByteLevel") fail(Exit::kInput, "{}: {} is not supported, expected ByteLevel", where, printable(type));
  expect_keys(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, where);
}

}  // namespace

std::string shown(const Json& value) {
  if (value.is_structured() && value.size() > 8) return value.type_name();
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

void expect_keys(const Json& object, std::initializer_list<std::string_view> keys, const std::string& where) {
  if (!object.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", where, object.type_name());
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      fail(Exit::kInput, "{}: unknown key \"{}\"", where, printable(key));
    }
  }
}

bool read_bool(const Json& object, const char* key, bool otherwise, const std::string& where) {
  const auto at = object.find(key);
  if (at == object.end()) return otherwise;
  if (!at->is_boolean()) fail(Exit::kInput, "{}.{}: is {}, expected true or false", where, key, shown(*at));
  return at->get<bool>();
}

std::string read_string(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_string()) fail(Exit::kInput, "{}.{}: is {}, expected a string", where, key, shown(value));
  return value.get<std::string>();
}

void read_steps(const Json& file, const std::string& name, Steps& steps) {
  steps.nfc = read_nfc(file, name);
  read_pre_tokenizer(file, name, steps);
  read_decoder(file, name);
}

void read_post_processor(const Json& file, const Model& model, const std::string& name, Steps& steps) {
  const auto part = file.find("post_processor");
  if (part != file.end()) read_processor(*part, model, name + ": post_processor", steps, false);
}

}  // namespace mantissa::tokenizer
