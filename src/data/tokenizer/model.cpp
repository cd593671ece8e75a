#include "data/tokenizer/model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/tokenizer_file.h"

namespace mantissa::tokenizer {
namespace {

// A token is looked for at every place of a text: these bound the steps and the memory of that.
constexpr size_t kMaxAddedBytes = 1024, kMaxAddedBytesInAll = size_t{1} << 20;

bool absent(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() || (at->is_string() && at->get_ref<const std::string&>().empty());
}

bool read_model_settings(const Json& model, const std::string& where) {
  const auto type = model.find("type");
  if (type != model.end() && *type != "BPE") {
    fail(Exit::kInput, "{}: type {} is not supported, expected BPE", where, shown(*type));
  }
  expect_keys(model,
              {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges"},
              where);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!absent(model, key)) fail(Exit::kInput, "{}.{}: is {}, expected none", where, key, shown(model[key]));
  }
  if (!absent(model, "dropout") && model["dropout"] != 0.0) {
    fail(Exit::kInput, "{}.dropout: is {}, expected null: encoding draws no random numbers", where,
         shown(model["dropout"]));
  }
  if (!member(model, "vocab", where).is_object()) {
    fail(Exit::kInput, "{}.vocab: is {}, expected an object", where, model["vocab"].type_name());
  }
  if (!member(model, "merges", where).is_array()) {
    fail(Exit::kInput, "{}.merges: is {}, expected an array", where, model["merges"].type_name());
  }
  return read_bool(model, "ignore_merges", false, where);
}

void fill_vocab(const TokenizerFile& file, Model& model, const std::string& where) {
  model.vocab.reserve(file.vocab.size() + 1024, file.text.size());
  for (const TokenizerFile::VocabEntry& entry : file.vocab) {
    const std::string_view spelling = file.spelling(entry);
    if (model.vocab.add(spelling, entry.id)) continue;
    if (model.vocab.find_spelling(spelling) >= 0) {
      fail(Exit::kInput, "{}.vocab: \"{}\" stands twice", where, printable(spelling, 60));
    }
    fail(Exit::kInput, "{}.vocab: \"{}\" has the id {} of another token", where, printable(spelling, 60), entry.id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    model.byte_ids[static_cast<size_t>(byte)] = model.vocab.find_bytes({&text, 1});
    if (model.byte_ids[static_cast<size_t>(byte)] < 0) model.unspelled.bytes.push_back(static_cast<uint8_t>(byte));
  }
}

// The tokens "<0xC4>" of the UTF-8 of the character that stands for a byte; empty where one is not in the vocabulary.
std::vector<int32_t> fallback_of(uint8_t byte, const Vocab& vocab) {
  const char text = static_cast<char>(byte);
  std::vector<int32_t> ids;
  for (const char part : spell({&text, 1})) {
    ids.push_back(vocab.find_spelling(fmt::format("<0x{:02X}>", static_cast<uint8_t>(part))));
    if (ids.back() < 0) return {};
  }
  return ids;
}

void fill_unspelled(const Json& settings, Model& model, const std::string& where) {
  Unspelled& unspelled = model.unspelled;
  unspelled.fuse = read_bool(settings, "fuse_unk", false, where);
  const bool fallback = read_bool(settings, "byte_fallback", false, where);
  const auto unknown = settings.find("unk_token");
  const bool drops = unknown == settings.end() || unknown->is_null();
  if (!drops && !unknown->is_string())
    fail(Exit::kInput, "{}.unk_token: is {}, expected a token or null", where, shown(*unknown));
  for (const uint8_t byte : unspelled.bytes) {
    unspelled.fallback.push_back(fallback ? fallback_of(byte, model.vocab) : std::vector<int32_t>());
    if (drops || !unspelled.fallback.back().empty() || unspelled.unknown >= 0) continue;
    const std::string& token = unknown->get_ref<const std::string&>();
    unspelled.unknown = model.vocab.find_spelling(token);
    if (unspelled.unknown < 0) {
      fail(Exit::kInput, "{}.unk_token: \"{}\" is not in the vocabulary, which has no token for the byte 0x{:02x}",
           where, printable(token, 60), byte);
    }
  }
}

void fill_merges(const TokenizerFile& file, Model& model, const std::string& where) {
  model.merges.reserve(file.merges.size());
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const TokenizerFile::MergeEntry& entry = file.merges[rank];
    const auto part = [&](std::string_view spelling) {
      const int32_t id = model.vocab.find_spelling(spelling);
      if (id < 0)
        fail(Exit::kInput, "{}.merges[{}]: \"{}\" is not in the vocabulary", where, rank, printable(spelling, 60));
      return id;
    };
    const int32_t left = part(file.left(entry)), right = part(file.right(entry));
    const int32_t joined = model.vocab.find_joined(left, right);
    if (joined < 0) {
      fail(Exit::kInput, "{}.merges[{}]: \"{}\" and \"{}\" make no token of the vocabulary", where, rank,
           printable(file.left(entry), 60), printable(file.right(entry), 60));
    }
    model.merges.set(left, right, {static_cast<uint32_t>(rank), joined});
  }
  model.byte_pairs.reserve(256 * 256);
  for (const int32_t left : model.byte_ids) {
    for (const int32_t right : model.byte_ids) model.byte_pairs.push_back(model.merges.find(left, right));
  }
}

AddedToken read_added(const Json& item, const std::string& where) {
  expect_keys(item, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where);
  AddedToken token;
  const Json& id = member(item, "id", where);
  if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId)) {
    fail(Exit::kInput, "{}.id: is {}, expected a number from 0 to {}", where, shown(id), kMaxTokenId);
  }
  token.id = id.get<int32_t>();
  token.content = read_string(item, "content", where);
  if (token.content.empty() || token.content.size() > kMaxAddedBytes) {
    fail(Exit::kInput, "{}.content: is {} bytes, expected 1 to {}", where, token.content.size(), kMaxAddedBytes);
  }
  const auto flag = [&](const char* key) {
    member(item, key, where);
    return read_bool(item, key, false, where);
  };
  token.single_word = flag("single_word");
  token.lstrip = flag("lstrip");
  token.rstrip = flag("rstrip");
  token.normalized = flag("normalized");
  token.special = flag("special");
  return token;
}

void fill_added(const Json& file, Model& model, const std::string& name) {
  const auto list = file.find("added_tokens");
  if (list == file.end() || list->is_null()) return;
  if (!list->is_array()) fail(Exit::kInput, "{}: added_tokens: is {}, expected an array", name, list->type_name());
  const int64_t vocab_count = model.vocab.count();
  int64_t next = vocab_count;  // the id that a token outside of the vocabulary gets
  size_t bytes = 0;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("{}: added_tokens[{}]", name, i);
    AddedToken token = read_added((*list)[i], where);
    bytes += token.content.size();
    if (bytes > kMaxAddedBytesInAll) {
      fail(Exit::kInput, "{}: the added tokens are more than {} bytes long", where, kMaxAddedBytesInAll);
    }
    const int32_t in_vocab = model.vocab.find_spelling(token.content);
    const int64_t expected = in_vocab >= 0 ? in_vocab : next;
    if (token.id != expected) {
      fail(Exit::kInput, "{}: \"{}\" has the id {}, expected {} ({})", where, printable(token.content, 60), token.id,
           expected, in_vocab >= 0 ? "its id in model.vocab" : "the next free one");
    }
    if (in_vocab < 0 && model.vocab.known(token.id)) {
      fail(Exit::kInput, "{}: \"{}\" has the id {} of another token", where, printable(token.content, 60), token.id);
    }
    next = std::max(next, expected + 1);
    if (!model.added_places.emplace(token.content, model.added.size()).second) {
      fail(Exit::kInput, "{}: \"{}\" stands twice", where, printable(token.content, 60));
    }
    if (token.special) model.special.insert(token.id);
    model.added.push_back(std::move(token));
  }
}

// How an added token stands in normalised text.
std::string normal_form(const AddedToken& token, const Model& model) {
  std::string form = token.content;
  if (token.normalized && model.steps.nfc) to_nfc(token.content, form);
  return form;
}

void fill_matchers(Model& model) {
  for (const bool special : {true, false}) {
    for (const AddedToken& token : model.added) {
      if (token.special != special) continue;
      (token.normalized ? model.normalized_tokens : model.raw_tokens).add(normal_form(token, model), token);
    }
  }
}

// A token decodes to its normal form, read as a byte-level spelling where it is one, and is left out with the special
// tokens when that form is the content of one: so does Hugging Face.
void fill_decoding(Model& model) {
  for (const AddedToken& token : model.added) {
    const std::string form = normal_form(token, model);
    std::string bytes;
    if (!append_spelled(bytes, form)) bytes = form;
    model.vocab.set_bytes(token.id, bytes);
    const AddedToken* named = model.find_added(form);
    if (named != nullptr && named->special) model.left_out.insert(token.id);
  }
}

}  // namespace

const AddedToken* Model::find_added(std::string_view content) const {
  const auto at = added_places.find(std::string(content));
  return at == added_places.end() ? nullptr : &added[at->second];
}

Model build_model(std::string_view json, const std::string& name) {
  const TokenizerFile file = read_tokenizer_file(json, name);
  if (!file.rest.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", name, file.rest.type_name());
  expect_keys(file.rest,
              {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
               "decoder", "model"},
              name);
  const Json& settings = member(file.rest, "model", name);
  const std::string where = name + ": model";
  if (!settings.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", where, settings.type_name());
  Model model;
  model.ignore_merges = read_model_settings(settings, where);
  fill_vocab(file, model, where);
  fill_unspelled(settings, model, where);
  fill_merges(file, model, where);
  fill_added(file.rest, model, name);
  read_steps(file.rest, name, model.steps);
  fill_matchers(model);
  fill_decoding(model);
  read_post_processor(file.rest, model, name, model.steps);
  return model;
}

}  // namespace mantissa::tokenizer
