// mantissa prepare: data to packed rows on the disk (docs/prepare.md).
#include "app/say.h"
#include "data/prepare.h"

#include "app/flags.h"
#include "app/prepare_preview.h"
#include "app/read_progress.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "base/units.h"
#include "train/config.h"

namespace mantissa {
namespace {

constexpr int64_t kPreviewDocuments = 2000;  // that a preview reads at most

struct PrepareFlags {
  std::string config, model;
  int64_t preview = 0, shard_mib = 64;
  int64_t seed = 42, zstd = 0;
  std::string out;
};

// The flags of `prepare` and every key of `data` with its present value as default.
bool parse(const std::vector<std::string>& args, PrepareFlags& flags, DataConfig& data) {
  CommandLine command(
      "Text or files of tokens to shards of packed rows: OUT/train and OUT/validation. Every key of the config's "
      "section "
      "data is a flag; CONFIG gives the others.",
      "prepare");
  command.option("config", flags.config, "YAML file whose section data (and run.seed, model.init) is taken");
  command.option("--out", flags.out, "folder to write, which must not be there");
  command.option("--preview", flags.preview, "print the first N rows and write nothing").within(1, 1000);
  command.option("--model", flags.model, "Hugging Face folder whose config.json names the EOS");
  command.option("--seed", flags.seed, "draws split and order, as run.seed").not_negative();
  command.option("--shard-mib", flags.shard_mib, "largest shard, MiB").within(1, 4000);
  command.option("--zstd", flags.zstd, "compress the shards at this level; 0: not, as training maps them")
      .within(0, 19);
  command.fields([&data](config::Fields& f) { data.describe(f); });
  return command.parse(args);
}

// The section data of the config file, its seed and its model.
void take_config(const std::vector<std::string>& overrides, PrepareFlags& flags, DataConfig& data) {
  TrainConfig config;
  config::Source::from_file(flags.config, overrides).read([&config](config::Fields& f) { config.describe(f); });
  data = config.data;
  flags.seed = config.run.seed;
  flags.model = config.model_init;
}

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes / 1e6); }

// Examples of fine-tuning are cut before they come into rows: what was cut of them stands in the lines `left out`.
void print_split(Console& console, const char* name, const SplitReport& split, int64_t sequence_length,
                 bool fine_tuning) {
  if (split.rows == 0) return;
  const double fill = 1 - static_cast<double>(split.padding) / static_cast<double>(split.tokens);
  const std::string documents =
      fine_tuning ? grouped(split.documents) + " examples"
                  : fmt::format("{} documents, {} of them cut", grouped(split.documents), grouped(split.cut_documents));
  console.line(fmt::format("{:<10} {} rows of {} · {} · {} tokens · {} filled · {} labels", name, grouped(split.rows),
                           grouped(sequence_length), documents, grouped(split.tokens - split.padding),
                           percent_text(fill, 2), grouped(split.labels)));
}

void print_report(Console& console, const PrepareReport& report, const std::string& out, bool fine_tuning) {
  for (const std::string& line : report.leftovers) console.line(fmt::format("{:<10} {}", "leftover", line));
  const DataReport& d = report.data;
  const auto text = static_cast<double>(d.counts.text_bytes), tokens = static_cast<double>(d.counts.tokens);
  std::string read = fmt::format("{:<10} {} · {} {}", "read", d.format, grouped(d.counts.documents),
                                 fine_tuning ? "examples" : "documents");
  if (text > 0) read += fmt::format(" · {} of text", megabytes(text));
  console.line(read + fmt::format(" · {} tokens{}", grouped(d.counts.tokens),
                                  text > 0 ? fmt::format(" · {:.2f} bytes a token", text / tokens) : ""));
  console.line(fmt::format("{:<10} {} · vocabulary {} · EOS {}", "tokenizer",
                           d.tokenizer.empty() ? "not known" : d.tokenizer, grouped(report.vocab_size),
                           report.eos >= 0 ? fmt::format("{} ({})", report.eos, d.eos_origin) : "none"));
  print_split(console, "train", d.train, report.sequence_length, fine_tuning);
  print_split(console, "validation", d.validation, report.sequence_length, fine_tuning);
  for (const std::string& line : left_out(d)) console.line(fmt::format("{:<10} {}", "left out", line));
  for (const std::string& note : d.notes) console.line(fmt::format("{:<10} {}", "note", note));
  const double seconds = report.read_seconds + report.write_seconds;
  console.line(fmt::format("{:<10} {} · {} · {:.2f} s: {:.2f} read and encoded, {:.2f} written{}", "wrote", out,
                           megabytes(static_cast<double>(report.bytes_written)), seconds, report.read_seconds,
                           report.write_seconds,
                           text > 0 ? fmt::format(" · {:.1f} MB of text a second", text / 1e6 / seconds) : ""));
  console.line(fmt::format("{:<10} --data.train={} --data.split=train{} --data.sequence_length={}", "to train", out,
                           d.validation.rows > 0 ? " --data.validation_split=validation" : "", report.sequence_length));
}

int preview(const DataConfig& config, const PrepareFlags& flags) {
  DataConfig few = config;
  if (few.max_documents == 0 || few.max_documents > kPreviewDocuments) few.max_documents = kPreviewDocuments;
  few.validation.clear(), few.validation_split.clear();
  few.validation_fraction = 0;
  const Dataset data = Dataset::load(few, static_cast<uint64_t>(flags.seed), {.repack = true, .preview = true});
  const DataReport& d = data.report();
  say("of the first {} documents, {} rows of {} tokens ({} packing) · tokenizer {} · EOS {}\n",
      grouped(d.train.documents), grouped(d.train.rows), grouped(data.sequence_length()), few.packing,
      d.tokenizer.empty() ? "not known" : d.tokenizer,
      data.eos() >= 0 ? fmt::format("{} ({})", data.eos(), d.eos_origin) : "none");
  fmt::print("{}", preview_rows(data, flags.preview));
  return 0;
}

}  // namespace

int prepare_verb(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  const std::vector<std::string> overrides = take_overrides(args);
  PrepareFlags flags;
  DataConfig data;
  if (!parse(args, flags, data)) return 0;
  if (!flags.config.empty()) {
    // Once more, so that what is not given has the config's value.
    take_config(overrides, flags, data);
    parse(args, flags, data);
  } else if (!overrides.empty()) {
    fail(Exit::kUsage, "--{}: overrides a config, but none is given; the keys of data are flags of their own",
         printable(overrides.front()));
  }
  data.model_folder = flags.model;
  if (flags.preview == 0 && flags.out.empty())
    fail(Exit::kUsage, "prepare: --out is required, a folder to write; or --preview N");
  catch_stop_signals();
  if (flags.preview > 0) return preview(data, flags);

  Console console;
  ReadProgress progress(console);
  const PrepareReport report =
      prepare(data, {.out = flags.out,
                     .seed = static_cast<uint64_t>(flags.seed),
                     .shard_bytes = static_cast<uint64_t>(flags.shard_mib) << 20,
                     .zstd_level = static_cast<int>(flags.zstd),
                     .reading = progress.hook(),
                     .writing = [&](int64_t rows, int64_t of) { progress.writing(rows, of); }});
  console.end_status();
  print_report(console, report, flags.out, data.fine_tuning());
  console.flush();
  return 0;
}

}  // namespace mantissa
