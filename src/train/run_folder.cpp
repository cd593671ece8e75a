#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/version.h"
#include "model/hf/checkpoint.h"
#include "model/hf/folder.h"
#include "train/checkpoint/store.h"
#include "train/config.h"
#include "train/sinks/sink.h"

namespace mantissa {
namespace {

using Kind = RunFolder::Kind;

std::vector<std::string> names_of_run() {
  std::vector<std::string> names;
  for (const SinkEntry& sink : sink_table()) names.insert(names.end(), sink.files.begin(), sink.files.end());
  names.insert(names.end(), {"report.html", "checkpoints", "model"});
  return names;
}

// Files first that say that a run has ended: what is left after an interruption never looks finished.
const std::vector<std::string>& names_of(Kind kind) {
  static const std::vector<std::string> run = names_of_run();
  static const std::vector<std::string> comparison = {"compare.json", "config.yaml", "report.html", "rows"};
  return kind == Kind::kRun ? run : comparison;
}

const char* text_of(Kind kind) { return kind == Kind::kRun ? "run" : "comparison"; }
const char* folder_text(Kind kind) { return kind == Kind::kRun ? "a single run" : "a comparison"; }
bool is_folder_name(const std::string& name) {
  return name == "model" || name == "rows" || name == CheckpointStore::kFolder;
}

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// False where nothing stands at `path`. What cannot be told is refused: it must not be taken for free.
bool look_at(const std::string& path, struct stat& info) {
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR)
    fail(Exit::kStorage, "{}: cannot be looked at: {}", path, std::strerror(errno));
  return false;
}

bool stands(const std::string& path) {
  struct stat info {};
  return look_at(path, info);
}

// Not through a link.
bool is_plain_folder(const std::string& path) {
  struct stat info {};
  return look_at(path, info) && S_ISDIR(info.st_mode);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : list_folder(folder)) names.push_back(entry.name);
  return names;
}

// "" for what is no plain file. Of a large file its size and both ends: weights of another training differ there.
std::string fingerprint(const std::string& path) {
  constexpr uint64_t kEnd = uint64_t{4} << 20;  // bytes
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && (errno == ELOOP || errno == ENXIO)) return "";  // a link, a socket
  if (!file) fail(Exit::kStorage, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail(Exit::kStorage, "{}: cannot be looked at: {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return "";
  const auto size = static_cast<uint64_t>(info.st_size);
  Sha256 hash;
  std::string piece;
  const auto add = [&](uint64_t from, uint64_t bytes) {
    piece.resize(bytes);
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t n = ::pread(file.get(), piece.data() + done, bytes - done, static_cast<off_t>(from + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(Exit::kStorage, "{}: cannot read: {}", path, n < 0 ? std::strerror(errno) : "it became shorter");
      done += static_cast<uint64_t>(n);
    }
    hash.update(piece);
  };
  add(0, std::min(size, kEnd));
  if (size > kEnd) add(std::max(kEnd, size - kEnd), std::min(kEnd, size - kEnd));
  return fmt::format("{} {}", size, hash.hex());
}

std::map<std::string, std::string> fingerprints(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const std::string& name : names_in(folder)) files[name] = fingerprint(join_path(folder, name));
  return files;
}

// The name of a file in the folder that is not as `files` says, or "".
std::string stranger(const std::string& folder, const std::map<std::string, std::string>& files) {
  for (const std::string& name : names_in(folder)) {
    const auto known = files.find(name);
    if (known == files.end() || known->second.empty() || fingerprint(join_path(folder, name)) != known->second)
      return name;
  }
  return "";
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    fail(Exit::kStorage, "{}: cannot be removed: {}", path, std::strerror(errno));
}

// Of a folder that the run made under a name of its own.
void remove_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail(Exit::kStorage, "{}: cannot be removed: {}", path, error.message());
}

void rename_to(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    fail(Exit::kStorage, "{}: cannot become {}: {}", from, to, std::strerror(errno));
}

// A file that versions without a record wrote; null where it is another's.
Json earlier_json(const std::string& path, const std::vector<const char*>& fields) {
  if (!stands(path)) return nullptr;
  expect_replaceable(path);
  Json json = read_json(path);
  if (!json.is_object()) return nullptr;
  for (const char* field : fields)
    if (!json.contains(field)) return nullptr;
  return json;
}

// Whether a version without a record wrote this model folder, for the run that run.json tells of.
bool earlier_model(const std::string& folder, const Json& run) {
  for (const std::string& name : names_in(folder)) {
    const auto tokenizer = hf::tokenizer_files();
    const bool shard = name.starts_with("model-") && name.ends_with(".safetensors");
    const bool known = name == hf::kConfig || name == hf::kGenerationConfig || name == hf::kWeights ||
                       name == hf::kIndex || shard ||
                       std::find(tokenizer.begin(), tokenizer.end(), name) != tokenizer.end();
    if (!known || fingerprint(join_path(folder, name)).empty()) return false;
  }
  if (!stands(join_path(folder, hf::kConfig)) || !run["model"].is_object()) return false;
  const ModelConfig model = read_hf_config(folder);
  const Json& said = run["model"];
  const auto is = [&said](const char* key, const Json& value) { return said.contains(key) && said[key] == value; };
  return is("arch", model.arch) && is("layers", model.num_hidden_layers) && is("hidden", model.hidden_size) &&
         is("vocab", model.vocab_size) && is("intermediate", model.intermediate_size);
}

}  // namespace

RunFolder::RunFolder(std::string path, Kind kind, std::string_view identity)
    : path_(std::move(path)), identity_(identity), kind_(kind) {
  if (!is_directory(path_)) return;
  lock_.emplace(path_);
  examine();
}

RunFolder::~RunFolder() {
  lock_.reset();
  if (made_ && !recorded_) ::rmdir(path_.c_str());  // refused by the system where something lies in it
}

std::string RunFolder::file(const std::string& name) const { return join_path(path_, name); }
bool RunFolder::has(const std::string& name) const { return stands(file(name)); }
std::string RunFolder::new_model() const { return file("model.new-" + record_.id); }

const std::string& RunFolder::lock_note() const { return lock_ && !lock_->note().empty() ? lock_->note() : row_note_; }

void RunFolder::expect_held() const {
  if (lock_) lock_->expect_held();
}

void RunFolder::refuse_foreign(const std::string& name, const std::string& why) const {
  fail(Exit::kUsage, "{}: {}; move it away, or give another run.dir", file(name), why);
}

void RunFolder::claim() {
  if (lock_) return;
  made_ = !exists(path_);
  make_dirs(path_);
  lock_.emplace(path_);
  examine();
}

void RunFolder::examine() {
  read_record();
  for (const std::string& name : names_of(kind_)) {
    if (!has(name)) continue;
    if (is_folder_name(name) && !is_plain_folder(file(name)))
      fail(Exit::kStorage,
           "{}: is no folder of its own (a link or a file), expected a folder or nothing; remove it, or "
           "give another run.dir",
           file(name));
    if (!is_folder_name(name)) expect_replaceable(file(name));
    if (std::find(record_.names.begin(), record_.names.end(), name) == record_.names.end())
      refuse_foreign(name, "stands there, and no record of a run says that one wrote it");
  }
  if (has("config.yaml")) expect_own_config();
  if (kind_ == Kind::kRun && has("model")) expect_own_model();
  if (kind_ == Kind::kComparison && has("rows")) expect_own_rows();
}

void RunFolder::read_record() {
  const std::string path = file(kRecord);
  recorded_ = stands(path);
  if (!recorded_) {
    record_ = kind_ == Kind::kRun ? earlier_run() : earlier_comparison();
    return;
  }
  expect_replaceable(path);
  const Json json = read_json(path);
  if (!json.is_object() || !json.contains("kind") || !json.contains("names") || !json.contains("id"))
    refuse_foreign(kRecord, "is not the record of a run");
  if (json["kind"] != text_of(kind_))
    fail(Exit::kUsage, "{}: holds {}; give another run.dir", path_,
         folder_text(kind_ == Kind::kRun ? Kind::kComparison : Kind::kRun));
  try {
    record_ = {.id = json.at("id"),
               .names = json.at("names"),
               .config_sha256 = json.at("config_sha256"),
               .model = json.at("model"),
               .next_model = json.at("next_model")};
  } catch (const nlohmann::json::exception&) {
    refuse_foreign(kRecord, "is not the record of a run");
  }
  const bool plain = !record_.id.empty() && std::all_of(record_.id.begin(), record_.id.end(),
                                                        [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (!plain) refuse_foreign(kRecord, "is not the record of a run");
}

void RunFolder::write_record() const {
  const Json json = {{"version", kVersion},
                     {"kind", text_of(kind_)},
                     {"id", record_.id},
                     {"names", record_.names},
                     {"config_sha256", record_.config_sha256},
                     {"model", record_.model},
                     {"next_model", record_.next_model}};
  write_atomic(file(kRecord), json.dump(1) + "\n");
}

RunFolder::Record RunFolder::earlier_run() const {
  if (has("compare.json")) fail(Exit::kUsage, "{}: holds a comparison; give another run.dir", path_);
  const Json run = earlier_json(file("run.json"), {"version", "started", "machine", "model", "precision", "steps"});
  if (run.is_null()) return {};
  Record record{.id = new_id(), .names = names_of(Kind::kRun)};
  if (is_plain_folder(file("model")) && has("result.json") && earlier_model(file("model"), run))
    record.model = fingerprints(file("model"));
  return record;
}

RunFolder::Record RunFolder::earlier_comparison() const {
  if (has("run.json")) fail(Exit::kUsage, "{}: holds a single run; give another run.dir", path_);
  const Json compare = earlier_json(file("compare.json"), {"version", "config", "rows", "rows_planned"});
  const std::string config = file("config.yaml");
  if (!has("config.yaml")) return {};
  expect_replaceable(config);
  const std::string text = read_text(config);
  const bool own = compare.is_null() ? !has("compare.json") && !identity_.empty() && identity_of(text) == identity_
                                     : compare["config"] == text;
  return own ? Record{.id = new_id(), .names = names_of(Kind::kComparison)} : Record{};
}

void RunFolder::expect_own_config() const {
  if (record_.config_sha256.empty()) return;
  if (sha256_file(file("config.yaml")) != record_.config_sha256)
    refuse_foreign("config.yaml", "is not as the run wrote it");
}

void RunFolder::expect_own_model() const {
  const std::string model = file("model"), name = stranger(model, record_.model);
  if (name.empty() || stranger(model, record_.next_model).empty()) return;
  fail(Exit::kUsage,
       "{}: holds {}, which the run of this folder did not write so; move it away, or give another run.dir", model,
       printable(name));
}

void RunFolder::expect_own_rows() {
  for (const std::string& name : names_in(file("rows"))) {
    const std::string row = join_path(file("rows"), name);
    struct stat info {};
    if (!look_at(row, info) || S_ISREG(info.st_mode)) continue;  // not touched
    if (!S_ISDIR(info.st_mode))
      fail(Exit::kStorage, "{}: is no folder of its own, expected the folder of a row or nothing", row);
    const RunFolder run(row, Kind::kRun);
    if (row_note_.empty()) row_note_ = run.lock_note();
  }
}

void RunFolder::recover_model() {
  const std::string old = file("model.old-" + record_.id);
  if (!has("model") && is_plain_folder(old)) rename_to(old, file("model"));
}

// Names with the record's id are nobody else's.
void RunFolder::remove_leftovers() {
  if (record_.id.empty()) return;
  for (const std::string& name : names_in(path_))
    if (name.starts_with("model.new-" + record_.id) || name.starts_with("model.old-" + record_.id))
      remove_folder(file(name));
}

// What of model/ is known: the one of the record, or the next, which a killed run had put there.
void RunFolder::settle_model() {
  if (has("model") && !record_.next_model.empty() && !stranger(file("model"), record_.model).empty())
    record_.model = record_.next_model;
  if (!has("model")) record_.model.clear();
  record_.next_model.clear();
}

void RunFolder::begin(std::string_view config) {
  claim();
  if (!recorded_ && !record_.id.empty()) write_record();  // of an earlier version: says what it proves before that goes
  recover_model();
  remove_leftovers();
  // First, and the newest first: whatever ends this, the files beside them are not older than those that are left.
  if (kind_ == Kind::kRun) drop_checkpoints();
  for (const std::string& name : names_of(kind_))
    if (!is_folder_name(name)) remove_file(file(name));
  sync_directory(path_);
  settle_model();
  record_.id = new_id();
  record_.names = names_of(kind_);
  record_.config_sha256 = sha256(config);
  write_record();
  recorded_ = true;
}

void RunFolder::go_on(std::string_view config) {
  claim();
  const std::string hash = sha256(config);
  if (kind_ == Kind::kRun) {
    recover_model();
    remove_leftovers();
    for (const char* name : {"result.json", "report.html"}) remove_file(file(name));
    settle_model();
    record_.names = names_of(kind_);
  }
  if (recorded_ && record_.config_sha256 == hash && kind_ == Kind::kComparison) return;
  if (record_.id.empty()) record_ = {.id = new_id(), .names = names_of(kind_)};
  if (has("config.yaml")) {
    // An earlier version's text of the same config. Whatever ends this between two steps, what stands there is proven.
    record_.config_sha256.clear();
    write_record();
    remove_file(file("config.yaml"));
  }
  record_.config_sha256 = hash;
  write_record();
  recorded_ = true;
}

void RunFolder::drop_rows(const std::vector<std::string>& kept) {
  if (!has("rows")) return;
  for (const std::string& name : names_in(file("rows"))) {
    const std::string row = join_path(file("rows"), name);
    if (!is_plain_folder(row) || std::find(kept.begin(), kept.end(), name) != kept.end()) continue;
    {
      RunFolder run(row, Kind::kRun);
      if (row_note_.empty()) row_note_ = run.lock_note();
      if (run.record_.id.empty()) continue;
      run.begin("");
      run.drop_model();
      remove_file(run.file(kRecord));
    }
    if (::rmdir(row.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST)  // where something else lies in it
      fail(Exit::kStorage, "{}: cannot be removed: {}", row, std::strerror(errno));
  }
}

void RunFolder::drop_checkpoints() {
  if (has(CheckpointStore::kFolder)) CheckpointStore(file(CheckpointStore::kFolder)).remove_all();
}

void RunFolder::place_model() {
  const std::string model = file("model"), next = new_model();
  record_.next_model = fingerprints(next);
  write_record();
  if (!has("model")) {
    rename_to(next, model);
  } else {
    if (!is_plain_folder(model) || !stranger(model, record_.model).empty())
      fail(Exit::kUsage, "{}: is not as the run found it and stays; the trained weights are in {}", model, next);
    // renameat2(2): both names stand at any moment. File systems that cannot (NFS) say EINVAL.
    if (::renameat2(AT_FDCWD, next.c_str(), AT_FDCWD, model.c_str(), RENAME_EXCHANGE) != 0) {
      if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        fail(Exit::kStorage, "{}: cannot change places with {}: {}", next, model, std::strerror(errno));
      rename_to(model, file("model.old-" + record_.id));
      rename_to(next, model);
    }
  }
  sync_directory(path_);
  record_.model = std::exchange(record_.next_model, {});
  write_record();
  remove_leftovers();
}

void RunFolder::drop_model() {
  if (!has("model")) return;
  if (!is_plain_folder(file("model")) || !stranger(file("model"), record_.model).empty())
    fail(Exit::kUsage, "{}: is not as the run found it and stays, though it is not the model of this run",
         file("model"));
  rename_to(file("model"), file("model.old-" + record_.id));
  record_.model.clear();
  write_record();
  remove_leftovers();
}

}  // namespace mantissa
