// mantissa tokenizer train|bytes|encode|decode|chat: byte-level BPE tokenizers, trained and looked at.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "app/flags.h"
#include "app/say.h"
#include "app/tokenizer_tasks.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "data/chat.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa {
namespace {

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;  // of what encode, decode and chat read at once

// A file, or with "-" standard input.
std::string read_input(const std::string& path) {
  if (path != "-") return read_text(path, kMaxInputBytes);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

// A token's bytes, readable: as JSON writes them where they are UTF-8, else byte by byte.
std::string readable(std::string_view bytes) {
  const std::string escaped = Json(std::string(bytes)).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (escaped.find("\xef\xbf\xbd") == std::string::npos) return displayed(escaped);
  std::string hex;
  for (const char c : bytes) hex += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return hex;
}

int encode(const std::vector<std::string>& args) {
  CommandLine command("Ids of a text, on one line, or a table of tokens.", "tokenizer encode");
  std::string name, path;
  bool table = false, plain = false;
  command.option("tokenizer", name, "bytes, or a folder or file with a tokenizer.json").required();
  command.option("file", path, "file with the text, or - for standard input").required();
  command.flag("--table", table, "one line a token: place, id, kind, text");
  command.flag("--no-special", plain, "without what the post-processor adds (BOS)");
  if (!command.parse(args)) return 0;
  const Tokenizer tokenizer = Tokenizer::open(name);
  const std::string text = read_input(path);
  std::vector<int32_t> ids;
  in_context(path, [&] {
    Tokenizer::Encoder(tokenizer).encode(text, plain ? SpecialTokens::kLeaveOut : SpecialTokens::kAdd, ids);
  });
  if (!table) {
    fmt::print("{}\n", fmt::join(ids, " "));
    return 0;
  }
  for (size_t i = 0; i < ids.size(); ++i)
    say("{:>8} {:>8} {:<7} {}\n", i, ids[i], tokenizer.special(ids[i]) ? "special" : "",
        readable(tokenizer.bytes_of(ids[i])));
  say("{} bytes · {} tokens · {:.3f} bytes a token\n", grouped(static_cast<int64_t>(text.size())),
      grouped(static_cast<int64_t>(ids.size())),
      ids.empty() ? 0.0 : static_cast<double>(text.size()) / static_cast<double>(ids.size()));
  return 0;
}

int decode(const std::vector<std::string>& args) {
  CommandLine command("Text of ids.", "tokenizer decode");
  std::string name;
  std::vector<std::string> words;
  bool skip_special = false;
  command.option("tokenizer", name, "bytes, or a folder or file with a tokenizer.json").required();
  command.option("ids", words, "token ids; - reads them from standard input").required();
  command.flag("--skip-special", skip_special, "leave special tokens out");
  if (!command.parse(args)) return 0;
  const Tokenizer tokenizer = Tokenizer::open(name);
  if (words.size() == 1 && words[0] == "-") {
    std::string text = read_input("-");
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r' || c == ','; }, ' ');
    words = split(text, ' ');
  }
  std::vector<int32_t> ids;
  for (const std::string& word : words) {
    int64_t id = 0;
    if (word.empty()) continue;
    if (!parse_int(word, id) || id < 0 || id > INT32_MAX)
      fail(Exit::kUsage, "tokenizer decode: '{}' is no token id", printable(word));
    ids.push_back(static_cast<int32_t>(id));
  }
  std::string text = tokenizer.decode(ids, skip_special);
  if (is_terminal(stdout)) text = displayed(text, Breaks::kKeep);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

int chat(const std::vector<std::string>& args) {
  CommandLine command("Conversations under a chat template: JSON lines with messages in, their spans of text out.",
                      "tokenizer chat");
  std::string name, path, key = "messages";
  bool generation = false, no_thinking = false;
  command.option("file", path, "JSON lines, or - for standard input").required();
  command.option("--template", name, "chatml, llama3, qwen3").required().one_of({"chatml", "llama3", "qwen3"});
  command.option("--messages-key", key, "column of the conversation").show_default();
  command.flag("--generation-prompt", generation, "end with the header of an assistant turn");
  command.flag("--no-thinking", no_thinking, "qwen3: with an empty <think> block behind that header");
  if (!command.parse(args)) return 0;
  const ChatTemplate chat = chat_template_named(name);
  const std::string text = read_input(path);
  int64_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const Json messages = member(parse_json(line, where), key, where);
    std::vector<Turn> turns;
    if (!messages.is_array()) fail(Exit::kInput, "{}: {} is {}, expected a list", where, key, messages.type_name());
    for (const Json& message : messages) {
      const auto part = [&](const char* field) {
        const Json& value = member(message, field, where);
        if (!value.is_string()) fail(Exit::kInput, "{}: {} is {}, expected text", where, field, value.type_name());
        return value.get<std::string>();
      };
      turns.push_back({part("role"), part("content")});
    }
    const auto spans = in_context(
        where, [&] { return render_chat(chat, turns, {.generation_prompt = generation, .thinking = !no_thinking}); });
    Json out = Json::array();
    for (const ChatSpan& span : spans) out.push_back({{"text", span.text}, {"learned", span.learned}});
    fmt::print("{}\n", Json{{"spans", std::move(out)}}.dump(-1, ' ', is_terminal(stdout)));
  }
  return 0;
}

}  // namespace

int tokenizer_verb(const std::vector<std::string>& args) {
  struct Task {
    const char* name;
    const char* summary;
    int (*run)(const std::vector<std::string>& args);
  };
  static constexpr Task kTasks[] = {
      {"train", "learn a byte-level BPE from documents", tokenizer_train},
      {"bytes", "write the bytes tokenizer as tokenizer.json", tokenizer_bytes},
      {"encode", "ids of a text", encode},
      {"decode", "text of ids", decode},
      {"chat", "conversations under a chat template", chat},
  };
  std::vector<std::string> names;
  for (const Task& task : kTasks) {
    if (!args.empty() && args[0] == task.name) return task.run({args.begin() + 1, args.end()});
    names.emplace_back(task.name);
  }
  if (!args.empty() && args[0] != "--help" && args[0] != "-h")
    fail(Exit::kUsage, "tokenizer: {} is no task, expected {}", printable(args[0]), join(names, ", "));
  fmt::print("usage: mantissa tokenizer TASK [arguments]     mantissa tokenizer TASK --help\n\n");
  for (const Task& task : kTasks) fmt::print("  {:<10} {}\n", task.name, task.summary);
  return args.empty() ? static_cast<int>(Exit::kUsage) : 0;
}

}  // namespace mantissa
