// Apache Parquet through Apache Arrow, which only the run-time module mantissa_parquet.so knows: plain C structs and
// functions, so that the program neither links Arrow nor needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mantissa {

// Null when data is null; else `size` bytes, valid until the next call for the file.
struct ParquetText {
  const char* data;
  uint64_t size;
};

struct ParquetTurn {
  ParquetText role, content;
};

// Of a selected column: a text, or turns.
struct ParquetValue {
  bool list;  // a column of lists of structs
  ParquetText text;
  const ParquetTurn* turns;
  uint64_t turn_count;
};

struct ParquetRow {
  const ParquetValue* columns;  // one for each that was selected, then that of messages
};

// What went wrong, without the file's name.
struct ParquetProblem {
  bool memory;   // the pool's cap was reached
  bool library;  // the text is Arrow's own
  char text[512];
};

struct ParquetModule {
  uint32_t abi;
  const char* arrow;  // its version

  // Reads the footer; null when there is a problem. Memory for pages comes from a pool of `memory_limit` bytes.
  void* (*open)(const char* path, uint64_t memory_limit, ParquetProblem* problem);
  void (*close)(void* file);
  // Names of the columns at the top of the schema; null behind the last.
  const char* (*column)(void* file, size_t index);
  // Chooses what next() reads, by name or by path ("meta.text"): columns of strings, which with `lists` may all be
  // lists of structs with role and content, or from and value; and perhaps ("" for none) one of messages, which is such
  // a list. False: a problem.
  bool (*select)(void* file, const char* const* columns, size_t count, bool lists, const char* messages,
                 ParquetProblem* problem);
  // The structs of a column of lists have from and value.
  bool (*from_value)(void* file, size_t column);
  // The next row: 1, 0 at the end, -1 for a problem.
  int (*next)(void* file, ParquetRow* row, ParquetProblem* problem);
  // Rows that the footer promises.
  uint64_t (*rows)(void* file);
};

inline constexpr uint32_t kParquetAbi = 3;
inline constexpr const char* kParquetFile = "mantissa_parquet.so";
inline constexpr const char* kParquetSymbol = "mantissa_parquet_module";
using ParquetEntry = const ParquetModule* (*)();

struct ParquetLibrary {
  const ParquetModule* module = nullptr;
  std::string absence;  // why it is not loaded, and how to get it
};

// Loaded once, from the folder of the executable.
const ParquetLibrary& parquet_library();

}  // namespace mantissa
