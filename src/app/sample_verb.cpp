// mantissa sample MODEL: text out of a model, to stdout as it comes; what was done, to stderr.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "app/flags.h"
#include "app/model_source.h"
#include "app/say.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "data/chat.h"
#include "generation/text_generation.h"
#include "model/arch/arch.h"
#include "ops/cached_attention.h"

namespace mantissa {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{16} << 20;

struct SampleFlags {
  ModelSource model;
  std::string prompt, prompt_file, chat_template, system;
  bool has_prompt = false, chat = false, no_bos = false, no_think = false, ignore_eos = false;
  int64_t max_new_tokens = 128, num_samples = 1;
  SamplingSettings sampling;
  std::vector<std::string> stops;
};

std::string read_stdin() {
  if (::isatty(STDIN_FILENO) == 1)
    fail(Exit::kUsage, "sample: no prompt; give --prompt TEXT, --prompt-file FILE or text on stdin");
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
    text.append(buffer, n);
    if (text.size() > kMaxPromptBytes) fail(Exit::kInput, "stdin: more than {} bytes of prompt", kMaxPromptBytes);
  }
  if (std::ferror(stdin)) fail(Exit::kInput, "stdin: could not be read");
  return text;
}

std::string prompt_of(const SampleFlags& flags) {
  if (flags.has_prompt && !flags.prompt_file.empty())
    fail(Exit::kUsage, "sample: --prompt and --prompt-file exclude each other");
  if (flags.has_prompt) return flags.prompt;
  return flags.prompt_file.empty() ? read_stdin() : read_text(flags.prompt_file, kMaxPromptBytes);
}

// The template whose tokens the tokenizer has.
std::string template_of(const SampleFlags& flags, const Tokenizer& tokenizer, const ModelConfig& model) {
  const auto has = [&](ChatTemplate chat) {
    const auto tokens = chat_tokens(chat);
    return std::all_of(tokens.begin(), tokens.end(), [&](std::string_view t) { return tokenizer.find(t) >= 0; });
  };
  std::string name = flags.chat_template;
  if (name.empty()) name = has(ChatTemplate::kLlama3) ? "llama3" : model.arch == "qwen3" ? "qwen3" : "chatml";
  const ChatTemplate chat = chat_template_named(name);
  if (chat == ChatTemplate::kNone) fail(Exit::kUsage, "sample: --chat-template none leaves nothing for --chat");
  if (!has(chat))
    fail(Exit::kUsage, "sample: chat template {} writes tokens that {} does not have{}", name, tokenizer.name(),
         flags.chat_template.empty() ? "; --chat-template names another" : "");
  return name;
}

// Fills prompt and stops.
void make_request(const SampleFlags& flags, const Tokenizer& tokenizer, const ModelConfig& model,
                  const std::string& folder, GenerationRequest& request, std::string& chat_name) {
  const std::string text = prompt_of(flags);
  const std::vector<int32_t> ends = stop_tokens_of(folder);
  if (!flags.ignore_eos) {
    request.stop_tokens = ends;
    if (tokenizer.eos() >= 0) request.stop_tokens.push_back(tokenizer.eos());
  }
  if (flags.chat) {
    chat_name = template_of(flags, tokenizer, model);
    const ChatTemplate chat = chat_template_named(chat_name);
    request.prompt = chat_prompt_tokens(tokenizer, chat, flags.system, text, !flags.no_bos, !flags.no_think);
    if (!flags.ignore_eos) request.stop_tokens.push_back(tokenizer.find(chat_end(chat)));
  } else {
    if (!flags.system.empty() || !flags.chat_template.empty() || flags.no_think)
      fail(Exit::kUsage, "sample: --system, --chat-template and --no-think need --chat");
    request.prompt = prompt_tokens(tokenizer, text, !flags.no_bos, ends.empty() ? -1 : ends.front());
  }
  for (const std::string& stop : flags.stops) {
    const int32_t id = tokenizer.is_bytes() ? -1 : tokenizer.find(stop);
    if (id >= 0 && tokenizer.special(id))
      request.stop_tokens.push_back(id);
    else
      request.stop_texts.push_back(stop);
  }
}

// A terminal would obey the control characters of a model; elsewhere the text goes out byte by byte.
void write_piece(std::string_view text, bool terminal) {
  const std::string piece = terminal ? displayed(text, Breaks::kKeep) : std::string(text);
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
}

std::string rate(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? fmt::format("{:.1f} tok/s", static_cast<double>(tokens) / seconds) : "-";
}

void add_flags_to(CommandLine& command, SampleFlags& flags) {
  flags.model.add_flags(command);
  command.option("--prompt", flags.prompt, "text to go on from; without it and --prompt-file: stdin");
  command.option("--prompt-file", flags.prompt_file, "file with the prompt, taken byte by byte");
  command.option("--max-new-tokens", flags.max_new_tokens, "tokens drawn at most; fewer where the context ends")
      .within(1, 1 << 30)
      .show_default();
  command.fields([&flags](config::Fields& f) { flags.sampling.describe(f); });
  command.option("--num-samples", flags.num_samples, "generations of the prompt, with seed, seed + 1, ...")
      .within(1, 1 << 20)
      .show_default();
  command.option("--stop", flags.stops, "ends a generation: a special token, or a text, which is left out; repeatable")
      .one_each();
  command.flag("--ignore-eos", flags.ignore_eos, "go on behind the model's stop tokens");
  command.flag("--no-bos", flags.no_bos, "leave out what the tokenizer puts before a text");
  command.flag("--chat", flags.chat, "the prompt is a user's turn, answered as the assistant");
  command.option("--chat-template", flags.chat_template, "chatml, llama3, qwen3; default: by tokenizer and model");
  command.option("--system", flags.system, "system turn before the prompt");
  command.flag("--no-think", flags.no_think, "qwen3: an empty block of thoughts before the answer");
}

}  // namespace

int sample_verb(const std::vector<std::string>& args) {
  CommandLine command("Text out of a model, to stdout as it comes.", "sample");
  SampleFlags flags;
  add_flags_to(command, flags);
  if (!command.parse(args)) return 0;
  flags.has_prompt = command.given("--prompt");

  const ModelFolder source = flags.model.open();
  const std::string& folder = source.path();
  const ModelConfig model = read_hf_config(folder);
  const Tokenizer tokenizer = flags.model.open_tokenizer(folder, model);
  GenerationRequest request;
  std::string chat_name;
  make_request(flags, tokenizer, model, folder, request, chat_name);
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = std::min(model.max_position_embeddings, kCachedAttentionMaxTokens) - prompt;
  if (room < 1)
    fail(Exit::kUsage, "sample: the prompt has {} tokens, the model's context {} (max_position_embeddings)", prompt,
         model.max_position_embeddings);
  request.max_new_tokens = std::min(flags.max_new_tokens, room);
  if (request.max_new_tokens < flags.max_new_tokens)
    say(stderr, "note: {} new tokens at most, where the context of {} ends\n", request.max_new_tokens, prompt + room);

  const bool full = flags.model.full_precision(folder);
  const int64_t context = prompt + request.max_new_tokens;
  const ChosenDevice device = flags.model.open_device();
  Device* const gpu = device.gpu.get();
  ParamStore params(find_arch(model.arch).params(model), {.weights = full ? WeightMode::kF32 : WeightMode::kBF16,
                                                          .training = false,
                                                          .device = gpu,
                                                          .gpu = gpu != nullptr});
  check_memory(Arena::measure([&](Arena& a) { params.allocate(a); }).total() +
                   Generator::plan(model, params.compute_dtype(), context).total(),
               "sample", gpu);
  Arena arena;
  arena.build([&](Arena& a) { params.allocate(a); }, gpu);
  load_hf_weights(folder, model, params);
  Exec exec = gpu ? Exec(*gpu) : Exec();
  Generator generator(exec, model, params, context);

  const bool terminal = is_terminal(stdout);
  for (int64_t i = 0; i < flags.num_samples; ++i) {
    request.sampling = flags.sampling;
    request.sampling.seed += i;
    request.prompt_cached = i > 0;
    if (flags.num_samples > 1)
      fmt::print("{}--- sample {} of {}, seed {}\n", i ? "\n" : "", i + 1, flags.num_samples, request.sampling.seed);
    const Generation g =
        generate(generator, tokenizer, request, [terminal](std::string_view text) { write_piece(text, terminal); });
    fmt::print("\n");
    std::fflush(stdout);
    say(stderr, "prompt {} tokens{} · {} · {} new tokens · {} · ended by {}\n", prompt,
        request.prompt_cached ? " (kept)" : "", request.prompt_cached ? "-" : rate(g.prefilled, g.prefill_s), g.tokens,
        rate(g.tokens, g.decode_s), g.stop);
  }
  say(stderr, "{} · {} · {} weights, products with FP32 sums · tokenizer {}{}\n",
      names_checkpoint(flags.model.path) ? flags.model.path : folder, model.arch, full ? "FP32" : "BF16",
      tokenizer.name(), chat_name.empty() ? "" : " · chat template " + chat_name);
  say(stderr, "device {}\n", device.text);
  return 0;
}

}  // namespace mantissa
