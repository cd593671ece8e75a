#include "app/verbs.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/config.h"
#include "base/display.h"
#include "base/error.h"
#include "base/text.h"
#include "base/version.h"

namespace mantissa {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"prepare", "text or files of tokens to shards of packed rows; a preview of them", prepare_verb},
      {"train", "one training run of a config", train_verb},
      {"compare", "the same run under several precision settings: table and report", compare_verb},
      {"plan", "memory, FLOPs, steps and time of a config; trains nothing", plan_verb},
      {"inspect", "what a model folder, a safetensors file or a run folder holds", inspect_verb},
      {"verify", "every rule that a model folder, shards, a tokenizer or a run has to keep", verify_verb},
      {"export", "a Hugging Face folder from a finished run or another folder, checked", export_verb},
      {"report", "tables and one self-contained HTML page from run folders", report_verb},
      {"sample", "text out of a model", sample_verb},
      {"eval", "loss, perplexity and bits per byte of a model over text", eval_verb},
      {"probe", "logits, loss, gradients and AdamW steps of a model on given tokens", probe_verb},
      {"quantize", "bytes and scales of given tensors under a recipe", quantize_verb},
      {"tokenizer", "train a tokenizer; ids and text of one another; chat templates", tokenizer_verb},
      {"bench", "ops, GEMMs, whole steps: verified, timed, held against the machine", bench_verb},
      {"doctor", "machine, libraries, GEMMs; which recipe is native or emulated here and why", doctor_verb},
  };
  return table;
}

namespace {

void print_help() {
  fmt::print(
      "mantissa {}: trains language models at low precision and shows what each precision costs\n\n"
      "usage: mantissa VERB [arguments]     mantissa VERB --help     mantissa --version\n\n",
      kVersion);
  for (const Verb& verb : verbs()) fmt::print("  {:<10} {}\n", verb.name, verb.summary);
}

int dispatch(const std::vector<std::string>& args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    print_help();
    return args.empty() ? static_cast<int>(Exit::kUsage) : 0;
  }
  if (args[0] == "--version") {
    fmt::print("mantissa {}\n", kVersion);
    return 0;
  }
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    if (args[0] == verb.name) return verb.run({args.begin() + 1, args.end()});
    names.emplace_back(verb.name);
  }
  const bool flag = args[0].starts_with("-");
  if (flag) names = {"--help", "--version"};
  const std::string near = config::nearest(args[0], names);
  fail(Exit::kUsage, "{}: unknown {}; {}", printable(args[0]), flag ? "flag" : "verb",
       near.empty() ? "expected " + join(names, ", ") : "did you mean " + near + "?");
}

int say_failure(Exit code, const char* message) {
  std::string line = message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fflush(stdout);
  fmt::print(stderr, "mantissa: {}\n", displayed(line));
  return static_cast<int>(code);
}

// What the standard library says of a path that no check of ours has met.
int report_path(const std::filesystem::filesystem_error& error) {
  const std::error_code reason = error.code();
  const bool storage = reason == std::errc::no_space_on_device || reason == std::errc::read_only_file_system ||
                       reason == std::errc::io_error;
  const std::string line = fmt::format("{}: {}", error.path1().string(), reason.message());
  return say_failure(storage ? Exit::kStorage : Exit::kInput, line.c_str());
}

// 316 is the one error of writing JSON (a text that is not UTF-8); the others are of reading it.
int report_json(const nlohmann::json::exception& error) {
  return say_failure(Exit::kInput, error.id == 316
                                       ? "a name or a text is not UTF-8, which JSON files cannot hold; rename it"
                                       : "a JSON file holds a value of another type or size than it has to");
}

}  // namespace

int run_command_line(const std::vector<std::string>& args) {
  try {
    const int code = dispatch(args);
    // A full disk behind stdout shows only when the buffer is flushed.
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      return say_failure(Exit::kStorage, "stdout: could not be written");
    return code;
  } catch (const Error& error) {
    return say_failure(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return say_failure(Exit::kMemory,
                       "memory: an allocation failed; a smaller batch.micro_batch or model fits in less");
  } catch (const std::filesystem::filesystem_error& error) {
    return report_path(error);
  } catch (const std::system_error& error) {
    // fmt::print on a stdout that takes no more.
    return say_failure(Exit::kStorage, fmt::format("stdout: could not be written: {}", error.code().message()).c_str());
  } catch (const nlohmann::json::exception& error) {
    return report_json(error);
  } catch (const std::exception& error) {
    return say_failure(Exit::kInternal, error.what());
  }
}

}  // namespace mantissa
