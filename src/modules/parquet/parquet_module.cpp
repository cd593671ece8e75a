// The one source that includes Apache Arrow: rows of text columns and of conversations, page by page, in memory that a
// pool bounds. Levels and records: "Dremel encoding" in the format's documentation (github.com/apache/parquet-format).
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <arrow/util/config.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "data/readers/parquet_module.h"

namespace mantissa {
namespace {

constexpr int64_t kBatch = 512;                        // levels read at once
constexpr int64_t kStreamBuffer = int64_t{256} << 10;  // of the file, a column
constexpr size_t kMaxRowBytes = size_t{128} << 20;     // text of one conversation
constexpr size_t kMaxTurns = size_t{1} << 16;          // of one conversation
constexpr int32_t kMaxListInFooter = 200'000;          // row groups, columns, schema nodes
constexpr int32_t kMaxStringInFooter = 64'000'000;

// What is wrong with the file, as a message for people.
class Problem : public std::exception {
 public:
  explicit Problem(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// Arrow's default pool with a cap.
class CappedPool final : public arrow::MemoryPool {
 public:
  explicit CappedPool(int64_t limit) : limit_(limit), pool_(arrow::default_memory_pool()) {}
  bool refused() const { return refused_; }

  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    if (size > limit_ - used_) return refuse(size);
    const arrow::Status status = pool_->Allocate(size, alignment, out);
    if (status.ok()) used_ += size;
    return status;
  }
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** memory) override {
    // Both may live while bytes move.
    if (new_size > old_size && new_size > limit_ - used_) return refuse(new_size);
    const arrow::Status status = pool_->Reallocate(old_size, new_size, alignment, memory);
    if (status.ok()) used_ += new_size - old_size;
    return status;
  }
  void Free(uint8_t* memory, int64_t size, int64_t alignment) override {
    pool_->Free(memory, size, alignment);
    used_ -= size;
  }
  int64_t bytes_allocated() const override { return used_; }
  int64_t max_memory() const override { return -1; }
  int64_t total_bytes_allocated() const override { return pool_->total_bytes_allocated(); }
  int64_t num_allocations() const override { return pool_->num_allocations(); }
  std::string backend_name() const override { return pool_->backend_name(); }

 private:
  arrow::Status refuse(int64_t size) {
    refused_ = true;
    return arrow::Status::OutOfMemory("asks for ", size, " bytes");
  }

  const int64_t limit_;
  arrow::MemoryPool* const pool_;
  int64_t used_ = 0;
  bool refused_ = false;
};

// A leaf of the schema: a column of byte arrays, at the top or inside one list.
struct Leaf {
  std::string name;  // "text", "messages.list.element.role"
  int column = 0;
  int16_t max_def = 0;      // definition level of a value that is there
  int16_t element_def = 0;  // from this level on the list has an element
  bool repeated = false;

  std::shared_ptr<parquet::ByteArrayReader> reader;  // of the row group at hand
  std::vector<int16_t> def, rep;
  std::vector<parquet::ByteArray> values;
  int64_t levels = 0, at = 0, value_at = 0;

  void begin(std::shared_ptr<parquet::ColumnReader> column_reader) {
    reader = std::static_pointer_cast<parquet::ByteArrayReader>(std::move(column_reader));
    def.resize(kBatch), rep.resize(kBatch), values.resize(kBatch);
    levels = at = value_at = 0;
  }
  // False at the end of the row group.
  bool more() {
    if (at < levels) return true;
    int64_t got = 0;
    levels = reader->ReadBatch(kBatch, def.data(), rep.data(), values.data(), &got);
    at = value_at = 0;
    const int64_t there = max_def == 0 ? levels : std::count(def.begin(), def.begin() + levels, max_def);
    if (got != there) throw Problem("column " + name + ": its levels and values disagree");
    return levels > 0;
  }
  bool begins_row() const { return !repeated || rep[static_cast<size_t>(at)] == 0; }
  int16_t level() const { return max_def == 0 ? int16_t{0} : def[static_cast<size_t>(at)]; }
  // The value at hand, null where there is none, and goes on.
  ParquetText take() {
    const bool there = level() == max_def;
    ++at;
    if (!there) return {nullptr, 0};
    const parquet::ByteArray& value = values[static_cast<size_t>(value_at++)];
    // A null pointer says null, so an empty value points somewhere.
    return {value.len == 0 ? "" : reinterpret_cast<const char*>(value.ptr), value.len};
  }
};

class File {
 public:
  File(const char* path, uint64_t limit) : pool_(static_cast<int64_t>(limit)) {
    parquet::ReaderProperties properties(&pool_);
    properties.enable_buffered_stream();
    properties.set_buffer_size(kStreamBuffer);
    properties.set_page_checksum_verification(true);
    properties.set_thrift_container_size_limit(kMaxListInFooter);
    properties.set_thrift_string_size_limit(kMaxStringInFooter);
    auto file = arrow::io::ReadableFile::Open(path, &pool_);
    if (!file.ok()) throw Problem(file.status().message());
    reader_ = parquet::ParquetFileReader::Open(*file, properties);
    meta_ = reader_->metadata();
    const auto* root = meta_->schema()->group_node();
    for (int i = 0; i < root->field_count(); ++i) names_.push_back(root->field(i)->name());
    int64_t rows = 0;
    for (int i = 0; i < meta_->num_row_groups(); ++i) {
      const int64_t here = meta_->RowGroup(i)->num_rows();
      if (here < 0 || __builtin_add_overflow(rows, here, &rows))
        throw Problem("row group " + std::to_string(i) + " says that it has " + std::to_string(here) + " rows");
    }
    if (rows != meta_->num_rows())
      throw Problem("the footer promises " + std::to_string(meta_->num_rows()) + " rows, its row groups " +
                    std::to_string(rows));
  }

  bool refused() const { return pool_.refused(); }
  uint64_t rows() const { return static_cast<uint64_t>(meta_->num_rows()); }
  const char* column(size_t index) const { return index < names_.size() ? names_[index].c_str() : nullptr; }

  void select(const char* const* columns, size_t count, const std::string& messages) {
    leaves_.clear();
    for (size_t i = 0; i < count; ++i) leaves_.push_back(flat_leaf(columns[i]));
    texts_.assign(count, {nullptr, 0});
    with_turns_ = !messages.empty();
    if (with_turns_) {
      leaves_.push_back(list_leaf(messages, "role"));
      leaves_.push_back(list_leaf(messages, "content"));
    }
    group_ = -1;
    left_ = 0;
  }

  bool next(ParquetRow& row) {
    while (left_ == 0) {
      if (group_ >= 0)
        for (Leaf& leaf : leaves_)
          if (leaf.more()) throw Problem(place(leaf) + " holds more than the rows that its row group promises");
      if (group_ + 1 >= meta_->num_row_groups()) return false;
      const std::shared_ptr<parquet::RowGroupReader> group = reader_->RowGroup(++group_);
      left_ = meta_->RowGroup(group_)->num_rows();
      for (Leaf& leaf : leaves_) leaf.begin(group->Column(leaf.column));
    }
    for (Leaf& leaf : leaves_)
      if (!leaf.more() || !leaf.begins_row())
        throw Problem(place(leaf) + " ends " + std::to_string(left_) + " rows before its row group");
    for (size_t i = 0; i < texts_.size(); ++i) texts_[i] = leaves_[i].take();
    turns_.clear();
    if (with_turns_) read_turns(leaves_[texts_.size()], leaves_[texts_.size() + 1]);
    row = {texts_.data(), turns_.data(), turns_.size()};
    --left_;
    return true;
  }

 private:
  std::string place(const Leaf& leaf) const { return "row group " + std::to_string(group_) + ", column " + leaf.name; }

  Leaf leaf_at(int index) const {
    const parquet::ColumnDescriptor* descriptor = meta_->schema()->Column(index);
    Leaf leaf;
    leaf.name = descriptor->path()->ToDotString();
    leaf.column = index;
    leaf.max_def = descriptor->max_definition_level();
    if (descriptor->physical_type() != parquet::Type::BYTE_ARRAY)
      throw Problem("column " + leaf.name + " is " + parquet::TypeToString(descriptor->physical_type()) +
                    ", expected text");
    return leaf;
  }

  Leaf flat_leaf(const std::string& name) const {
    for (int i = 0; i < meta_->schema()->num_columns(); ++i) {
      const parquet::schema::Node* root = meta_->schema()->GetColumnRoot(i);
      if (root->name() != name) continue;
      if (root->is_group() || root->is_repeated())
        throw Problem("column " + name + " is a " + (root->is_repeated() ? "list" : "list, map or struct") +
                      ", expected text");
      return leaf_at(i);
    }
    throw Problem("no column " + name);
  }

  // messages.<list>.<element>.<field>, or messages.<list>.<field> of older writers: one repeated node, and at most a
  // struct between it and the leaf.
  Leaf list_leaf(const std::string& messages, const std::string& field) const {
    for (int i = 0; i < meta_->schema()->num_columns(); ++i) {
      const parquet::ColumnDescriptor* descriptor = meta_->schema()->Column(i);
      if (meta_->schema()->GetColumnRoot(i)->name() != messages || descriptor->name() != field) continue;
      if (descriptor->max_repetition_level() != 1) continue;
      int above = 0;
      const parquet::schema::Node* list = descriptor->schema_node()->parent();
      for (; list != nullptr && !list->is_repeated(); list = list->parent()) ++above;
      if (list == nullptr || above > 1) continue;
      Leaf leaf = leaf_at(i);
      leaf.repeated = true;
      for (; list != nullptr && list->parent() != nullptr; list = list->parent())
        leaf.element_def = static_cast<int16_t>(leaf.element_def + (list->is_required() ? 0 : 1));
      return leaf;
    }
    throw Problem("column " + messages + " is no list of structs with role and content");
  }

  // Values of earlier pages go when a row crosses a page, so they are copied.
  void read_list(Leaf& leaf, std::vector<ParquetText>& items, std::string& bytes) {
    std::vector<size_t>& ends = ends_;
    items.clear();
    ends.clear();
    bytes.clear();
    do {
      if (leaf.level() < leaf.element_def) {  // no list, or an empty one
        leaf.take();
        continue;
      }
      const ParquetText value = leaf.take();
      if (items.size() == kMaxTurns || value.size > kMaxRowBytes - bytes.size())
        throw Problem(place(leaf) + ": a conversation of more than " + std::to_string(kMaxTurns) + " turns or " +
                      std::to_string(kMaxRowBytes >> 20) + " MiB");
      bytes.append(value.data == nullptr ? "" : value.data, value.size);
      items.push_back(value);
      ends.push_back(bytes.size());
    } while (leaf.more() && !leaf.begins_row());
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].data != nullptr) items[i].data = bytes.data() + (ends[i] - items[i].size);
  }

  void read_turns(Leaf& role, Leaf& content) {
    read_list(role, roles_, role_bytes_);
    read_list(content, contents_, content_bytes_);
    if (roles_.size() != contents_.size())
      throw Problem(place(content) + ": " + std::to_string(contents_.size()) + " values beside " +
                    std::to_string(roles_.size()) + " roles");
    for (size_t i = 0; i < roles_.size(); ++i) turns_.push_back({roles_[i], contents_[i]});
  }

  CappedPool pool_;
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> meta_;
  std::vector<std::string> names_;
  std::vector<Leaf> leaves_;  // the columns, then role and content
  bool with_turns_ = false;
  int group_ = -1;
  int64_t left_ = 0;  // rows of the row group
  std::vector<ParquetText> texts_, roles_, contents_;
  std::vector<ParquetTurn> turns_;
  std::vector<size_t> ends_;
  std::string role_bytes_, content_bytes_;
};

// Runs `body`; what it throws becomes the problem and `failed` the result.
template <class Result, class Body>
Result guarded(const File* file, ParquetProblem* problem, Result failed, Body&& body) {
  const auto say = [&](const char* text, bool memory) {
    problem->memory = memory || (file != nullptr && file->refused());
    std::snprintf(problem->text, sizeof(problem->text), "%s", text);
    return failed;
  };
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return say("out of memory", true);
  } catch (const std::exception& error) {
    return say(error.what(), false);
  }
}

void* open(const char* path, uint64_t limit, ParquetProblem* problem) {
  return guarded<void*>(nullptr, problem, nullptr, [&] { return new File(path, limit); });
}

void close(void* file) { delete static_cast<File*>(file); }

const char* column(void* file, size_t index) { return static_cast<File*>(file)->column(index); }

bool select(void* file, const char* const* columns, size_t count, const char* messages, ParquetProblem* problem) {
  auto* self = static_cast<File*>(file);
  return guarded(self, problem, false, [&] {
    self->select(columns, count, messages);
    return true;
  });
}

int next(void* file, ParquetRow* row, ParquetProblem* problem) {
  auto* self = static_cast<File*>(file);
  return guarded(self, problem, -1, [&] { return self->next(*row) ? 1 : 0; });
}

uint64_t rows(void* file) { return static_cast<File*>(file)->rows(); }

constexpr ParquetModule kModule = {.abi = kParquetAbi,
                                   .arrow = ARROW_VERSION_STRING,
                                   .open = open,
                                   .close = close,
                                   .column = column,
                                   .select = select,
                                   .next = next,
                                   .rows = rows};

}  // namespace
}  // namespace mantissa

extern "C" __attribute__((visibility("default"))) const mantissa::ParquetModule* mantissa_parquet_module() {
  return &mantissa::kModule;
}
