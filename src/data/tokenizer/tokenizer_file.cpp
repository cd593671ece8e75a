#include "data/tokenizer/tokenizer_file.h"

#include "base/text.h"
#include "data/tokenizer/vocab.h"

namespace mantissa::tokenizer {
namespace {

constexpr int64_t kMaxOtherValues = 2'000'000;  // outside of vocabulary and merges: bounds the memory that JSON takes

// Takes the parser's events. Inside model.vocab and model.merges nothing is kept as JSON.
class Reader {
 public:
  explicit Reader(TokenizerFile& file) : file_(file) {}

  bool null() { return value(nullptr, "null"); }
  bool boolean(bool given) { return value(given, "a boolean"); }
  bool number_integer(int64_t given) {
    return place_ == Place::kVocab ? refuse_id(std::to_string(given)) : value(given, "a number");
  }
  bool number_unsigned(uint64_t given) {
    if (place_ != Place::kVocab) return value(given, "a number");
    if (given > static_cast<uint64_t>(kMaxTokenId)) return refuse_id(std::to_string(given));
    file_.vocab.push_back({offset_, size_, static_cast<int32_t>(given)});
    return true;
  }
  bool number_float(double given, const std::string& text) {
    return place_ == Place::kVocab ? refuse_id(printable(text, 40)) : value(given, "a number");
  }
  bool string(std::string& given) {
    if (place_ == Place::kMerges) return merge_line(given);
    if (place_ == Place::kMergePair) return merge_part(given);
    return value(std::move(given), "a string");
  }
  bool binary(Json::binary_t&) { return refuse("binary value"); }

  bool key(std::string& name) {
    if (place_ == Place::kVocab) {
      offset_ = static_cast<uint32_t>(file_.text.size());
      size_ = static_cast<uint32_t>(name.size());
      file_.text += name;
      return true;
    }
    auto [at, fresh] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!fresh) return refuse(fmt::format("key \"{}\" stands twice in one object", printable(name)));
    slot_ = &at->second;
    key_ = name;
    return true;
  }

  bool start_object(size_t) {
    if (place_ == Place::kVocab) return refuse_id("an object");
    if (place_ != Place::kRest) return refuse_merge("an object");
    const bool vocab = in_model() && key_ == "vocab";
    const bool model = open_.size() == 1 && open_.back()->is_object() && key_ == "model";
    if (!open(Json::object())) return false;
    if (vocab) place_ = Place::kVocab;
    if (model) model_ = open_.back();
    return true;
  }
  bool end_object() {
    place_ = Place::kRest;
    open_.pop_back();
    return true;
  }
  bool start_array(size_t) {
    if (place_ == Place::kVocab) return refuse_id("an array");
    if (place_ == Place::kMergePair) return refuse_merge("an array in an array");
    if (place_ == Place::kMerges) {
      place_ = Place::kMergePair;
      parts_ = 0;
      return true;
    }
    const bool merges = in_model() && key_ == "merges";
    if (!open(Json::array())) return false;
    if (merges) place_ = Place::kMerges;
    return true;
  }
  bool end_array() {
    if (place_ == Place::kMergePair) {
      if (parts_ != 2) return refuse_merge(fmt::format("{} strings", parts_));
      place_ = Place::kMerges;
      return true;
    }
    place_ = Place::kRest;
    open_.pop_back();
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    return refuse(json_error_text(position, error.what()));
  }

  const std::string& error() const { return error_; }

 private:
  enum class Place { kRest, kVocab, kMerges, kMergePair };

  bool refuse(std::string message) {
    error_ = std::move(message);
    return false;
  }
  bool refuse_id(const std::string& found) {
    const std::string_view token = std::string_view(file_.text).substr(offset_, size_);
    return refuse(fmt::format("model.vocab: the id of \"{}\" is {}, expected a number from 0 to {}",
                              printable(token, 60), found, kMaxTokenId));
  }
  bool refuse_merge(std::string_view found) {
    return refuse(fmt::format("model.merges: entry {} is {}, expected \"left right\" or [\"left\", \"right\"]",
                              file_.merges.size(), found));
  }

  bool in_model() const { return open_.size() == 2 && open_.back() == model_; }

  template <class T>
  bool value(T&& given, std::string_view kind) {
    if (place_ == Place::kVocab) return refuse_id(std::string(kind));
    if (place_ != Place::kRest) return refuse_merge(kind);
    return put(Json(std::forward<T>(given))) != nullptr;
  }

  Json* put(Json given) {
    if (++values_ > kMaxOtherValues) {
      refuse(fmt::format("more than {} values outside of vocabulary and merges", kMaxOtherValues));
      return nullptr;
    }
    if (open_.empty()) {
      file_.rest = std::move(given);
      return &file_.rest;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(given));
      return &open_.back()->back();
    }
    *slot_ = std::move(given);
    return slot_;
  }

  bool open(Json container) {
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth))
      return refuse(fmt::format("nested more than {} deep", kMaxJsonDepth));
    Json* const place = put(std::move(container));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }

  // "left right": one space between two parts. Lines that begin with #version are comments of older files.
  bool merge_line(const std::string& line) {
    if (line.starts_with("#version")) return true;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      return refuse_merge(fmt::format("\"{}\"", printable(line, 60)));
    }
    file_.merges.push_back({static_cast<uint32_t>(file_.text.size()), static_cast<uint32_t>(space),
                            static_cast<uint32_t>(line.size() - space - 1)});
    file_.text.append(line, 0, space).append(line, space + 1);
    return true;
  }
  bool merge_part(const std::string& part) {
    const uint32_t size = static_cast<uint32_t>(part.size());
    if (parts_ == 0) file_.merges.push_back({static_cast<uint32_t>(file_.text.size()), size, 0});
    if (parts_ == 1) file_.merges.back().right = size;
    file_.text += part;
    if (++parts_ <= 2) return true;
    file_.merges.pop_back();
    return refuse_merge("more than 2 strings");
  }

  TokenizerFile& file_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;
  Json* model_ = nullptr;
  std::string key_;
  Place place_ = Place::kRest;
  int64_t values_ = 0;
  uint32_t offset_ = 0, size_ = 0;  // of the vocabulary's last key in text
  int parts_ = 0;                   // of the merge that is being read
  std::string error_;
};

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view json, const std::string& name) {
  if (json.size() > kMaxFileBytes) {
    fail(Exit::kInput, "{}: is {} bytes, expected at most {}", name, json.size(), kMaxFileBytes);
  }
  TokenizerFile file;
  Reader reader(file);
  if (!Json::sax_parse(json, &reader)) fail(Exit::kInput, "{}: {}", name, reader.error());
  return file;
}

}  // namespace mantissa::tokenizer
