// mantissa probe MODEL_DIR: logits, loss, gradients and AdamW steps on given tokens, to hold against another system.
#include <cmath>
#include <cstring>
#include <list>

#include "app/flags.h"
#include "app/model_source.h"
#include "app/say.h"
#include "app/verbs.h"
#include "base/safetensors.h"
#include "train/engine.h"

namespace mantissa {
namespace {

struct ProbeOptions {
  std::string folder, input, output;
  DeviceConfig device{.name = "cpu"};
  PrecisionConfig precision;
  int64_t adamw_steps = 0;
  AdamwSettings adamw;
};

// The given rows as one micro-batch.
struct ProbeInput {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> ids, labels, positions, segments{0};
  int64_t valid = 0, longest = 0;
  bool labelled = false;

  MicroBatch view() const {
    const auto n = static_cast<int64_t>(ids.size());
    return {{ids.data(), DType::kI32, {n}},
            {labels.data(), DType::kI32, {n}},
            {positions.data(), DType::kI32, {n}},
            {segments.data(), DType::kI32, {static_cast<int64_t>(segments.size())}}};
  }
};

std::vector<int64_t> read_integers(const safetensors::View& view, const std::string& name) {
  if (view.dtype != "I64") fail(Exit::kInput, "{}: dtype {}, expected I64", name, view.dtype);
  std::vector<int64_t> out(static_cast<size_t>(view.elements()));
  std::memcpy(out.data(), view.bytes.data(), out.size() * sizeof(int64_t));
  return out;
}

void add_segments(ProbeInput& in, const std::vector<int64_t>& lengths) {
  int64_t at = 0;
  for (int64_t n : lengths) {
    if (n < 1) fail(Exit::kInput, "document_lengths: {} at token {}, expected at least 1", n, at);
    if (at / in.length != (at + n - 1) / in.length)
      fail(Exit::kInput, "document_lengths: a document of {} at token {} crosses the end of a row of {}", n, at,
           in.length);
    for (int64_t i = 0; i < n; ++i) in.positions.push_back(static_cast<int32_t>(i));
    at += n;
    in.segments.push_back(static_cast<int32_t>(at));
    in.longest = std::max(in.longest, n);
    if (at > in.rows * in.length) break;
  }
  if (at != in.rows * in.length)
    fail(Exit::kInput, "document_lengths: sum to {}, expected {} ({} rows of {})", at, in.rows * in.length, in.rows,
         in.length);
}

ProbeInput read_input(const std::string& path, int64_t vocab) {
  const auto file = safetensors::Reader::open(path);
  return in_context(path, [&] {
    for (const auto& [name, view] : file.tensors())
      if (name != "input_ids" && name != "labels" && name != "document_lengths")
        fail(Exit::kInput, "{}: expected input_ids, labels and document_lengths only", name);
    ProbeInput in;
    const safetensors::View& ids = file.at("input_ids");
    if (ids.shape.size() != 2 || ids.elements() == 0) fail(Exit::kInput, "input_ids: expected two dimensions [B,T]");
    in.rows = ids.shape[0], in.length = ids.shape[1];
    const auto take = [&](const std::vector<int64_t>& from, std::vector<int32_t>& to, const char* name, bool label) {
      for (size_t i = 0; i < from.size(); ++i) {
        if (!(label && from[i] == -100) && (from[i] < 0 || from[i] >= vocab))
          fail(Exit::kInput, "{}: {} at element {}, expected 0 to {}", name, from[i], i, vocab - 1);
        to.push_back(static_cast<int32_t>(from[i]));
      }
    };
    take(read_integers(ids, "input_ids"), in.ids, "input_ids", false);
    if (const safetensors::View* labels = file.find("labels")) {
      if (labels->shape != ids.shape) fail(Exit::kInput, "labels: shape differs from input_ids");
      take(read_integers(*labels, "labels"), in.labels, "labels", true);
      in.labelled = true;
    } else {
      in.labels.assign(in.ids.size(), -100);
    }
    for (int32_t y : in.labels) in.valid += y != -100;
    if (in.labelled && in.valid == 0) fail(Exit::kInput, "labels: every one is -100, there is no loss");
    std::vector<int64_t> lengths(static_cast<size_t>(in.rows), in.length);
    if (const safetensors::View* given = file.find("document_lengths")) {
      if (given->shape.size() != 1) fail(Exit::kInput, "document_lengths: expected one dimension");
      lengths = read_integers(*given, "document_lengths");
    }
    add_segments(in, lengths);
    return in;
  });
}

// Tensors to write, with the memory they stand in.
class Output {
 public:
  void add(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    values_.push_back(std::move(values));
    const std::vector<float>& v = values_.back();
    entries_.push_back({name, "F32", std::move(shape), std::as_bytes(std::span(v))});
  }
  void add_params(const ParamStore& params, const std::string& prefix, bool grads) {
    for (int id = 0; id < params.size(); ++id)
      for_each_hf_part(params.spec(id), grads ? params.grad_values(id) : params.values(id),
                       [&](const std::string& name, const std::vector<int64_t>& shape,
                           const std::vector<float>& values) { add(prefix + name, shape, values); });
  }
  void write(const std::string& path) const { safetensors::write(path, entries_); }

 private:
  std::list<std::vector<float>> values_;
  std::vector<safetensors::Entry> entries_;
};

bool parse(ProbeOptions& o, std::vector<std::string> args) {
  CommandLine command("Logits, loss, gradients and AdamW steps of a Hugging Face model on given tokens.", "probe");
  o.precision.recipe = plain_recipe(/*full_precision=*/true).name;
  std::vector<double> betas = {o.adamw.beta1, o.adamw.beta2};
  command.option("model", o.folder, "Hugging Face folder: config.json, model.safetensors").required();
  command.option("--input", o.input, "safetensors: input_ids I64 [B,T]; labels I64 [B,T]; document_lengths I64 [n]")
      .required();
  command.option("--output", o.output, "safetensors to write").required();
  add_device_flags(command, o.device);
  command.option("--recipe", o.precision.recipe, "precision of the linear layers").show_default();
  command.option("--scope", o.precision.scope, "layers that the recipe takes").one_of(scope_names()).show_default();
  command.option("--weights", o.precision.weights, "fp32, bf16 or bf16-sr")
      .one_of({"fp32", "bf16", "bf16-sr"})
      .show_default();
  command.option("--adamw-steps", o.adamw_steps, "AdamW steps on the same batch").within(0, 1000000).show_default();
  command.option("--lr", o.adamw.lr, "learning rate").show_default();
  command.option("--betas", betas, "two numbers").comma_separated().values(2);
  command.option("--eps", o.adamw.eps, "epsilon").show_default();
  command.option("--weight-decay", o.adamw.weight_decay, "on tensors of two or more dimensions").show_default();
  command.option("--grad-clip", o.adamw.grad_clip, "largest gradient norm, 0 = off").show_default();
  command.fields([&o](config::Fields& f) { o.precision.options.describe(f); });
  if (!command.parse(args)) return false;
  o.adamw.beta1 = betas[0], o.adamw.beta2 = betas[1];
  o.precision.validate();
  refuse_unread_options(o.precision.options, {&find_recipe(o.precision.recipe)});
  return true;
}

}  // namespace

int probe_verb(const std::vector<std::string>& args) {
  ProbeOptions o;
  if (!parse(o, args)) return 0;
  const ModelConfig model = read_hf_config(o.folder);
  const ProbeInput in = read_input(o.input, model.vocab_size);
  if (o.adamw_steps > 0 && !in.labelled) fail(Exit::kUsage, "--adamw-steps: {} has no labels", o.input);
  const int64_t tokens = in.rows * in.length;
  const ChosenDevice device = choose_device(o.device, {o.precision.recipe}, "--device");
  Engine engine(model, o.precision,
                {.tokens = tokens,
                 .sequence_length = in.longest,
                 .training = in.labelled,
                 .device = device.gpu.get(),
                 .gpu = device.gpu != nullptr,
                 .max_segments = static_cast<int64_t>(in.segments.size()) - 1});
  engine.build();
  engine.load(o.folder);

  Output out;
  std::vector<float> logits(static_cast<size_t>(tokens * model.vocab_size));
  engine.logits(in.view(), Tensor(logits.data(), DType::kF32, {tokens, model.vocab_size}));
  out.add("logits", {in.rows, in.length, model.vocab_size}, std::move(logits));
  std::string summary = fmt::format("logits [{},{},{}]", in.rows, in.length, model.vocab_size);
  if (in.labelled) {
    std::vector<float> losses;
    // Without AdamW one step gives loss and gradients; its update is left out.
    for (int64_t step = 0; step < std::max<int64_t>(1, o.adamw_steps); ++step) {
      engine.begin_step(static_cast<uint32_t>(step + 1));
      engine.micro_step(in.view(), in.valid, 0);
      const auto loss = static_cast<float>(engine.sums().loss / static_cast<double>(in.valid));
      losses.push_back(loss);
      if (!std::isfinite(loss)) fail(Exit::kNonFinite, "step {}: loss is {}", step + 1, loss);
      if (step == 0) {
        const auto norm = static_cast<float>(engine.grad_norm());
        out.add("loss", {}, {loss});
        out.add("grad_norm", {}, {norm});
        out.add_params(engine.params(), "grad.", true);
        summary += fmt::format(", loss {:.6f}, gradient norm {:.6f}", loss, norm);
      }
      if (o.adamw_steps > 0) engine.update(o.adamw);
    }
    if (o.adamw_steps > 0) {
      summary += fmt::format(", {} AdamW steps to loss {:.6f} before the last update", o.adamw_steps, losses.back());
      out.add("adamw.losses", {o.adamw_steps}, losses);
      out.add_params(engine.params(), "adamw.", false);
    }
  }
  out.write(o.output);
  say("device {}\n", device.text);
  say("{} · {} -> {}\n", o.precision.recipe, summary, o.output);
  return 0;
}

}  // namespace mantissa
