// mantissa tokenizer train, mantissa tokenizer bytes: tokenizers written as Hugging Face reads them.
#include <chrono>

#include "app/flags.h"
#include "app/say.h"
#include "app/tokenizer_tasks.h"
#include "base/console.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "base/units.h"
#include "data/record.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_writer.h"
#include "data/tokenizer/word_counter.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct TrainFlags {
  std::vector<std::string> inputs, special = {"<|endoftext|>"};
  std::string out, pattern = "gpt2", bos, eos, pad;
  int64_t vocab_size = 0;
  bool nfc = false, add_bos = false;
  DataConfig data;
};

// Documents go to the counter in pieces of this size.
constexpr size_t kPieceBytes = size_t{32} << 20;

struct Counted {
  int64_t documents = 0, bytes = 0;
};

Counted count_words(const TrainFlags& flags, tokenizer::WordCounter& counter, Console& console) {
  Counted counted;
  const auto begin = Clock::now();
  std::vector<std::string> piece;
  size_t piece_bytes = 0;
  const auto flush = [&](double share) {
    counter.add(piece);
    piece.clear();
    piece_bytes = 0;
    throw_if_stopped("counting words");
    console.status(fmt::format("words     {} {} | {} documents | {} | {} different words | {}/s",
                               progress_bar(share, 20), percent_text(share), grouped(counted.documents),
                               bytes_text(static_cast<double>(counted.bytes)),
                               grouped(static_cast<int64_t>(counter.words().size())),
                               bytes_text(static_cast<double>(counted.bytes) / since(begin))));
  };
  for (size_t i = 0; i < flags.inputs.size(); ++i) {
    const Source source = find_source(flags.inputs[i], "", flags.data);
    if (source.tokens)
      fail(Exit::kUsage, "{}: holds tokens ({}), expected text to learn a tokenizer from", flags.inputs[i],
           source.format);
    const auto reader = open_records(source, {.columns = {flags.data.text_key}, .messages = ""}, flags.data);
    const auto share = [&] {
      return (static_cast<double>(i) + reader->progress()) / static_cast<double>(flags.inputs.size());
    };
    for (Record record; reader->next(record);) {
      const size_t bytes = record.texts[0].size();
      if (bytes == 0) continue;
      ++counted.documents;
      counted.bytes += static_cast<int64_t>(bytes);
      piece_bytes += bytes;
      piece.push_back(std::move(record.texts[0]));
      if (piece_bytes >= kPieceBytes) flush(share());
      if (flags.data.max_documents > 0 && counted.documents == flags.data.max_documents) {
        flush(1);
        return counted;
      }
    }
    flush(share());
  }
  if (counted.documents == 0) fail(Exit::kInput, "{}: no document with text", join(flags.inputs, ", "));
  return counted;
}

// Reads back what was written: each token at its id.
void check_written(const std::string& folder, const tokenizer::BpeModel& model) {
  const Tokenizer read = Tokenizer::open(folder);
  check(read.vocab_size() == static_cast<int64_t>(model.tokens.size()), "{}: read back {} tokens, wrote {}", folder,
        read.vocab_size(), model.tokens.size());
  for (size_t id = 0; id < model.tokens.size(); ++id)
    check(read.find(model.tokens[id]) == static_cast<int32_t>(id), "{}: token {} has another id when read back", folder,
          id);
}

}  // namespace

int tokenizer_train(const std::vector<std::string>& args) {
  TrainFlags flags;
  flags.data.tokenizer = "";  // documents are text, not bytes
  CommandLine command(
      "Learns a byte-level BPE tokenizer from documents and writes tokenizer.json and tokenizer_config.json.",
      "tokenizer train");
  command.option("--input", flags.inputs, "files or folders of documents, as data.train takes them").required();
  command.option("--vocab-size", flags.vocab_size, "tokens in all").required();
  command.option("--out", flags.out, "folder for the two files").required();
  command.option("--pattern", flags.pattern, "how text is cut into words: gpt2, llama3, qwen").show_default();
  command.flag("--nfc", flags.nfc, "normalise text to NFC first, as Qwen does");
  command.option("--special", flags.special, "special tokens, which take the first ids").show_default();
  command.option("--bos", flags.bos, "special token named as BOS");
  command.option("--eos", flags.eos, "special token named as EOS; the first special token by default");
  command.option("--pad", flags.pad, "special token named for padding");
  command.flag("--add-bos", flags.add_bos, "put BOS in front of every text, as Llama 3 does");
  command.option("--format", flags.data.format, "of the input, as data.format").show_default();
  command.option("--text-key", flags.data.text_key, "column of the text").show_default();
  command.option("--document-separator", flags.data.document_separator, "of text: blank-line, line, none")
      .show_default()
      .one_of({"blank-line", "line", "none"});
  command.option("--max-documents", flags.data.max_documents, "the first ones; 0 takes all").show_default();
  if (!command.parse(args)) return 0;

  tokenizer::WrittenTokenizer file;
  file.pattern = tokenizer::pattern_named(flags.pattern);
  file.nfc = flags.nfc;
  file.bos = flags.bos;
  file.pad = flags.pad;
  file.eos = flags.eos.empty() && !flags.special.empty() ? flags.special.front() : flags.eos;
  file.add_bos = flags.add_bos;
  if (file.add_bos && file.bos.empty()) fail(Exit::kUsage, "tokenizer train: --add-bos needs --bos");
  const tokenizer::BpeOptions options{flags.vocab_size, flags.special};
  // What the options alone get wrong shows before the documents are read.
  file.model = tokenizer::train_bpe({}, options);
  tokenizer_json(file);
  tokenizer_config_json(file);

  catch_stop_signals();
  Console console;
  const auto begin = Clock::now();
  tokenizer::WordCounter counter(file.pattern, file.nfc);
  const Counted counted = count_words(flags, counter, console);
  file.model = tokenizer::train_bpe(counter.words(), options, [&](int64_t tokens) {
    throw_if_stopped("merging pairs");
    const double share = static_cast<double>(tokens) / static_cast<double>(flags.vocab_size);
    if (console.interactive())
      console.status(
          fmt::format("merges    {} {} | {} tokens", progress_bar(share, 20), percent_text(share), grouped(tokens)));
  });
  console.end_status();
  tokenizer::write_tokenizer(flags.out, file);
  check_written(flags.out, file.model);
  const auto tokens = static_cast<int64_t>(file.model.tokens.size());
  if (tokens < flags.vocab_size)
    console.warn(
        fmt::format("the documents have pairs for {} tokens only, not {}", grouped(tokens), grouped(flags.vocab_size)));
  console.line(fmt::format(
      "done      {} documents · {} · {} different words · {} tokens ({} special) · {:.3f} bytes a "
      "token on these documents · {}",
      grouped(counted.documents), bytes_text(static_cast<double>(counted.bytes)),
      grouped(static_cast<int64_t>(counter.words().size())), grouped(tokens), file.model.special,
      static_cast<double>(counted.bytes) / static_cast<double>(file.model.corpus_tokens), duration_text(since(begin))));
  console.line(fmt::format("written   {}, read back", join_path(flags.out, "tokenizer.json")));
  console.flush();
  return 0;
}

int tokenizer_bytes(const std::vector<std::string>& args) {
  CommandLine command("Writes the bytes tokenizer (id = byte, no merges) as files that Hugging Face reads.",
                      "tokenizer bytes");
  std::string out;
  command.option("--out", out, "folder for tokenizer.json and tokenizer_config.json").required();
  if (!command.parse(args)) return 0;
  const tokenizer::WrittenTokenizer file = tokenizer::bytes_tokenizer_file();
  tokenizer::write_tokenizer(out, file);
  check_written(out, file.model);
  say("written   {}, read back\n", join_path(out, "tokenizer.json"));
  return 0;
}

}  // namespace mantissa
