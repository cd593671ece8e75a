// mantissa inspect PATH: what a model folder, a safetensors file, a tokenizer, MDS shards or a run folder holds.
#include <nlohmann/json.hpp>

#include "app/flags.h"
#include "app/inspect_run.h"
#include "app/say.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "base/units.h"
#include "data/mds/prepared.h"
#include "data/mds/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "model/arch/arch.h"
#include "model/flops.h"
#include "model/hf/checkpoint.h"
#include "model/hf/folder.h"
#include "model/hf/tensors.h"
#include "report/run_reader.h"
#include "report/table.h"
#include "train/checkpoint_model.h"

namespace mantissa {
namespace {

void inspect_tensors(const safetensors::Reader& file) {
  int64_t elements = 0, bytes = 0;
  for (const auto& [name, view] : file.tensors()) {
    say("  {:<60} {:<8} {}\n", printable(name), view.dtype, shape_text(view.shape));
    elements += view.elements();
    bytes += static_cast<int64_t>(view.bytes.size());
  }
  for (const auto& [key, value] : file.metadata()) say("  metadata {}: {}\n", printable(key), printable(value));
  say("{}: {} tensors · {} elements · {} · structure checked\n", file.name(), file.tensors().size(), grouped(elements),
      bytes_text(static_cast<double>(bytes)));
}

void inspect_tokenizer(const std::string& path) {
  const Tokenizer tokenizer = Tokenizer::open(path);
  const auto name = [&tokenizer](int32_t id) {
    return id < 0 ? std::string("none") : fmt::format("{} {}", id, printable(tokenizer.bytes_of(id)));
  };
  int64_t known = 0, special = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    known += tokenizer.known(id), special += tokenizer.special(id);
  say("tokenizer {} tokens, ids below {} · {} special · bos {} · eos {} · pad {}\n", grouped(known),
      tokenizer.vocab_size(), special, name(tokenizer.bos()), name(tokenizer.eos()), name(tokenizer.pad()));
  if (const std::string unspelled = tokenizer.unspelled(); !unspelled.empty()) say("          {}\n", unspelled);
}

void inspect_shards(const std::string& path) {
  const auto folder = mds::Folder::open(path);
  say("  {:<24} {:<24} {}\n", "column", "encoding", "bytes a value");
  for (const mds::Column& column : folder.columns())
    say("  {:<24} {:<24} {}\n", printable(column.name), printable(column.encoding),
        column.size == 0 ? "any" : std::to_string(column.size));
  mds::Prepared prepared;
  if (mds::read_prepared(path, prepared))
    say("prepared  {} rows of {} tokens · {} documents · tokenizer {} · vocabulary {} · {}\n", grouped(prepared.rows),
        prepared.sequence_length, grouped(prepared.documents), prepared.tokenizer, prepared.vocab_size,
        prepared.packing);
  say("{}: {} MDS shards · {} samples · {}\n", path, folder.shards().size(), grouped(folder.samples()),
      bytes_text(static_cast<double>(folder.raw_bytes())));
}

void inspect_model(const std::string& folder) {
  const ModelConfig m = read_hf_config(folder);
  say("{}: {} · {} layers · hidden {} · intermediate {} · {}/{} heads of {} · vocabulary {} · {} embeddings · {} "
      "parameters\n",
      folder, m.arch, m.num_hidden_layers, m.hidden_size, m.intermediate_size, m.num_attention_heads,
      m.num_key_value_heads, m.head_dim, m.vocab_size, m.tie_word_embeddings ? "tied" : "untied",
      grouped(count_parameters(m)));
  if (find_arch(m.arch).traits.rope)
    say("rope      theta {} · {}{}\n", m.rope_theta, m.rope_scaling.type,
        m.rope_scaling.type == "default" ? "" : fmt::format(" factor {}", m.rope_scaling.factor));
  if (exists(join_path(folder, "tokenizer.json"))) inspect_tokenizer(folder);
  if (!hf::has_weights(folder)) {
    say("{}: no weights in it\n", folder);
    return;
  }
  // read_hf_config has matched names and shapes.
  const auto tensors = hf::Tensors::open(folder);
  for (const safetensors::Reader& file : tensors.files()) inspect_tensors(file);
  say("every tensor that the config names is there, with its shape, and no other\n");
}

void inspect_checkpoint(const Checkpoint& checkpoint) {
  for (const CheckpointPiece& piece : checkpoint.manifest().pieces)
    say("  {:<60} {:<8} {}\n", printable(piece.tensor), piece.dtype, shape_text(piece.shape));
  const Json& run = checkpoint.run();
  const auto text = [&run](const char* key) {
    return !run.contains(key) ? "?" : run[key].is_string() ? printable(run[key].get<std::string>()) : run[key].dump();
  };
  say("{}: step {} of {} · {} pieces of tensors in {} files · {}\n", checkpoint.folder(), checkpoint.step(),
      text("steps"), checkpoint.manifest().pieces.size(), checkpoint.manifest().files.size(),
      bytes_text(static_cast<double>(checkpoint.bytes())));
  say("saved {} by version {} on {} · micro-batches of {} rows · started {} · resumed behind {}\n", text("saved"),
      text("version"), text("device"), text("micro_batch"), text("started"), text("resumed"));
}

// A terminal gets ASCII alone: JSON writes every other character as \uNNNN.
void print_json(const Json& json) { fmt::print("{}\n", json.dump(2, ' ', is_terminal(stdout))); }

}  // namespace

int inspect_verb(const std::vector<std::string>& args) {
  CommandLine command(
      "What a model folder, a safetensors file, a tokenizer, MDS shards, a run, its checkpoint or a comparison folder "
      "holds.",
      "inspect");
  std::string path;
  bool as_json = false;
  command.option("path", path, "folder or file").required();
  command.flag("--json", as_json, "of a run or a comparison: its records as one JSON document");
  if (!command.parse(args)) return 0;
  const bool checkpoint =
      names_checkpoint(path) || (exists(join_path(path, Manifest::kName)) && !exists(join_path(path, "config.json")));
  if (checkpoint) {
    if (as_json) fail(Exit::kUsage, "inspect: --json: {} is a checkpoint; its {} is JSON", path, Manifest::kName);
    inspect_checkpoint(names_checkpoint(path) ? open_checkpoint(path) : Checkpoint::open(path));
    return 0;
  }
  if (!exists(path)) fail(Exit::kInput, "{}: not there", path);
  const bool comparison = exists(join_path(path, "compare.json")), run = exists(join_path(path, "run.json"));
  if (as_json && !comparison && !run)
    fail(Exit::kUsage, "inspect: --json: {} is no run and no comparison, the two that have records in JSON", path);
  if (!is_directory(path)) {
    if (path.ends_with(".json"))
      inspect_tokenizer(path);
    else
      inspect_tensors(safetensors::Reader::open(path));
  } else if (comparison) {
    const report::CompareResult result = report::read_compare(path);
    if (as_json)
      print_json(read_json(join_path(path, "compare.json")));
    else
      fmt::print("{}", report::render_compare_table(result, {}));
  } else if (run) {
    const report::Run read = report::read_run(path);
    as_json ? print_json(run_record(read)) : fmt::print("{}", run_page(read));
  } else if (exists(join_path(path, "config.json"))) {
    inspect_model(path);
  } else if (exists(join_path(path, "index.json"))) {
    inspect_shards(path);
  } else if (exists(join_path(path, "tokenizer.json"))) {
    inspect_tokenizer(path);
  } else {
    fail(Exit::kInput,
         "{}: no config.json (model), tokenizer.json, index.json (MDS shards), run.json (run) or compare.json "
         "(comparison) in it",
         path);
  }
  return 0;
}

}  // namespace mantissa
