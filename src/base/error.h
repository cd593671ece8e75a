// Errors carry an exit code and a chain of contexts; a message says found, expected, where.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <utility>

namespace mantissa {

// Process exit codes; the table stands in docs/errors.md.
enum class Exit : int {
  kDone = 0,
  kInternal = 1,      // a broken invariant of the program itself
  kUsage = 2,         // command line or config: missing file, unknown key, dimensions a recipe cannot take
  kInput = 3,         // bad or missing input file
  kStorage = 4,       // disk full, not writable
  kNonFinite = 5,     // NaN or Inf in loss or gradient
  kMemory = 6,        // does not fit
  kPeerLost = 7,      // another rank died or hangs
  kUnavailable = 8,   // precision or hardware not available
  kDevice = 9,        // the device failed: the same command goes on on a healthy one
  kInterrupted = 75,  // stopped by a signal; the same command resumes
};

class Error : public std::exception {
 public:
  Error(Exit code, std::string message) : code_(code), message_(std::move(message)) {}

  // Prepends "where: " to the message.
  void add_context(const std::string& where) { message_ = where + ": " + message_; }

  Exit code() const { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Exit code_;
  std::string message_;
};

template <class... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Throws Exit::kInternal unless `condition` holds; the message prints the values.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(Exit::kInternal, fmt::format(format, std::forward<Args>(args)...));
}

// Runs `body`; an Error that leaves it gets `where` prepended.
template <class Body>
decltype(auto) in_context(const std::string& where, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (Error& error) {
    error.add_context(where);
    throw;
  }
}

}  // namespace mantissa
