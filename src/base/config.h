// Typed configuration: a struct describes its fields once; parsing, command-line overrides, dump, help and origins
// follow.
//
//   struct ScheduleConfig {
//     std::string name = "cosine";
//     int64_t warmup_steps = 100;
//     void describe(config::Fields& f) {
//       f.choice("name", name, {"wsd", "cosine", "linear", "constant"}, "learning-rate curve");
//       f.integer("warmup_steps", warmup_steps, "steps of linear warm-up", {.min = 0});
//     }
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::config {

struct Range {
  double min = -1e308, max = 1e308;
};

class Fields {
 public:
  virtual ~Fields() = default;
  virtual void text(std::string_view key, std::string& value, std::string_view help) = 0;
  // `note` ends the message that refuses another value, as "best_fit is not available in this version".
  virtual void choice(std::string_view key, std::string& value, std::vector<std::string> allowed, std::string_view help,
                      std::string_view note = {}) = 0;
  virtual void number(std::string_view key, double& value, std::string_view help, Range range = {}) = 0;
  virtual void integer(std::string_view key, int64_t& value, std::string_view help, Range range = {}) = 0;
  virtual void boolean(std::string_view key, bool& value, std::string_view help) = 0;
  virtual void numbers(std::string_view key, std::vector<double>& value, std::string_view help) = 0;
  virtual void integers(std::string_view key, std::vector<int64_t>& value, std::string_view help) = 0;
  virtual void texts(std::string_view key, std::vector<std::string>& value, std::string_view help) = 0;
  // A key whose feature this version does not have yet: given, it fails with `message` (Exit::kUsage).
  virtual void unavailable(std::string_view key, std::string_view message) = 0;
  // A nested section, described by `body`.
  virtual void section(std::string_view key, const std::function<void(Fields&)>& body) = 0;
  // A list of sections. `size` is read or set first; `item(i)` makes room for element i and describes it into the
  // fields it is handed; afterwards the owner resizes to `size`:
  //   size_t n = rules.size();
  //   f.list("rules", n, [&](Fields& g, size_t i) { if (rules.size() <= i) rules.resize(i + 1); rules[i].describe(g);
  //   }, "..."); rules.resize(n);
  virtual void list(std::string_view key, size_t& size, const std::function<void(Fields&, size_t)>& item,
                    std::string_view help) = 0;
};

// A YAML file plus overrides "--a.b=c" or "a.b=c" (lists as [x,y], places in lists as rules.0.recipe), later ones win;
// ${VAR} in values is replaced from the environment, $${ stands for ${. A key given twice is refused. Parses into
// anything with describe(Fields&). Errors are Exit::kUsage: `configs/a.yaml:7: precision.recipie: unknown key; did you
// mean precision.recipe?`; wrong type, range and choice name the line, the value and what was expected.
class Source {
 public:
  static Source from_file(const std::string& path, const std::vector<std::string>& overrides);
  static Source from_text(const std::string& yaml, const std::string& name,
                          const std::vector<std::string>& overrides = {});
  ~Source();
  Source(Source&&) noexcept;

  // Fills every field given, then fails on the first key that nobody described.
  void read(const std::function<void(Fields&)>& describe) const;

  // Where the value at "a.b" or "rules[0].match" was given ("configs/a.yaml:7", "command line"), or "" when it was not.
  std::string origin(std::string_view path) const;

 private:
  struct Impl;
  explicit Source(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Every value as YAML, in the order described; with `source`, a comment says where each came from (default,
// file and line, command line). Read back, it gives the same values.
std::string dump(const std::function<void(Fields&)>& describe, const Source* source = nullptr);
// "key  help (type, default)" lines, for --help. Describe a fresh object: lists are asked for an element 0.
std::string help(const std::function<void(Fields&)>& describe);

// The nearest of `candidates` by edit distance; else the only one that `word` begins; else "".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mantissa::config
