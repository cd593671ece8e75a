#include "data/source_loader.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "base/units.h"
#include "data/mds/checked.h"
#include "data/mds/prepared.h"
#include "data/mds/rows.h"
#include "data/token_files/token_files.h"

namespace mantissa {
namespace {

constexpr int64_t kByteVocabulary = 256;                     // of Tokenizer::bytes()
constexpr int64_t kManyDocuments = 2000, kManyAFile = 1000;  // of text parted by blank lines, that are worth a note

std::string name_of(const std::string& folder) { return std::filesystem::path(folder).filename().string(); }

// A folder with folders of both splits, read whole, would train on what it is evaluated on.
void refuse_both_splits(const Source& source, const std::string& path) {
  if (source.format != "mds" || source.files.size() < 2) return;
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::any_of(source.files.begin(), source.files.end(), [&](const std::string& folder) {
      return std::find(names.begin(), names.end(), name_of(folder)) != names.end();
    });
  };
  if (has({"train"}) && has({"validation", "val", "valid", "test"}))
    fail(Exit::kUsage,
         "{}: holds several splits; name one by data.split, as train (and another by data.validation_split)", path);
}

// What `prepare` wrote of the folders; those it did not write are left out.
std::vector<mds::Prepared> prepared_in(const Source& source) {
  std::vector<mds::Prepared> all;
  if (source.format == "mds")
    for (const std::string& folder : source.files)
      if (mds::Prepared one; mds::read_prepared(folder, one)) all.push_back(std::move(one));
  return all;
}

// Prose has blank lines between its paragraphs: a book would become thousands of documents that know nothing of each
// other. What a user should be told, or "".
std::string short_documents(const Source& source, const DataConfig& config, const Corpus& corpus) {
  const auto files = static_cast<int64_t>(source.files.size());
  if (source.format != "text" || config.document_separator != "blank-line") return "";
  if (corpus.documents() < std::max(kManyDocuments, kManyAFile * files)) return "";
  return fmt::format(
      "blank lines part {} of text into {} documents of {} tokens on average (data.document_separator: blank-line); "
      "none takes a file as one document",
      files == 1 ? "one file" : grouped(files) + " files", grouped(corpus.documents()),
      grouped(corpus.tokens() / corpus.documents()));
}

// Sizes and headers of all shards are looked at when they are opened; here their bytes are.
void check_shards(const Source& source, const LoadOptions& load, std::vector<std::string>& notes) {
  if (source.format != "mds") return;
  for (const std::string& folder : source.files) {
    mds::CheckOptions options;
    if (load.progress) options.progress = [&](double share) { load.progress({"checksums of " + folder, share, 0, 0}); };
    for (std::string& note : mds::check_shards(mds::Folder::open(folder), options)) notes.push_back(std::move(note));
  }
}

}  // namespace

LoadedSource SourceLoader::load(const std::string& path, const std::string& split) {
  const Source source = find_source(path, split, config_);
  refuse_both_splits(source, path);
  if (format_.empty()) format_ = source.format;
  if (!source.tokens) return read_text(source, path);
  open_tokenizer(source);
  choose_eos();
  if (options_.repack) return read_documents(source, path);
  refuse_keys_of_text(path);
  return map_rows(source);
}

int32_t SourceLoader::padding() const {
  if (eos_ >= 0) return eos_;
  return tokenizer_ != nullptr && tokenizer_->pad() >= 0 ? tokenizer_->pad() : 0;
}

LoadedSource SourceLoader::read_text(const Source& source, const std::string& path) {
  if (config_.fine_tuning()) refuse_truncation();
  if (tokenizer_ == nullptr) refuse_bytes_for_tokens();
  if (tokenizer_ == nullptr) tokenizer_ = std::make_shared<const Tokenizer>(Tokenizer::open(config_.tokenizer));
  if (encoder_ == nullptr) encoder_ = std::make_unique<DocumentEncoder>(config_, *tokenizer_);
  eos_ = encoder_->eos(), eos_origin_ = encoder_->eos_origin();
  if (!options_.preview) check_shards(source, options_, notes_);
  const std::unique_ptr<RecordReader> reader = open_records(source, encoder_->columns(), config_);
  auto corpus = std::make_shared<Corpus>(tokenizer_->vocab_size(), options_.spill_folder);
  counts_ += ingest(*reader, *encoder_, *tokenizer_,
                    {.max_documents = config_.max_documents, .what = path, .progress = options_.progress}, *corpus);
  corpus->finish();
  if (!options_.preview) reader->finish();
  files_.insert(files_.end(), reader->files().begin(), reader->files().end());
  if (package_.name.empty()) package_ = reader->package();
  if (std::string note = short_documents(source, config_, *corpus); !note.empty()) notes_.push_back(std::move(note));
  return {.corpus = std::move(corpus), .vocab_size = tokenizer_->vocab_size()};
}

// A model that knows tokens would be trained on bytes under their ids.
void SourceLoader::refuse_bytes_for_tokens() const {
  const std::string& model = config_.model_folder;
  if (config_.tokenizer != Tokenizer::kBytes || model.empty() || config_.model_vocab_size == kByteVocabulary) return;
  if (exists(join_path(model, "tokenizer.json")))
    fail(Exit::kUsage, "data.tokenizer: bytes, but {} has {} tokens and a tokenizer.json; give data.tokenizer: {}",
         model, config_.model_vocab_size, model);
}

void SourceLoader::refuse_truncation() const {
  if (config_.packing == "truncate")
    fail(
        Exit::kUsage,
        "data.packing: truncate cuts documents where a row ends, also inside a response; fine-tuning takes best_fit or "
        "none");
}

void SourceLoader::refuse_keys_of_text(const std::string& path) const {
  const auto refuse = [&](const char* key) {
    fail(Exit::kUsage, "data.{}: {} holds rows of tokens, which are taken as they are; `prepare` packs them anew", key,
         path);
  };
  if (config_.packing != "truncate") refuse("packing");
  if (config_.max_documents > 0) refuse("max_documents");
  if (config_.min_document_bytes > 0) refuse("min_document_bytes");
  if (!config_.prompt_key.empty()) refuse("prompt_key");
  if (!config_.messages_key.empty()) refuse("messages_key");
}

void SourceLoader::open_tokenizer(const Source& source) {
  const std::vector<mds::Prepared> prepared = prepared_in(source);
  if (tokenizer_ == nullptr && config_.tokenizer != Tokenizer::kBytes)
    tokenizer_ = std::make_shared<const Tokenizer>(Tokenizer::open(config_.tokenizer));
  for (const mds::Prepared& one : prepared) {
    if (tokenizer_ == nullptr && one.tokenizer == Tokenizer::kBytes)
      tokenizer_ = std::make_shared<const Tokenizer>(Tokenizer::bytes());
    if (tokenizer_ != nullptr && tokenizer_->sha256() != one.tokenizer_sha256)
      fail(Exit::kUsage, "data.tokenizer: {} is another one than {}, which the rows in {} were made with",
           tokenizer_->name(), one.tokenizer, source.files.front());
    if (eos_ < 0) eos_ = one.eos, eos_origin_ = one.eos_origin;
  }
}

// Where files of tokens do not say where documents end, a given EOS does.
void SourceLoader::choose_eos() {
  if (config_.eos_token.empty()) {
    if (eos_ < 0 && tokenizer_ != nullptr) eos_ = tokenizer_->eos(), eos_origin_ = "tokenizer";
    return;
  }
  int64_t id = -1;
  if (tokenizer_ != nullptr)
    id = tokenizer_->find(config_.eos_token);
  else if (!parse_int(config_.eos_token, id))
    id = -1;
  if (id < 0 || id > INT32_MAX)
    fail(Exit::kUsage, "data.eos_token: {} is no {}", printable(config_.eos_token),
         tokenizer_ != nullptr ? "token of " + tokenizer_->name() : "token id, and data.tokenizer names no tokenizer");
  eos_ = static_cast<int32_t>(id), eos_origin_ = "data.eos_token";
}

LoadedSource SourceLoader::map_rows(const Source& source) {
  const TokenOptions options{.sequence_length = config_.sequence_length,
                             .vocab_size = config_.model_vocab_size,
                             .eos = config_.eos_token.empty() ? -1 : eos_,
                             .token_dtype = config_.token_dtype};
  TokenSource opened = source.format == "mds" ? mds::open_rows(source.files, options)
                                              : open_token_rows(source.files, source.format, options);
  LoadedSource loaded{.rows = std::move(opened.rows), .dropped_tokens = opened.dropped_tokens};
  loaded.vocab_size = loaded.rows->vocab_size();
  files_.insert(files_.end(), opened.files.begin(), opened.files.end());
  notes_.insert(notes_.end(), opened.notes.begin(), opened.notes.end());
  check_shards(source, options_, notes_);
  const std::vector<mds::Prepared> prepared = prepared_in(source);
  for (const mds::Prepared& one : prepared) loaded.documents += one.documents;
  if (prepared.size() == 1 && source.files.size() == 1) loaded.unigram_entropy = prepared.front().unigram_entropy;
  return loaded;
}

LoadedSource SourceLoader::read_documents(const Source& source, const std::string& path) {
  const TokenOptions options{.vocab_size = tokenizer_ != nullptr ? tokenizer_->vocab_size() : 0,
                             .eos = config_.eos_token.empty() ? -1 : eos_,
                             .token_dtype = config_.token_dtype};
  const std::unique_ptr<DocumentSource> documents = source.format == "mds"
                                                        ? mds::open_documents(source.files, options)
                                                        : open_token_documents(source.files, source.format, options);
  if (!options_.preview) check_shards(source, options_, notes_);
  auto corpus = std::make_shared<Corpus>(std::min<int64_t>(documents->vocab_size(), INT32_MAX), options_.spill_folder);
  EncodedDocument document;
  int32_t largest = 0;  // id
  auto told = std::chrono::steady_clock::now();
  while ((config_.max_documents == 0 || corpus->documents() < config_.max_documents) && documents->next(document)) {
    throw_if_stopped("reading " + path);
    corpus->append(document);
    for (const int32_t id : document.ids) largest = std::max(largest, id);
    if (const auto now = std::chrono::steady_clock::now(); options_.progress && now - told > kProgressInterval) {
      told = now;
      options_.progress({path, documents->progress(), corpus->documents(), 0});
    }
  }
  if (corpus->masked()) refuse_truncation();
  corpus->finish();
  counts_.documents += corpus->documents(), counts_.tokens += corpus->tokens();
  files_.insert(files_.end(), documents->files().begin(), documents->files().end());
  return {.corpus = std::move(corpus),
          .vocab_size = tokenizer_ != nullptr ? tokenizer_->vocab_size() : std::max(largest + 1, 2)};
}

}  // namespace mantissa
