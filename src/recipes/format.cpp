#include "recipes/format.h"

#include <algorithm>

namespace mantissa {

const char* name_of(Role role) {
  switch (role) {
    case Role::kInput:
      return "input";
    case Role::kWeight:
      return "weight";
    case Role::kGrad:
      return "grad";
  }
  return "?";
}

DType fp8_element(const RecipeOptions& options, Role role, const char* default_format) {
  const std::string format = options.format == "auto" ? default_format : options.format;
  check(format == "hybrid" || format == "e4m3", "format is {}, expected hybrid or e4m3", format);
  return format == "hybrid" && role == Role::kGrad ? DType::kE5M2 : DType::kE4M3;
}

ScaleRule fp32_scale_rule(const RecipeOptions& options, const char* default_scales) {
  const std::string scales = options.scales == "auto" ? default_scales : options.scales;
  check(scales == "pow2" || scales == "fp32", "scales is {}, expected pow2 or fp32", scales);
  return scales == "pow2" ? ScaleRule::kCurrentPow2 : ScaleRule::kCurrent;
}

bool same_codes(const OperandSpec& spec) {
  return spec.rowwise && spec.columnwise && *spec.rowwise == *spec.columnwise &&
         spec.rowwise->blocking != Blocking::kRow && !spec.rowwise->stochastic;
}

void RecipeEntry::check(const LinearSite& site, int64_t m, const RecipeTarget& target) const {
  const bool native = target.gpu && quantizes() && path(target).path == Path::kNative;
  const auto divisor_of = [native](int64_t of_recipe) {
    return native ? std::max(of_recipe, kNativeMultiple) : of_recipe;
  };
  const auto feature = [&](const char* what, int64_t found, int64_t divisor) {
    if (found % divisor != 0)
      fail(Exit::kUsage, "{}: {} has {} {}, expected a multiple of {}; give it recipe bf16 in precision.rules", name,
           site.name, what, found, divisor);
  };
  feature("in_features", site.k, divisor_of(dimensions.in_features));
  feature("out_features", site.n, divisor_of(dimensions.out_features));
  if (m % divisor_of(dimensions.tokens) != 0)
    fail(Exit::kUsage,
         "{}: {} gets {} tokens a micro-batch, expected a multiple of {}; change data.sequence_length or "
         "batch.micro_batch",
         name, site.name, m, divisor_of(dimensions.tokens));
}

std::string str(const QuantFormat& format) {
  std::string text = format.element == DType::kE4M3 ? "E4M3" : format.element == DType::kE5M2 ? "E5M2" : "E2M1";
  switch (format.blocking) {
    case Blocking::kTensor:
      text += " tensor";
      break;
    case Blocking::kRow:
      text += fmt::format(" 1x{}", format.block);
      break;
    case Blocking::kTile:
      text += fmt::format(" {}x{}", format.block, format.block);
      break;
  }
  switch (format.rule) {
    case ScaleRule::kGiven:
      text += " FP32 delayed";
      break;
    case ScaleRule::kCurrent:
      text += " FP32";
      break;
    case ScaleRule::kCurrentPow2:
      text += " pow2";
      break;
    case ScaleRule::kE8M0:
      text += " E8M0";
      break;
    case ScaleRule::kNvfp4:
      text += " E4M3";
      break;
  }
  if (format.hadamard) text += ", RHT";
  if (format.stochastic) text += ", SR";
  return text;
}

RecipePath path_of_plain(const RecipeTarget&) { return {.path = Path::kNative}; }

RecipePath path_of_fp8_tensors(const RecipeTarget& target) {
  if (!target.gpu) return {.path = Path::kEmulated};
  if (target.sm < 89) return {.path = Path::kRefused, .refusal = "wants a GPU of compute capability 8.9 or later"};
  return {.path = Path::kNative};
}

// cuBLASLt multiplies 128-blocks on Hopper alone (docs/numerics.md 11).
RecipePath path_of_fp8_blocks(const RecipeTarget& target) {
  if (!target.gpu) return {.path = Path::kEmulated};
  if (target.sm != 90) return {.path = Path::kRefused, .refusal = "wants a GPU of compute capability 9.0"};
  return {.path = Path::kNative};
}

RecipePath path_of_emulated(const RecipeTarget&) { return {.path = Path::kEmulated}; }

const char* name_of(Path path) {
  switch (path) {
    case Path::kNative:
      return "native";
    case Path::kEmulated:
      return "emulated";
    case Path::kRefused:
      return "refused";
  }
  return "?";
}

}  // namespace mantissa
