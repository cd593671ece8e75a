#include "app/verify_model.h"

#include "app/say.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "base/units.h"
#include "data/tokenizer/tokenizer.h"
#include "model/arch/arch.h"
#include "model/hf/checkpoint.h"
#include "model/hf/export_config.h"
#include "model/hf/match.h"
#include "model/hf/values.h"

namespace mantissa {
namespace {

// Counts NaN and Inf of all floating-point tensors, prints those that have any, and refuses them.
template <class Tensors>
void verify_finite(const Tensors& tensors, const std::string& name) {
  int64_t elements = 0, others = 0, bad = 0;
  std::string first;
  for (const auto& [tensor, view] : tensors) {
    if (!hf::is_float(*view)) {
      ++others;
      continue;
    }
    elements += view->elements();
    const hf::NonFinite found = hf::count_nonfinite(*view);
    if (found.nan + found.inf == 0) continue;
    say("  {}: {} NaN, {} Inf of {} values\n", printable(tensor), grouped(found.nan), grouped(found.inf),
        grouped(view->elements()));
    if (bad++ == 0) first = tensor;
  }
  if (bad > 0)
    fail(Exit::kInput, "{}: {} tensors hold values that are not finite, the first is {}", name, bad, printable(first));
  verified("values", fmt::format("{} values, all finite{}", grouped(elements),
                                 others > 0 ? fmt::format(" ({} tensors of other dtypes)", others) : ""));
}

uint64_t data_bytes(const hf::Tensors& tensors) {
  uint64_t bytes = 0;
  for (const auto& [name, view] : tensors.all()) bytes += view->bytes.size();
  return bytes;
}

}  // namespace

void verified(std::string_view what, std::string_view found) { say("{:<10}{}\n", what, found); }

void verify_tensors(const std::string& path) {
  const auto file = safetensors::Reader::open(path);
  verified("structure",
           fmt::format("{} tensors, dtypes, shapes and places without hole or overlap", file.tensors().size()));
  std::map<std::string, const safetensors::View*> tensors;
  for (const auto& [name, view] : file.tensors()) tensors.emplace(name, &view);
  verify_finite(tensors, path);
  file.check_whole();
}

void verify_tokenizer(const std::string& path, int64_t vocab_size) {
  const Tokenizer tokenizer = Tokenizer::open(path);
  if (vocab_size > 0 && tokenizer.vocab_size() > vocab_size)
    fail(Exit::kInput, "{}: has ids up to {}, the model's vocabulary {}", path, tokenizer.vocab_size() - 1, vocab_size);
  verified("tokenizer", fmt::format("byte-level BPE, ids below {}{}", tokenizer.vocab_size(),
                                    vocab_size > 0 ? fmt::format(", vocabulary {}", vocab_size) : ""));
}

void verify_model(const std::string& folder) {
  const ModelConfig model = read_hf_config(folder);
  verified("config",
           fmt::format("{}, {} layers, hidden {}, vocabulary {}, {} embeddings", model.arch, model.num_hidden_layers,
                       model.hidden_size, model.vocab_size, model.tie_word_embeddings ? "tied" : "untied"));
  const auto tensors = hf::Tensors::open(folder);
  const uint64_t bytes = data_bytes(tensors);
  verified("files", tensors.sharded()
                        ? fmt::format("{} shards, each with what the index says and no link", tensors.files().size())
                        : std::string("one safetensors file"));
  if (tensors.declared_bytes() && *tensors.declared_bytes() != bytes)
    say("  note: the index says {} bytes of data, there are {}; no reader depends on it\n", *tensors.declared_bytes(),
        bytes);
  const std::vector<ParamSpec> specs = find_arch(model.arch).params(model);
  const size_t matched = hf::match_tensors(tensors, model, specs).size();
  verified("tensors", fmt::format("{} of {}: names and shapes as config.json asks, none missing, none too many",
                                  matched, bytes_text(static_cast<double>(bytes))));
  verify_finite(tensors.all(), tensors.name());
  tensors.check_whole();
  hf::check_token_ids(folder, model.vocab_size);
  if (exists(join_path(folder, "tokenizer.json")))
    verify_tokenizer(folder, model.vocab_size);
  else
    verified("tokenizer", "none in the folder");
}

}  // namespace mantissa
