#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/tokenizer/impl.h"
#include "data/tokenizer/pipeline.h"
#include "data/tokenizer/tokenizer_file.h"
#include "data/tokenizer/utf8.h"

namespace mantissa {
namespace {

constexpr uint64_t kMaxConfigBytes = 16'000'000;

constexpr std::array<char, 256> all_bytes() {
  std::array<char, 256> bytes{};
  for (int i = 0; i < 256; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(i);
  return bytes;
}
constexpr std::array<char, 256> kAllBytes = all_bytes();

// The id that tokenizer_config.json names under `key`: a string, or an object with "content"; -1 for null or none.
int32_t named_token(const Json& config, const char* key, const tokenizer::Model& model, const std::string& path) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) return -1;
  const Json* value = &*at;
  if (value->is_object()) value = &member(*value, "content", path + ": " + key);
  if (!value->is_string()) {
    fail(Exit::kInput, "{}: {} is {}, expected a token or null", path, key, tokenizer::shown(*at));
  }
  const std::string& token = value->get_ref<const std::string&>();
  const tokenizer::AddedToken* added = model.find_added(token);
  const int32_t id = added != nullptr ? added->id : model.vocab.find_spelling(token);
  if (id < 0) fail(Exit::kInput, "{}: {} \"{}\" is no token of tokenizer.json", path, key, printable(token, 60));
  return id;
}

std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string find_file(const std::string& spec) {
  if (!is_directory(spec)) return spec;
  const std::string path = join_path(spec, "tokenizer.json");
  if (exists(path)) return path;
  for (const char* other : {"tokenizer.model", "vocab.json", "spiece.model", "tekken.json"}) {
    if (exists(join_path(spec, other))) {
      fail(Exit::kInput, "{}: no tokenizer.json; {} is not read, save the tokenizer with transformers' fast tokenizers",
           spec, other);
    }
  }
  fail(Exit::kInput, "{}: no tokenizer.json", spec);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::bytes() {
  auto impl = std::make_unique<Impl>();
  impl->bytes = true;
  impl->name = kBytes;
  impl->eos = 0;
  return Tokenizer(std::move(impl));
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->model = tokenizer::build_model(json, name);
  impl->sha256 = mantissa::sha256(json);
  return Tokenizer(std::move(impl));
}

Tokenizer Tokenizer::open(const std::string& spec) {
  if (spec == kBytes) return bytes();
  const std::string path = find_file(spec);
  auto impl = std::make_unique<Impl>();
  impl->name = spec;
  impl->folder = parent_folder(path);
  {
    const std::string json = read_text(path, tokenizer::kMaxFileBytes);
    impl->model = tokenizer::build_model(json, path);
    impl->sha256 = mantissa::sha256(json);
  }
  const std::string config_path = join_path(impl->folder, "tokenizer_config.json");
  if (exists(config_path)) {
    const Json config = read_json(config_path, kMaxConfigBytes);
    if (!config.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", config_path, config.type_name());
    impl->bos = named_token(config, "bos_token", impl->model, config_path);
    impl->eos = named_token(config, "eos_token", impl->model, config_path);
    impl->pad = named_token(config, "pad_token", impl->model, config_path);
  }
  return Tokenizer(std::move(impl));
}

bool Tokenizer::is_bytes() const { return impl_->bytes; }
const std::string& Tokenizer::name() const { return impl_->name; }
const std::string& Tokenizer::folder() const { return impl_->folder; }
const std::string& Tokenizer::sha256() const { return impl_->sha256; }
int64_t Tokenizer::vocab_size() const { return impl_->bytes ? 256 : impl_->model.vocab.size(); }
std::string Tokenizer::unspelled() const {
  const tokenizer::Unspelled& unspelled = impl_->model.unspelled;
  if (unspelled.bytes.empty()) return "";
  const auto by_fallback = std::count_if(unspelled.fallback.begin(), unspelled.fallback.end(),
                                         [](const std::vector<int32_t>& ids) { return !ids.empty(); });
  return fmt::format("{} bytes have no token and {}{}", unspelled.bytes.size(),
                     unspelled.unknown < 0 ? "are left out of the text"
                                           : "become " + printable(impl_->model.vocab.bytes(unspelled.unknown), 60),
                     by_fallback > 0 ? fmt::format(", but for {} that have tokens of byte_fallback", by_fallback) : "");
}
int32_t Tokenizer::bos() const { return impl_->bos; }
int32_t Tokenizer::eos() const { return impl_->eos; }
int32_t Tokenizer::pad() const { return impl_->pad; }

int32_t Tokenizer::find(std::string_view token) const {
  if (impl_->bytes) return token.size() == 1 ? static_cast<uint8_t>(token[0]) : -1;
  if (tokenizer::find_ill_formed(token) < token.size()) return -1;
  const tokenizer::AddedToken* added = impl_->model.find_added(token);
  return added != nullptr ? added->id : impl_->model.vocab.find_spelling(token);
}

bool Tokenizer::known(int32_t id) const { return impl_->bytes ? id >= 0 && id < 256 : impl_->model.vocab.known(id); }

bool Tokenizer::special(int32_t id) const { return impl_->model.special.contains(id); }

std::string_view Tokenizer::bytes_of(int32_t id) const {
  if (!known(id)) {
    fail(Exit::kInput, "tokenizer {}: no token has the id {}, expected 0 to {}", impl_->name, id, vocab_size() - 1);
  }
  if (impl_->bytes) return {&kAllBytes[static_cast<size_t>(id)], 1};
  return impl_->model.vocab.bytes(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    if (!known(id) || (skip_special && impl_->model.left_out.contains(id))) continue;
    text += bytes_of(id);
  }
  return tokenizer::replace_ill_formed(std::move(text));
}

}  // namespace mantissa
