#include "data/tokenizer/tokenizer_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/tokenizer/byte_alphabet.h"

namespace mantissa::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

OrderedJson pre_tokenizer(Pattern pattern) {
  if (pattern == Pattern::kGpt2) return byte_level(true);
  const OrderedJson split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern_text(pattern)}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", OrderedJson::array({split, byte_level(false)})}};
}

int64_t id_of(const WrittenTokenizer& file, const std::string& token, const char* role) {
  const auto begin = file.model.tokens.begin(), end = begin + file.model.special;
  const auto at = std::find(begin, end, token);
  if (at == end) fail(Exit::kUsage, "{} token: '{}' is none of the special tokens", role, printable(token));
  return at - begin;
}

OrderedJson post_processor(const WrittenTokenizer& file) {
  if (!file.add_bos) return byte_level(false);
  const auto token = [&](int type) { return OrderedJson{{"SpecialToken", {{"id", file.bos}, {"type_id", type}}}}; };
  const auto sequence = [](const char* name, int type) {
    return OrderedJson{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  const OrderedJson special = {{"id", file.bos},
                               {"ids", OrderedJson::array({id_of(file, file.bos, "BOS")})},
                               {"tokens", OrderedJson::array({file.bos})}};
  const OrderedJson frame = {{"type", "TemplateProcessing"},
                             {"single", OrderedJson::array({token(0), sequence("A", 0)})},
                             {"pair", OrderedJson::array({token(0), sequence("A", 0), token(1), sequence("B", 1)})},
                             {"special_tokens", {{file.bos, special}}}};
  return {{"type", "Sequence"}, {"processors", OrderedJson::array({byte_level(false), frame})}};
}

OrderedJson added_token(const std::string& content, int64_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

Pattern pattern_named(std::string_view name) {
  if (name == "gpt2") return Pattern::kGpt2;
  if (name == "llama3") return Pattern::kLlama3;
  if (name == "qwen") return Pattern::kQwen2;
  fail(Exit::kUsage, "pattern {}: unknown, expected gpt2, llama3 or qwen", printable(name));
}

std::string tokenizer_json(const WrittenTokenizer& file) {
  const std::vector<std::string>& tokens = file.model.tokens;
  OrderedJson added = OrderedJson::array(), merges = OrderedJson::array();
  for (int64_t id = 0; id < file.model.special; ++id) added.push_back(added_token(tokens[static_cast<size_t>(id)], id));
  for (const auto& [left, right] : file.model.merges)
    merges.push_back({tokens[static_cast<size_t>(left)], tokens[static_cast<size_t>(right)]});
  OrderedJson normalizer;
  if (file.nfc) normalizer = {{"type", "NFC"}};
  // An ordered object looks every key up in all before it, so the vocabulary is written by hand.
  OrderedJson root = {{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", std::move(added)},
                      {"normalizer", std::move(normalizer)},
                      {"pre_tokenizer", pre_tokenizer(file.pattern)},
                      {"post_processor", post_processor(file)},
                      {"decoder", byte_level(true)}};
  std::string text = root.dump(1);
  text.resize(text.rfind("\n}"));
  text +=
      ",\n \"model\": {\n  \"type\": \"BPE\",\n  \"dropout\": null,\n  \"unk_token\": null,\n"
      "  \"continuing_subword_prefix\": null,\n  \"end_of_word_suffix\": null,\n  \"fuse_unk\": false,\n"
      "  \"byte_fallback\": false,\n  \"ignore_merges\": false,\n  \"vocab\": {";
  for (size_t id = 0; id < tokens.size(); ++id)
    text += fmt::format("{}\n   {}: {}", id == 0 ? "" : ",", OrderedJson(tokens[id]).dump(), id);
  text += "\n  },\n  \"merges\": [";
  for (size_t rank = 0; rank < merges.size(); ++rank)
    text += fmt::format("{}\n   {}", rank == 0 ? "" : ",", merges[rank].dump());
  return text + "\n  ]\n }\n}\n";
}

std::string tokenizer_config_json(const WrittenTokenizer& file) {
  OrderedJson root = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"clean_up_tokenization_spaces", false},
                      {"add_prefix_space", false}};
  const auto name = [&](const char* key, const char* role, const std::string& token) {
    if (token.empty()) return;
    id_of(file, token, role);
    root[key] = token;
  };
  name("bos_token", "BOS", file.bos);
  name("eos_token", "EOS", file.eos);
  name("pad_token", "PAD", file.pad);
  return root.dump(1) + "\n";
}

void write_tokenizer(const std::string& folder, const WrittenTokenizer& file) {
  const std::string tokenizer = tokenizer_json(file), config = tokenizer_config_json(file);
  make_dirs(folder);
  write_atomic(join_path(folder, "tokenizer_config.json"), config);
  write_atomic(join_path(folder, "tokenizer.json"), tokenizer);
}

WrittenTokenizer bytes_tokenizer_file() {
  WrittenTokenizer file;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    file.model.tokens.push_back(spell({&text, 1}));
  }
  return file;
}

}  // namespace mantissa::tokenizer
