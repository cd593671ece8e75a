// The verbs of `mantissa`. A new verb is a file <verb>_verb.cpp with one function and a row in verbs.cpp.
#pragma once

#include <string>
#include <vector>

namespace mantissa {

// Each takes the arguments after its name and returns the exit code; errors leave as Error. Interrupted runs return 75.
int prepare_verb(const std::vector<std::string>& args);
int train_verb(const std::vector<std::string>& args);
int compare_verb(const std::vector<std::string>& args);
int plan_verb(const std::vector<std::string>& args);
int inspect_verb(const std::vector<std::string>& args);
int verify_verb(const std::vector<std::string>& args);
int export_verb(const std::vector<std::string>& args);
int report_verb(const std::vector<std::string>& args);
int sample_verb(const std::vector<std::string>& args);
int eval_verb(const std::vector<std::string>& args);
int probe_verb(const std::vector<std::string>& args);
int quantize_verb(const std::vector<std::string>& args);
int tokenizer_verb(const std::vector<std::string>& args);
int bench_verb(const std::vector<std::string>& args);
int doctor_verb(const std::vector<std::string>& args);

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

// In the order of the help text.
const std::vector<Verb>& verbs();

// `args` without the program's name. Runs the verb; an error becomes one line on stderr, `mantissa: <message>`, and its
// exit code (memory that cannot be had: 6, a path or a JSON text that a library refuses: 3 or 4, anything unforeseen:
// 1).
int run_command_line(const std::vector<std::string>& args);

}  // namespace mantissa
