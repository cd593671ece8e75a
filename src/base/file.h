// Files: mapping, capped reads, durable writes. Reading fails with Exit::kInput, writing with Exit::kStorage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mantissa {

enum class Links { kFollow, kRefuse };  // kRefuse: the file itself must not be a symbolic link

// A regular file mapped read-only.
class MappedFile {
 public:
  static MappedFile open(const std::string& path, Links links = Links::kFollow);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// Begins to read the part of a mapped file into memory, if it is not there: whoever touches it soon waits less. A hint.
void read_ahead(std::span<const std::byte> mapped);

// A regular file read from its first byte to its last.
class FileStream {
 public:
  explicit FileStream(const std::string& path);
  ~FileStream();
  FileStream(const FileStream&) = delete;
  FileStream& operator=(const FileStream&) = delete;

  // Fills `room` and returns how much: all of it, but for the file's end. Exit::kInput when that comes before size().
  size_t read(std::span<char> room);
  uint64_t size() const { return size_; }  // when it was opened
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  uint64_t size_ = 0;
  int descriptor_ = -1;
};

// A file written under a temporary name beside its place; commit() fsyncs it, renames it and fsyncs the folder. Without
// commit() nothing is left behind and what stood at `path` stays.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::string path_, temporary_;
  int descriptor_ = -1;
};

bool exists(const std::string& path);  // Exit::kInput where it cannot be told: a loop of links, a name too long
bool is_directory(const std::string& path);
uint64_t file_size(const std::string& path);
std::string join_path(const std::string& folder, const std::string& name);
std::string parent_of(const std::string& path);  // "." of a name alone
// The whole of a regular file of at most `max_bytes`.
std::string read_text(const std::string& path, uint64_t max_bytes = uint64_t{64} << 20);
void write_atomic(const std::string& path, std::string_view text);
// Makes the folder and its parents; no error when it is there.
void make_dirs(const std::string& path);
void sync_directory(const std::string& path);
// Free bytes for an unprivileged user on the file system that holds `path`.
uint64_t free_bytes(const std::string& path);

}  // namespace mantissa
