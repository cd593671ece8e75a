// mantissa export RUN|FOLDER OUT: a Hugging Face folder from a finished run or from another folder.
#include "app/export_check.h"
#include "app/flags.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/units.h"
#include "model/arch/arch.h"
#include "model/hf/export.h"
#include "model/hf/tensors.h"
#include "train/checkpoint_model.h"

namespace mantissa {
namespace {

// F32 unless every tensor is BF16: F16 has bits that BF16 does not hold.
DType dtype_of(const std::string& folder) {
  const auto tensors = hf::Tensors::open(folder);
  for (const auto& [name, view] : tensors.all())
    if (view->dtype != "BF16") return DType::kF32;
  return DType::kBF16;
}

}  // namespace

int export_verb(const std::vector<std::string>& args) {
  CommandLine command(
      "Writes a Hugging Face folder that transformers loads, reads it again and compares logits before it says done.",
      "export");
  std::string source, out, dtype_name;
  double shard_gb = 5;
  command.option("source", source, "folder of a finished run, RUN@STEP, or a Hugging Face model folder").required();
  command.option("out", out, "folder to write; must not be there").required();
  command
      .option("--dtype", dtype_name, "of the tensors; default: fp32, or bf16 where every tensor of the source is BF16")
      .one_of({"fp32", "bf16"});
  command.option("--shard-gb", shard_gb, "10^9 bytes of tensors a file holds at most; more makes shards")
      .between(1e-6, 1e6)
      .show_default();
  if (!command.parse(args)) return 0;
  if (exists(out)) fail(Exit::kUsage, "{}: is there already; give a folder that is not", out);

  Console console;
  const ModelFolder opened(source);
  const std::string& folder = opened.path();
  const ModelConfig model = read_hf_config(folder);
  const DType dtype = dtype_name.empty() ? dtype_of(folder) : dtype_name == "fp32" ? DType::kF32 : DType::kBF16;
  const uint64_t bytes = export_bytes(find_arch(model.arch).params(model), dtype);
  ExportCheck check(model);
  check.load(folder, dtype);
  const std::vector<float> expected = check.logits();
  const HfExport options{.dtype = dtype,
                         .shard_bytes = static_cast<uint64_t>(shard_gb * 1e9),
                         .tokenizer_folder = folder,
                         .source_folder = folder};
  write_hf_folder(out, model, check.params(), options);
  console.line(fmt::format("wrote     {} · {} · {} of {}", out, model.arch, bytes_text(static_cast<double>(bytes)),
                           dtype == DType::kF32 ? "F32" : "BF16"));
  check.expect_logits(out, expected, folder, dtype);
  console.line(
      fmt::format("checked   read again: every tensor and the logits of {} rows of {} random tokens are, bit for "
                  "bit, those of {}{}",
                  check.rows(), check.row_tokens(), names_checkpoint(source) ? source : folder,
                  dtype == DType::kBF16 ? " rounded to BF16" : ""));
  console.line(fmt::format("done      {}", out));
  console.flush();
  return 0;
}

}  // namespace mantissa
