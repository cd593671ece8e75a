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
#include <parquet/types.h>

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

// What is wrong with the file, in the project's own words.
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
    if (!file.ok()) throw parquet::ParquetException(file.status().message());
    const auto size = (*file)->GetSize();
    if (!size.ok()) throw parquet::ParquetException(size.status().message());
    file_bytes_ = static_cast<uint64_t>(*size);
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

  void select(const char* const* columns, size_t count, bool lists, const std::string& messages) {
    leaves_.clear();
    columns_.clear();
    for (size_t i = 0; i < count; ++i) add(columns[i], lists && is_list(columns[i]));
    if (!messages.empty()) add(messages, true);
    for (const Column& column : columns_)
      if (lists && column.list != columns_[0].list)
        throw Problem("column " + columns_[0].name + " and column " + column.name +
                      " are not of a kind: expected texts, or lists of messages");
    values_.assign(columns_.size(), {});
    check_sizes();
    group_ = -1;
    left_ = 0;
  }
  bool from_value(size_t column) const { return columns_[column].from_value; }

  bool next(ParquetRow& row) {
    while (left_ == 0) {
      if (group_ >= 0 && meta_->RowGroup(group_)->num_rows() > 0)
        for (Leaf& leaf : leaves_)
          if (leaf.more()) throw Problem(place(leaf) + " holds more than the rows that its row group promises");
      if (group_ + 1 >= meta_->num_row_groups()) return false;
      const std::shared_ptr<parquet::RowGroupReader> group = reader_->RowGroup(++group_);
      left_ = meta_->RowGroup(group_)->num_rows();
      // Of a group without rows nothing is read: its pages may be large all the same.
      if (left_ > 0)
        for (Leaf& leaf : leaves_) leaf.begin(group->Column(leaf.column));
    }
    for (Leaf& leaf : leaves_)
      if (!leaf.more() || !leaf.begins_row())
        throw Problem(place(leaf) + " ends " + std::to_string(left_) + " rows before its row group");
    for (size_t i = 0; i < columns_.size(); ++i) {
      Column& column = columns_[i];
      values_[i] = {column.list, {nullptr, 0}, nullptr, 0};
      if (!column.list) {
        values_[i].text = leaves_[column.leaf].take();
        continue;
      }
      read_turns(column);
      values_[i].turns = column.turns.data(), values_[i].turn_count = column.turns.size();
    }
    row = {values_.data()};
    --left_;
    return true;
  }

 private:
  // A column that was selected: one leaf of text, or two of turns.
  struct Column {
    std::string name;
    bool list = false, from_value = false;
    size_t leaf = 0;  // in leaves_; of a list that of the roles, that of the contents follows
    std::vector<ParquetText> roles, contents;
    std::vector<ParquetTurn> turns;
    std::string role_bytes, content_bytes;
  };

  void add(const std::string& name, bool list) {
    Column column;
    column.name = name, column.list = list, column.leaf = leaves_.size();
    if (!list) {
      leaves_.push_back(flat_leaf(name));
    } else {
      Leaf leaf;
      column.from_value = !find_list_leaf(name, "role", leaf) && find_list_leaf(name, "from", leaf);
      leaves_.push_back(list_leaf(name, column.from_value ? "from" : "role"));
      leaves_.push_back(list_leaf(name, column.from_value ? "value" : "content"));
    }
    columns_.push_back(std::move(column));
  }

  // Column chunks that lie over each other would be read, and unpacked, again and again.
  void check_sizes() const {
    uint64_t bytes = 0;
    std::vector<int> read;
    for (const Leaf& leaf : leaves_)
      if (std::find(read.begin(), read.end(), leaf.column) == read.end()) read.push_back(leaf.column);
    for (int group = 0; group < meta_->num_row_groups(); ++group) {
      const auto described = meta_->RowGroup(group);
      for (const int column : read) {
        const int64_t size = described->ColumnChunk(column)->total_compressed_size();
        if (size < 0 || __builtin_add_overflow(bytes, static_cast<uint64_t>(size), &bytes) || bytes > file_bytes_)
          throw Problem("row group " + std::to_string(group) +
                        ": the column chunks up to here take more bytes than the " + std::to_string(file_bytes_) +
                        " of the file");
      }
    }
  }

  std::string place(const Leaf& leaf) const { return "row group " + std::to_string(group_) + ", column " + leaf.name; }

  Leaf leaf_at(int index) const {
    const parquet::ColumnDescriptor* descriptor = meta_->schema()->Column(index);
    Leaf leaf;
    leaf.name = descriptor->path()->ToDotString();
    leaf.column = index;
    leaf.max_def = descriptor->max_definition_level();
    if (const std::string type = arrow_name(*descriptor); type != "text")
      throw Problem("column " + leaf.name + " is " + type + ", expected string, large_string or binary");
    return leaf;
  }

  // The leaf's type as Arrow calls it; "text" for the ones that are read as such.
  static std::string arrow_name(const parquet::ColumnDescriptor& descriptor) {
    using parquet::Type;
    const std::shared_ptr<const parquet::LogicalType>& logical = descriptor.logical_type();
    if (logical != nullptr && logical->is_decimal())
      return "decimal128(" + std::to_string(descriptor.type_precision()) + ", " +
             std::to_string(descriptor.type_scale()) + ")";
    if (logical != nullptr && logical->is_date()) return "date32";
    if (logical != nullptr && logical->is_timestamp()) return "timestamp";
    if (logical != nullptr && logical->is_time()) return "time";
    if (logical != nullptr && logical->is_int()) {
      const auto& whole = static_cast<const parquet::IntLogicalType&>(*logical);
      return (whole.is_signed() ? "int" : "uint") + std::to_string(whole.bit_width());
    }
    switch (descriptor.physical_type()) {
      case Type::BOOLEAN:
        return "bool";
      case Type::INT32:
        return "int32";
      case Type::INT64:
        return "int64";
      case Type::INT96:
        return "timestamp";
      case Type::FLOAT:
        return "float";
      case Type::DOUBLE:
        return "double";
      case Type::FIXED_LEN_BYTE_ARRAY:
        return "fixed_size_binary[" + std::to_string(descriptor.type_length()) + "]";
      case Type::BYTE_ARRAY:
        return "text";
      default:
        return "of an unknown type";
    }
  }

  // "list", "map", "struct" of a node that is no leaf.
  static std::string group_name(const parquet::schema::Node& node) {
    if (node.is_repeated()) return "a list";
    const std::shared_ptr<const parquet::LogicalType>& logical = node.logical_type();
    if (logical != nullptr && logical->is_list()) return "a list";
    if (logical != nullptr && logical->is_map()) return "a map";
    return "a struct";
  }

  // The node that `path` names from the top, a name with dots before a path; null when there is none.
  const parquet::schema::Node* node_at(const std::string& path) const {
    return node_at(*meta_->schema()->group_node(), path);
  }
  static const parquet::schema::Node* node_at(const parquet::schema::GroupNode& group, const std::string& path) {
    for (int i = 0; i < group.field_count(); ++i)
      if (group.field(i)->name() == path) return group.field(i).get();
    for (int i = 0; i < group.field_count(); ++i) {
      const parquet::schema::Node& field = *group.field(i);
      if (!field.is_group() || field.is_repeated() || !path.starts_with(field.name() + ".")) continue;
      const auto& inner = static_cast<const parquet::schema::GroupNode&>(field);
      if (const auto* found = node_at(inner, path.substr(field.name().size() + 1))) return found;
    }
    return nullptr;
  }

  bool is_list(const std::string& path) const {
    const parquet::schema::Node* node = node_at(path);
    return node != nullptr && node->is_group() && group_name(*node) == "a list";
  }

  Leaf flat_leaf(const std::string& name) const {
    const parquet::schema::Node* node = node_at(name);
    if (node == nullptr) throw Problem("no column " + name);
    if (node->is_group() || node->is_repeated())
      throw Problem("column " + name + " is " + group_name(*node) + ", expected string, large_string or binary");
    for (int i = 0; i < meta_->schema()->num_columns(); ++i)
      if (meta_->schema()->Column(i)->schema_node().get() == node) return leaf_at(i);
    throw Problem("no column " + name);
  }

  Leaf list_leaf(const std::string& messages, const std::string& field) const {
    Leaf leaf;
    if (!find_list_leaf(messages, field, leaf))
      throw Problem("column " + messages + " is no list of structs with role and content, or from and value");
    return leaf;
  }

  // messages.<list>.<element>.<field>, or messages.<list>.<field> of older writers: one repeated node, and at most a
  // struct between it and the leaf.
  bool find_list_leaf(const std::string& messages, const std::string& field, Leaf& leaf) const {
    const parquet::schema::Node* column = node_at(messages);
    if (column == nullptr) return false;
    for (int i = 0; i < meta_->schema()->num_columns(); ++i) {
      const parquet::ColumnDescriptor* descriptor = meta_->schema()->Column(i);
      if (descriptor->name() != field || descriptor->max_repetition_level() != 1) continue;
      int above = 0;
      const parquet::schema::Node* list = descriptor->schema_node()->parent();
      for (; list != nullptr && !list->is_repeated(); list = list->parent()) ++above;
      if (list == nullptr || above > 1) continue;
      if (list != column && list->parent() != column) continue;
      leaf = leaf_at(i);
      leaf.repeated = true;
      for (; list != nullptr && list->parent() != nullptr; list = list->parent())
        leaf.element_def = static_cast<int16_t>(leaf.element_def + (list->is_required() ? 0 : 1));
      return true;
    }
    return false;
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

  void read_turns(Column& column) {
    Leaf &role = leaves_[column.leaf], &content = leaves_[column.leaf + 1];
    read_list(role, column.roles, column.role_bytes);
    read_list(content, column.contents, column.content_bytes);
    if (column.roles.size() != column.contents.size())
      throw Problem(place(content) + ": " + std::to_string(column.contents.size()) + " values beside " +
                    std::to_string(column.roles.size()) + " roles");
    column.turns.clear();
    for (size_t i = 0; i < column.roles.size(); ++i) column.turns.push_back({column.roles[i], column.contents[i]});
  }

  CappedPool pool_;
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> meta_;
  std::vector<std::string> names_;
  uint64_t file_bytes_ = 0;
  std::vector<Leaf> leaves_;
  std::vector<Column> columns_;
  std::vector<ParquetValue> values_;  // of the columns
  int group_ = -1;
  int64_t left_ = 0;  // rows of the row group
  std::vector<size_t> ends_;
};

// Runs `body`; what it throws becomes the problem and `failed` the result.
template <class Result, class Body>
Result guarded(const File* file, ParquetProblem* problem, Result failed, Body&& body) {
  const auto say = [&](const char* text, bool memory, bool library) {
    problem->memory = memory || (file != nullptr && file->refused());
    problem->library = library;
    std::snprintf(problem->text, sizeof(problem->text), "%s", text);
    return failed;
  };
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return say("out of memory", true, false);
  } catch (const Problem& wrong) {
    return say(wrong.what(), false, false);
  } catch (const std::exception& error) {
    return say(error.what(), false, true);
  }
}

void* open(const char* path, uint64_t limit, ParquetProblem* problem) {
  return guarded<void*>(nullptr, problem, nullptr, [&] { return new File(path, limit); });
}

void close(void* file) { delete static_cast<File*>(file); }

const char* column(void* file, size_t index) { return static_cast<File*>(file)->column(index); }

bool select(void* file, const char* const* columns, size_t count, bool lists, const char* messages,
            ParquetProblem* problem) {
  auto* self = static_cast<File*>(file);
  return guarded(self, problem, false, [&] {
    self->select(columns, count, lists, messages);
    return true;
  });
}

bool from_value(void* file, size_t column) { return static_cast<File*>(file)->from_value(column); }

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
                                   .from_value = from_value,
                                   .next = next,
                                   .rows = rows};

}  // namespace
}  // namespace mantissa

extern "C" __attribute__((visibility("default"))) const mantissa::ParquetModule* mantissa_parquet_module() {
  return &mantissa::kModule;
}
