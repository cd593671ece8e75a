#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/foreign.h"
#include "base/mapped_range.h"
#include "base/module.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/input.h"
#include "data/readers/parquet_footer.h"
#include "data/readers/parquet_module.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

// Of pages and buffers. Writers make pages of 1 MiB; a page of long texts has some tens.
constexpr uint64_t kMemory = uint64_t{192} << 20;
constexpr uint64_t kMaxFooter = uint64_t{64} << 20;
constexpr uint64_t kCountedBytes = 8;              // that a value counts beside its text
constexpr uint64_t kHashStep = uint64_t{1} << 20;  // bytes of the file hashed at once

ParquetLibrary load() {
  ParquetLibrary library;
  auto* entry = reinterpret_cast<ParquetEntry>(module_function(kParquetFile, kParquetSymbol, library.absence));
  if (entry != nullptr) library.module = entry();
  if (library.module != nullptr && library.module->abi != kParquetAbi) {
    library.module = nullptr;
    library.absence = fmt::format("{} is of another build", kParquetFile);
  }
  if (library.module == nullptr)
    library.absence += "; `./run build` puts Apache Arrow (the Python package pyarrow) into build/arrow and builds it";
  return library;
}

class ParquetRecords final : public FileRecords {
 public:
  ParquetRecords(const std::string& path, const RecordSpec& spec, const DataConfig& config)
      : path_(path), spec_(spec), config_(config), file_(path), buffer_(kHashStep, '\0') {
    check_ends();
    const ParquetLibrary& library = parquet_library();
    if (library.module == nullptr) fail(Exit::kUnavailable, "{}: Parquet is not read here: {}", path, library.absence);
    module_ = library.module;
    ParquetProblem problem{};
    handle_ = {module_->open(path.c_str(), kMemory, &problem), module_->close};
    if (handle_ == nullptr) refuse(problem);
    check_columns();
    std::vector<const char*> columns;
    for (const std::string& column : spec_.columns) columns.push_back(column.c_str());
    if (!module_->select(handle_.get(), columns.data(), columns.size(), spec_.pair(), spec_.messages.c_str(), &problem))
      refuse(problem);
    rows_ = module_->rows(handle_.get());
  }

  bool next(Record& record) override {
    ParquetRow row{};
    ParquetProblem problem{};
    const int state = module_->next(handle_.get(), &row, &problem);
    if (state < 0) refuse(problem);
    if (state == 0) return false;
    const int64_t number = ++read_;
    while (static_cast<double>(hashed_ + kHashStep) <= share() * static_cast<double>(file_.size())) hash_step();
    record.where.assign(path_);
    record.where += fmt::format(": row {}", number);
    record.texts.resize(spec_.columns.size());
    size_t turns = 0;
    for (size_t i = 0; i < width(); ++i) turns += row.columns[i].turn_count;
    record.turns.resize(turns);
    for (size_t i = 0, at = 0; i < width(); ++i) {
      if (i < record.texts.size()) set(record.texts[i], row.columns[i].text, record.where);
      for (size_t k = 0; k < row.columns[i].turn_count; ++k)
        set_turn(record.turns[at++], row.columns[i].turns[k], i, k, record.where);
    }
    return true;
  }

  double share() const override {
    return rows_ == 0 ? 1 : static_cast<double>(read_.load()) / static_cast<double>(rows_);
  }

  void finish(std::vector<SourceFile>& files) override {
    while (hash_step() > 0) {
    }
    files.push_back({path_, hashed_, hash_.hex()});
  }

 private:
  // The file begins and ends with the magic, and its footer lies within it.
  void check_ends() {
    const MappedFile file = MappedFile::open(path_);
    read_mapped(
        file, [&] { check_ends(file); }, [] { return "its footer"; });
  }
  void check_ends(const MappedFile& file) const {
    const std::string_view text = file.text();
    const std::string_view head = text.substr(0, 64);
    if (const Foreign kind = recognise_foreign(head); kind != Foreign::kNone)
      fail(Exit::kInput, "{}: expected Parquet, found {}", path_, foreign_name(kind));
    if (text.starts_with("PARE"))
      fail(Exit::kInput, "{}: has an encrypted footer, expected a plain Parquet file", path_);
    if (!text.starts_with("PAR1"))
      fail(Exit::kInput, "{}: begins with \"{}\", expected Parquet's \"PAR1\"", path_, printable(head.substr(0, 4)));
    if (text.size() < 12 || !text.ends_with("PAR1"))
      fail(Exit::kInput, "{}: is cut short: no \"PAR1\" at its end ({} bytes)", path_, text.size());
    uint32_t footer = 0;
    std::memcpy(&footer, text.data() + text.size() - 8, 4);
    if (footer > text.size() - 12 || footer > kMaxFooter)
      fail(Exit::kInput, "{}: footer of {} bytes, the file has {} (limit {})", path_, footer, text.size(), kMaxFooter);
    check_parquet_footer(text.substr(text.size() - 8 - footer, footer), path_);
  }

  void check_columns() {
    std::vector<std::string> names;
    for (size_t i = 0; const char* name = module_->column(handle_.get(), i); ++i) names.emplace_back(name);
    const auto require = [&](const std::string& column) {
      for (const std::string& name : names)
        if (name == column || column.starts_with(name + ".")) return;
      no_column(path_, column, config_, names);
    };
    for (const std::string& column : spec_.columns) require(column);
    if (!spec_.messages.empty()) require(spec_.messages);
  }

  [[noreturn]] void refuse(const ParquetProblem& problem) const {
    if (problem.memory)
      fail(Exit::kInput,
           "{}: reading it needs more than {} MiB{}; write it anew with smaller pages (pyarrow: data_page_size)", path_,
           kMemory >> 20, problem.library ? fmt::format(" (Arrow: \"{}\")", printable(problem.text, 200)) : "");
    const std::string behind = read_ > 0 ? fmt::format(" (behind row {})", read_.load()) : "";
    if (problem.library)
      fail(Exit::kInput, "{}: damaged, or Parquet of a kind that is not read{} (Arrow: \"{}\")", path_, behind,
           printable(problem.text, 400));
    fail(Exit::kInput, "{}: {}{}", path_, printable(problem.text, 400), behind);
  }

  size_t width() const { return spec_.columns.size() + (spec_.messages.empty() ? 0 : 1); }

  void set_turn(Turn& turn, const ParquetTurn& from, size_t column, size_t index, const std::string& where) {
    const bool from_value = module_->from_value(handle_.get(), column);
    for (const bool role : {true, false}) {
      const ParquetText& text = role ? from.role : from.content;
      if (text.data == nullptr)
        fail(Exit::kInput, "{}: \"{}\"[{}].{} is null, expected a string", where,
             printable(column < spec_.columns.size() ? spec_.columns[column] : spec_.messages, 40), index,
             from_value ? (role ? "from" : "value") : (role ? "role" : "content"));
      set(role ? turn.role : turn.content, text, where);
    }
    if (from_value) name_role(turn.role);
    turn.context = spec_.pair() && column == 0;
  }

  // A few bytes of a file can stand for gigabytes (runs of one entry of a dictionary): its texts are held to its size
  // as those of packed files are. Null is no text.
  void set(std::string& out, const ParquetText& text, const std::string& where) {
    given_ += kCountedBytes + text.size;
    if (const uint64_t limit = std::max(kFreeUnpackedBytes, file_.size() * kMaxUnpackRatio); given_ > limit)
      fail(Exit::kInput, "{}: {} bytes of Parquet unpack to more than {}", where, file_.size(), limit);
    out.assign(text.data == nullptr ? "" : text.data, text.size);
    check_text(out, config_, where);
  }

  size_t hash_step() {
    const size_t got = file_.read(buffer_);
    hash_.update(std::string_view(buffer_).substr(0, got));
    hashed_ += got;
    return got;
  }

  const std::string path_;
  const RecordSpec spec_;
  const DataConfig config_;
  FileStream file_;  // for the hash
  std::string buffer_;
  Sha256 hash_;
  uint64_t hashed_ = 0, rows_ = 0, given_ = 0;
  std::atomic<int64_t> read_{0};
  const ParquetModule* module_ = nullptr;
  std::unique_ptr<void, void (*)(void*)> handle_{nullptr, [](void*) {}};
};

}  // namespace

const ParquetLibrary& parquet_library() {
  static const ParquetLibrary library = load();
  return library;
}

std::unique_ptr<FileRecords> open_parquet(const std::string& path, const RecordSpec& spec, const DataConfig& config) {
  return std::make_unique<ParquetRecords>(path, spec, config);
}

}  // namespace mantissa
