// mantissa quantize: bytes and scales of given tensors under a recipe, to hold the numbers against another system.
// For each tensor T[M,K] it writes T.rowwise, T.columnwise (stored transposed), T.rowwise_scale, T.columnwise_scale,
// T.amax and, where columns are rotated, T.columnwise_amax; layouts are those of tensor/quant.h, codes as U8.
#include <charconv>
#include <cmath>
#include <cstring>
#include <deque>

#include "app/flags.h"
#include "app/say.h"
#include "app/verbs.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "device/device_config.h"
#include "ops/quantize.h"
#include "recipes/recipe.h"
#include "tensor/arena.h"

namespace mantissa {
namespace {

constexpr int64_t kErrorScratch = int64_t{64} << 20;  // a GPU's: sums of 32 rows each, 40 bytes

struct QuantizeFlags {
  std::string recipe, role, input, output;
  DeviceConfig device{.name = "cpu"};
  std::string scale, rounding;  // "" = not given
  uint64_t seed = 0;
  RecipeOptions options;
};

Role role_named(const std::string& name) {
  for (const Role role : {Role::kInput, Role::kWeight, Role::kGrad})
    if (name == name_of(role)) return role;
  fail(Exit::kUsage, "quantize: --role is {}, expected input, weight or grad", name);
}

// The float nearest to the text, rounded once.
float parse_scale(const std::string& text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    fail(Exit::kUsage, "quantize: --scale is {}, expected a positive finite number", printable(text));
  return value;
}

// The recipe's formats of the role under the flags.
OperandSpec formats(const RecipeEntry& recipe, const QuantizeFlags& flags) {
  OperandSpec spec = recipe.spec(flags.options, role_named(flags.role));
  if (!spec.rowwise)
    fail(Exit::kUsage, "quantize: recipe {} quantizes nothing, expected one that does, e.g. mxfp8", recipe.name);
  if (!flags.scale.empty() && spec.rowwise->rule != ScaleRule::kGiven)
    fail(Exit::kUsage, "quantize: --scale is for fp8-delayed; {} takes its scales from the tensor", recipe.name);
  if (!flags.rounding.empty()) {
    const bool stochastic = flags.rounding == "stochastic";
    if (stochastic && spec.rowwise->element != DType::kE2M1)
      fail(Exit::kUsage, "quantize: --rounding stochastic is for FP4 (nvfp4); {} writes {}", recipe.name,
           str(*spec.rowwise));
    spec.rowwise->stochastic = spec.columnwise->stochastic = stochastic;
  }
  return spec;
}

// A stream of random bits for a name, the same whatever else the file holds: FNV-1a, 32 bits.
uint32_t stream_of(const std::string& name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

// A tensor with its copies, in the memory of one device.
struct Placed {
  Arena arena;
  Tensor source, scale;
  Operand copies;

  void build(const OperandSpec& spec, DType dtype, int64_t m, int64_t k, uint32_t tensor_id, Device* device) {
    arena.build(
        [&](Arena& memory) {
          source = memory.tensor("source", dtype, {m, k});
          scale = memory.tensor("scale", DType::kF32, {1});
          copies = memory.operand("copies", spec, m, k);
        },
        device);
    copies.high = source;
    copies.tensor_id = tensor_id;
    copies.rowwise.scale = copies.columnwise.scale = scale.as<float>();
  }
};

struct Quantization {
  std::string name;
  Placed host, gpu;  // gpu: where the cast runs on one
};

void read_source(Quantization& item, const safetensors::View& view, const OperandSpec& spec, const RecipeEntry& recipe,
                 float scale, const std::string& file) {
  if ((view.dtype != "BF16" && view.dtype != "F32") || view.shape.size() != 2 || view.elements() == 0)
    fail(Exit::kInput, "{}: {} is {} {}, expected a non-empty BF16 or F32 tensor of two dimensions", file, item.name,
         view.dtype, shape_text(view.shape));
  const int64_t m = view.shape[0], k = view.shape[1];
  if (m % recipe.multiple != 0 || k % recipe.multiple != 0)
    fail(Exit::kUsage, "{}: {} is {}, expected multiples of {}", recipe.name, item.name, shape_text(view.shape),
         recipe.multiple);
  const DType dtype = view.dtype == "F32" ? DType::kF32 : DType::kBF16;
  if (spec.columnwise->hadamard && dtype == DType::kF32)
    fail(Exit::kUsage, "{}: {} is F32, but the Hadamard transform takes BF16; --disable_rht leaves it out", recipe.name,
         item.name);
  item.host.build(spec, dtype, m, k, stream_of(item.name), nullptr);
  std::memcpy(item.host.source.data, view.bytes.data(), view.bytes.size());
  *item.host.scale.as<float>() = scale;
}

// Casts on the GPU; the copies come back into the host's.
void quantize_on(Device& device, Exec& exec, const OperandSpec& spec, Quantization& item) {
  Placed &host = item.host, &gpu = item.gpu;
  const Tensor& source = host.source;
  gpu.build(spec, source.dtype, source.dim(0), source.dim(1), host.copies.tensor_id, &device);
  device.copy_in(gpu.source.data, source.data, source.bytes());
  device.copy_in(gpu.scale.data, host.scale.data, host.scale.bytes());
  quantize(exec, gpu.copies);
  for (const auto& [to, from] : {std::pair{&host.copies.rowwise, &gpu.copies.rowwise},
                                 std::pair{&host.copies.columnwise, &gpu.copies.columnwise}}) {
    device.copy_out(to->data.data, from->data.data, to->data.bytes());
    device.copy_out(to->scale_inv.data, from->scale_inv.data, to->scale_inv.bytes());
    device.copy_out(to->amax, from->amax, sizeof(float));
  }
}

std::span<const std::byte> bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.data), static_cast<size_t>(t.bytes())};
}

void add_copy(std::vector<safetensors::Entry>& entries, const std::string& name, const Quantized& copy) {
  const int64_t per_byte = 8 / bits_of(copy.format.element);
  const Tensor& scale = copy.scale_inv;
  std::vector<int64_t> scale_shape;
  for (int i = 0; i < scale.shape.rank(); ++i) scale_shape.push_back(scale.dim(i));
  entries.push_back({name, "U8", {copy.data.dim(0), copy.data.dim(1) / per_byte}, bytes_of(copy.data)});
  entries.push_back({name + "_scale", scale.dtype == DType::kF32 ? "F32" : "U8", scale_shape, bytes_of(scale)});
}

void add_amax(std::vector<safetensors::Entry>& entries, const std::string& name, const float* amax) {
  entries.push_back({name, "F32", {1}, std::as_bytes(std::span(amax, 1))});
}

// Measured where the copies were made.
void print_errors(Exec& exec, const Quantization& item, int width) {
  const Placed& made = exec.device() ? item.gpu : item.host;
  for (const bool columnwise : {false, true}) {
    const Quantized& copy = columnwise ? made.copies.columnwise : made.copies.rowwise;
    const float amax = columnwise ? *item.host.copies.columnwise.amax : *item.host.copies.rowwise.amax;
    const QuantError error = quantization_error(exec, copy, columnwise, made.source);
    const std::string shape = fmt::format("{} x {}", made.source.dim(0), made.source.dim(1));
    say("{:<{}}  {:<10}  {:>13}  {:>11.5g}  {:>7.2f}  {:>10.4f}  {:>9.4f}\n", printable(item.name), width,
        columnwise ? "columnwise" : "rowwise", shape, amax, error.snr_db(), 100 * error.saturated_share(),
        100 * error.flushed_share());
  }
}

}  // namespace

int quantize_verb(const std::vector<std::string>& args) {
  QuantizeFlags flags;
  CommandLine command("Writes the bytes and scales of given tensors under a recipe.", "quantize");
  command.option("--recipe", flags.recipe, "fp8-delayed, fp8-tensorwise, fp8-blockwise, mxfp8 or nvfp4").required();
  command.option("--role", flags.role, "what the tensors are: input, weight or grad").required();
  command.option("--input", flags.input, "safetensors file; every tensor BF16 or F32 [M,K]").required();
  command.option("--output", flags.output, "safetensors file to write").required();
  command.option("--device", flags.device.name, "cpu, cuda, cuda:N or auto; the same bytes on each").show_default();
  command.option("--scale", flags.scale, "fp8-delayed: what multiplies before the cast (default 1)");
  command
      .option("--rounding", flags.rounding, "nearest or stochastic (FP4 alone); default: as the recipe rounds the role")
      .one_of({"nearest", "stochastic"});
  command.option("--seed", flags.seed, "of stochastic rounding").show_default();
  command.fields([&](config::Fields& fields) { flags.options.describe(fields); });
  if (!command.parse(args)) return 0;

  const RecipeEntry& recipe = find_recipe(flags.recipe);
  const OperandSpec spec = formats(recipe, flags);
  refuse_unread_options(flags.options, {&recipe});
  const RecipeOptions defaults;
  if (flags.options.margin != defaults.margin || flags.options.amax_history_len != defaults.amax_history_len ||
      flags.options.amax_compute_algo != defaults.amax_compute_algo)
    fail(Exit::kUsage, "quantize: margin and amax history lead from step to step; one cast takes its scale by --scale");
  const float scale = flags.scale.empty() ? 1.0f : parse_scale(flags.scale);
  flags.device.validate("--device");

  const safetensors::Reader file = safetensors::Reader::open(flags.input);
  if (file.tensors().empty()) fail(Exit::kInput, "{}: holds no tensor", flags.input);
  const ChosenDevice device = choose_device(flags.device, {}, "--device");
  Exec exec = device.gpu ? Exec(*device.gpu) : Exec();
  if (device.gpu) exec.reserve_scratch(kErrorScratch);
  exec.state.seed = flags.seed;
  std::deque<Quantization> items;
  std::vector<safetensors::Entry> entries;
  int width = 6;
  for (const auto& [name, view] : file.tensors()) {
    Quantization& item = items.emplace_back();
    item.name = name;
    read_source(item, view, spec, recipe, scale, flags.input);
    in_context(name,
               [&] { device.gpu ? quantize_on(*device.gpu, exec, spec, item) : quantize(exec, item.host.copies); });
    const Operand& copies = item.host.copies;
    add_copy(entries, name + ".rowwise", copies.rowwise);
    add_copy(entries, name + ".columnwise", copies.columnwise);
    add_amax(entries, name + ".amax", copies.rowwise.amax);
    if (spec.columnwise->hadamard) add_amax(entries, name + ".columnwise_amax", copies.columnwise.amax);
    width = std::max(width, static_cast<int>(printable(name).size()));
  }
  safetensors::write(flags.output, std::move(entries),
                     {{"format", "pt"}, {"recipe", recipe.name}, {"role", flags.role}});

  const std::string rows = str(*spec.rowwise), columns = str(*spec.columnwise);
  say("{} {}: rowwise {}; columnwise {}\n\n", recipe.name, flags.role, rows, columns);
  say("{:<{}}  {:<10}  {:>13}  {:>11}  {:>7}  {:>10}  {:>9}\n", "tensor", width, "copy", "shape", "amax", "SNR dB",
      "saturated%", "flushed%");
  for (const Quantization& item : items) print_errors(exec, item, width);
  say("\nwrote {}\n", flags.output);
  return 0;
}

}  // namespace mantissa
