// mantissa eval MODEL FILE...: loss, perplexity and bits per byte of a model over text.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/flags.h"
#include "app/model_source.h"
#include "app/say.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "base/units.h"
#include "data/encode.h"
#include "model/hf/export.h"
#include "train/config.h"
#include "train/evaluate.h"
#include "train/sinks/run_log.h"

namespace mantissa {
namespace {

constexpr int64_t kDefaultContext = 1024;

// Hands on the fields with these keys and leaves the others out.
class ChosenFields final : public config::Fields {
 public:
  ChosenFields(config::Fields& to, std::vector<std::string_view> keys) : to_(to), keys_(std::move(keys)) {}

  void text(std::string_view key, std::string& value, std::string_view help) override {
    if (chosen(key)) to_.text(key, value, help);
  }
  void choice(std::string_view key, std::string& value, std::vector<std::string> allowed, std::string_view help,
              std::string_view note) override {
    if (chosen(key)) to_.choice(key, value, std::move(allowed), help, note);
  }
  void number(std::string_view key, double& value, std::string_view help, config::Range range) override {
    if (chosen(key)) to_.number(key, value, help, range);
  }
  void integer(std::string_view key, int64_t& value, std::string_view help, config::Range range) override {
    if (chosen(key)) to_.integer(key, value, help, range);
  }
  void boolean(std::string_view key, bool& value, std::string_view help) override {
    if (chosen(key)) to_.boolean(key, value, help);
  }
  void numbers(std::string_view key, std::vector<double>& value, std::string_view help) override {
    if (chosen(key)) to_.numbers(key, value, help);
  }
  void integers(std::string_view key, std::vector<int64_t>& value, std::string_view help) override {
    if (chosen(key)) to_.integers(key, value, help);
  }
  void texts(std::string_view key, std::vector<std::string>& value, std::string_view help) override {
    if (chosen(key)) to_.texts(key, value, help);
  }
  void unavailable(std::string_view key, std::string_view message) override {
    if (chosen(key)) to_.unavailable(key, message);
  }
  void section(std::string_view key, const std::function<void(Fields&)>& body) override {
    if (chosen(key)) to_.section(key, body);
  }
  void list(std::string_view key, size_t& size, const std::function<void(Fields&, size_t)>& item,
            std::string_view help) override {
    if (chosen(key)) to_.list(key, size, item, help);
  }

 private:
  bool chosen(std::string_view key) const { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); }

  config::Fields& to_;
  std::vector<std::string_view> keys_;
};

struct EvalFlags {
  ModelSource model;
  std::vector<std::string> files;
  DataConfig data;
  int64_t context = 0, stride = 0;
  std::string bos = "auto";
  bool eos = false, json = false;
  int64_t trained = 0;  // tokens of the rows that the run trained on; 0: MODEL is no run
};

void add_flags_to(CommandLine& command, EvalFlags& flags) {
  flags.model.add_flags(command);
  command.option("files", flags.files, "files, folders or patterns of text; default: the validation data of a run");
  command
      .option("--context", flags.context,
              "tokens of a window; default: the rows of a run, else 1024, at most the model's positions")
      .within(1, 1 << 24);
  command.option("--stride", flags.stride, "tokens between windows; default: the context").within(1, 1 << 24);
  command.option("--bos", flags.bos, "before each document: auto (what the tokenizer puts there), none, or a token")
      .show_default();
  command.flag("--eos", flags.eos, "predict the EOS token behind each document too");
  command.flag("--json", flags.json, "one JSON object");
  command.fields([&flags](config::Fields& f) {
    ChosenFields chosen(f, {"split", "format", "document_separator", "text_key", "prompt_key", "response_key",
                            "messages_key", "chat_template", "system_prompt", "prompt_suffix", "dictd_text",
                            "max_documents", "min_document_bytes", "eos_token"});
    flags.data.describe(chosen);
  });
}

bool is_run(const std::string& path) {
  return exists(join_path(path, "run.json")) && exists(join_path(path, "config.yaml"));
}

// The config that the run of this folder, which has this model folder, was trained with.
TrainConfig config_of_run(const std::string& folder, const std::string& model) {
  TrainConfig config;
  config::Source::from_file(join_path(folder, "config.yaml"), {}).read([&config](config::Fields& f) {
    config.describe(f);
  });
  // The run's own model names the same EOS where the one that it began with is gone.
  if (!config.model_init.empty() && !exists(config.model_init)) config.model_init = model;
  config.resolve();
  return config;
}

// How the run read its text, for what the command line does not say.
void take_defaults(const TrainConfig& run, EvalFlags& flags) {
  const DataConfig& d = run.data;
  flags.trained = flags.context = d.sequence_length;
  flags.bos = d.add_special_tokens ? "auto" : "none";
  flags.data.document_separator = d.document_separator;
  flags.data.text_key = d.text_key;
  flags.data.prompt_key = d.prompt_key, flags.data.response_key = d.response_key;
  flags.data.messages_key = d.messages_key;
  flags.data.chat_template = d.chat_template, flags.data.system_prompt = d.system_prompt;
  flags.data.prompt_suffix = d.prompt_suffix;
  flags.data.dictd_text = d.dictd_text;
  flags.data.min_document_bytes = d.min_document_bytes;
  flags.data.eos_token = d.eos_token;
}

void choose_windows(EvalFlags& flags, const ModelConfig& model) {
  if (flags.context == 0) flags.context = std::min(kDefaultContext, model.max_position_embeddings);
  if (flags.trained > 0 && flags.context > flags.trained)
    fmt::print(stderr, "warning: eval: --context {} is longer than the {} tokens of the rows that the run trained on\n",
               flags.context, flags.trained);
  if (flags.stride == 0) flags.stride = flags.context;
  if (flags.context > model.max_position_embeddings)
    fail(Exit::kUsage, "eval: --context {} exceeds the model's {} positions (max_position_embeddings)", flags.context,
         model.max_position_embeddings);
  if (flags.stride > flags.context)
    fail(Exit::kUsage, "eval: --stride {} exceeds the context of {}: tokens between windows would be left out",
         flags.stride, flags.context);
}

// The token of --bos TOKEN; -1: none is added.
int32_t given_bos(const EvalFlags& flags, const Tokenizer& tokenizer) {
  if (flags.bos == "auto" || flags.bos == "none") return -1;
  const int32_t id = tokenizer.find(flags.bos);
  if (id < 0) fail(Exit::kUsage, "eval: --bos: '{}' is no token of {}", printable(flags.bos), tokenizer.name());
  return id;
}

// What stands before each document, for people.
std::string bos_text(const EvalFlags& flags, const Tokenizer& tokenizer) {
  if (flags.bos != "auto") return flags.bos;
  Tokenizer::Encoder encoder(tokenizer);
  std::vector<int32_t> plain, whole;
  encoder.encode("a", SpecialTokens::kLeaveOut, plain);
  encoder.encode("a", SpecialTokens::kAdd, whole);
  std::string text;
  for (auto id = whole.begin(); id != std::search(whole.begin(), whole.end(), plain.begin(), plain.end()); ++id)
    text += tokenizer.bytes_of(*id);
  return text.empty() ? "none" : text;
}

// Reads, encodes and evaluates every document.
EncodeCounts evaluate_files(const EvalFlags& flags, const Tokenizer& tokenizer, TextEvaluator& evaluator,
                            Console& progress) {
  const DocumentEncoder documents(flags.data, tokenizer);
  Tokenizer::Encoder encoder(tokenizer);
  const int32_t bos = given_bos(flags, tokenizer);
  EncodeCounts counts;
  EncodedDocument document;
  Record record;
  for (const std::string& path : flags.files) {
    const Source source = find_source(path, flags.data.split, flags.data);
    if (source.tokens) fail(Exit::kUsage, "{}: holds tokens ({}); eval reads text", path, source.format);
    const std::unique_ptr<RecordReader> reader = open_records(source, documents.columns(), flags.data);
    const bool all = flags.data.max_documents == 0;
    int64_t batches = -1;
    while ((all || counts.documents < flags.data.max_documents) && reader->next(record)) {
      if (stop_requested()) fail(Exit::kInterrupted, "eval: stopped after {} documents", counts.documents);
      if (!documents.encode(encoder, record, document, counts)) continue;
      if (bos >= 0 && (document.ids.empty() || document.ids.front() != bos)) {
        document.ids.insert(document.ids.begin(), bos);
        if (!document.learned.empty()) document.learned.insert(document.learned.begin(), 0);
      }
      evaluator.add(document);
      const TextLoss& r = evaluator.so_far();
      if (r.batches == batches) continue;
      batches = r.batches;
      progress.status(fmt::format("{}  {} · {} documents · {} tokens", path, percent_text(reader->progress()),
                                  grouped(r.documents), grouped(r.tokens)));
    }
  }
  return counts;
}

// The piece of a document that lies in [begin, end) of a row: what the row's labels name is learned, no more.
EncodedDocument document_of(const Batch& row, size_t begin, size_t end) {
  EncodedDocument document;
  document.ids.assign(row.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                      row.ids.begin() + static_cast<std::ptrdiff_t>(end));
  document.learned.assign(document.ids.size(), 0);
  for (size_t i = begin; i < end; ++i) {
    const int32_t label = row.labels[i];
    if (label == kIgnoredLabel) continue;
    if (i + 1 == end) document.ids.push_back(label), document.learned.push_back(0);  // lies in the next row
    if (document.ids[i + 1 - begin] != label)
      fail(Exit::kInput, "validation rows: a label is {}, the token behind it {}; eval predicts the next token", label,
           document.ids[i + 1 - begin]);
    document.learned[i + 1 - begin] = 1;
  }
  return document;
}

// The rows that the run itself evaluates, as it laid them.
void evaluate_rows(const Dataset& data, TextEvaluator& evaluator, Console& progress) {
  Batch row;
  const int64_t rows = data.rows(Split::kValidation);
  for (int64_t i = 0; i < rows; ++i) {
    if (stop_requested()) fail(Exit::kInterrupted, "eval: stopped after {} of {} rows", i, rows);
    data.batch(Split::kValidation, i, 1, row);
    for (size_t s = 0; s + 1 < row.segments.size(); ++s) {
      const auto begin = static_cast<size_t>(row.segments[s]), end = static_cast<size_t>(row.segments[s + 1]);
      if (std::any_of(row.labels.begin() + static_cast<std::ptrdiff_t>(begin),
                      row.labels.begin() + static_cast<std::ptrdiff_t>(end),
                      [](int32_t label) { return label != kIgnoredLabel; }))
        evaluator.add(document_of(row, begin, end));
    }
    if (i % 64 == 0) progress.status(fmt::format("validation row {} of {}", i + 1, rows));
  }
}

// Loads the run's data and says where it is not what the run was trained on.
Dataset data_of_run(const TrainConfig& run, const std::string& folder) {
  Dataset data = Dataset::load(run.data, static_cast<uint64_t>(run.run.seed));
  if (data.rows(Split::kValidation) == 0)
    fail(Exit::kUsage, "eval: {} was trained without validation data; give files", folder);
  const Json info = read_json(join_path(folder, "run.json"));
  const Json& files = member(member(info, "data", "run.json"), "files", "run.json");
  const std::vector<SourceFile>& now = data.report().files;
  bool same = files.is_array() && files.size() == now.size();
  for (size_t i = 0; same && i < now.size(); ++i)
    same = files[i].is_object() && files[i].contains("sha256") && files[i]["sha256"] == now[i].sha256;
  if (!same)
    fmt::print(stderr, "warning: eval: {}: the data is not what the run was trained on; validation rows may differ\n",
               folder);
  return data;
}

void print_json(const EvalFlags& flags, const Tokenizer& tokenizer, const std::string& folder, bool full,
                const ChosenDevice& device, const TextLoss& r, double seconds) {
  const Json json = {{"model", folder},
                     {"files", flags.files},
                     {"loss", finite_or_null(r.per_token())},
                     {"perplexity", finite_or_null(r.perplexity())},
                     {"bits_per_byte", finite_or_null(r.bits_per_byte())},
                     {"tokens", r.tokens},
                     {"bytes", r.bytes},
                     {"documents", r.documents},
                     {"windows", r.windows},
                     {"context", flags.context},
                     {"stride", flags.stride},
                     {"bos", bos_text(flags, tokenizer)},
                     {"eos", flags.data.append_eos},
                     {"dtype", full ? "fp32" : "bf16"},
                     {"device", device.name},
                     {"tokenizer", tokenizer.name()},
                     {"loss_on", flags.data.fine_tuning() ? "response" : "text"},
                     {"seconds", seconds}};
  fmt::print("{}\n", json.dump(2, ' ', is_terminal(stdout), Json::error_handler_t::replace));
}

void print_text(const EvalFlags& flags, const Tokenizer& tokenizer, const std::string& folder, bool full,
                const ChosenDevice& device, const ModelConfig& model, const TextLoss& r, const EncodeCounts& counts,
                double seconds) {
  say("device    {}\n", device.text);
  say("model     {} · {} · {} weights, products with FP32 sums · tokenizer {}\n", folder, model.arch,
      full ? "FP32" : "BF16", tokenizer.name());
  if (flags.trained > 0)
    say("run       {} · trained on rows of {} · documents and turns read as its config.yaml says\n", flags.model.path,
        flags.trained);
  say("windows   context {} · stride {} · BOS {} · EOS {} · {} windows in {} batches\n", flags.context, flags.stride,
      bos_text(flags, tokenizer), flags.data.append_eos ? "predicted" : "left out", grouped(r.windows),
      grouped(r.batches));
  say("text      {} documents · {} tokens predicted{} · {} bytes · {} tok/s\n", grouped(r.documents), grouped(r.tokens),
      flags.data.fine_tuning() ? " (responses alone)" : "", grouped(r.bytes),
      grouped(static_cast<int64_t>(static_cast<double>(r.tokens) / std::max(seconds, 1e-9))));
  if (const int64_t left = counts.empty + counts.short_ones + counts.without_response + counts.truncated; left > 0)
    say("          {} empty, {} short, {} whose prompt fills the context; {} cut by {} tokens\n", grouped(counts.empty),
        grouped(counts.short_ones), grouped(counts.without_response), grouped(counts.truncated),
        grouped(counts.truncated_tokens));
  say("loss      {:.4f} nats a token · perplexity {:.4f} · {:.4f} bits per byte\n", r.per_token(), r.perplexity(),
      r.bits_per_byte());
}

}  // namespace

int eval_verb(const std::vector<std::string>& args) {
  const auto parse = [&args](EvalFlags& flags) {
    CommandLine command("Loss, perplexity and bits per byte of a model over text.", "eval");
    add_flags_to(command, flags);
    return command.parse(args);
  };
  EvalFlags flags;
  if (!parse(flags)) return 0;
  const ModelFolder source = flags.model.open();
  const std::string& folder = source.path();
  TrainConfig run;
  if (const std::string path = run_of(flags.model.path); is_run(path)) {
    run = config_of_run(path, folder);
    flags = {};
    take_defaults(run, flags);
    parse(flags);
  } else if (flags.files.empty()) {
    fail(Exit::kUsage, "eval: no files; a run alone has validation data of its own, {} is a model folder", path);
  }
  const bool own_data = flags.files.empty();
  const ModelConfig model = read_hf_config(folder);
  const Tokenizer tokenizer = flags.model.open_tokenizer(folder, model);
  choose_windows(flags, model);
  flags.data.tokenizer = tokenizer.name();
  flags.data.model_folder = folder;
  flags.data.add_special_tokens = flags.bos == "auto";
  flags.data.append_eos = flags.eos || flags.data.fine_tuning();
  // A window reads all but the last token of an example.
  flags.data.sequence_length = flags.context + 1;
  given_bos(flags, tokenizer);  // before the weights are read
  std::optional<Dataset> data;
  if (own_data) data = data_of_run(run, run_of(flags.model.path));
  if (own_data) flags.files = {fmt::format("validation data of {}", flags.model.path)};

  const bool full = flags.model.full_precision(folder);
  PrecisionConfig precision;
  precision.recipe = full ? "fp32" : "bf16";
  precision.weights = full ? "fp32" : "bf16";
  const ChosenDevice device = flags.model.open_device();
  const int64_t tokens = evaluation_tokens(flags.context);
  Engine engine(model, precision,
                {.tokens = tokens,
                 .sequence_length = flags.context,
                 .recompute = Recompute::kBlock,
                 .training = false,
                 .device = device.gpu.get(),
                 .gpu = device.gpu != nullptr,
                 .max_segments = evaluation_segments(flags.context)});
  check_memory(engine.plan().total(), "eval", device.gpu.get());
  engine.build();
  engine.load(folder);

  catch_stop_signals();
  Console progress(!is_terminal(stderr), stderr);
  TextEvaluator evaluator(engine, tokenizer, flags.context, flags.stride,
                          device.gpu ? evaluation_segments(flags.context) : INT64_MAX);
  const auto begin = std::chrono::steady_clock::now();
  EncodeCounts counts;
  if (data)
    evaluate_rows(*data, evaluator, progress);
  else
    counts = evaluate_files(flags, tokenizer, evaluator, progress);
  const TextLoss& result = evaluator.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (result.tokens == 0)
    fail(Exit::kInput, "{}: no token to predict in {} documents", join(flags.files, ", "), result.documents);
  const std::string shown = names_checkpoint(flags.model.path) ? flags.model.path : folder;
  if (flags.json)
    print_json(flags, tokenizer, shown, full, device, result, seconds);
  else
    print_text(flags, tokenizer, shown, full, device, model, result, counts, seconds);
  return 0;
}

}  // namespace mantissa
