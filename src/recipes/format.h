// Formats that recipe folders are stated in, and the rules of dimensions that they share.
#pragma once

#include "recipes/recipe.h"

namespace mantissa {

// The FP8 element of a role under options.format. hybrid: E4M3 forward, E5M2 gradients.
DType fp8_element(const RecipeOptions& options, Role role, const char* default_format);
// options.scales with "auto" resolved.
ScaleRule fp32_scale_rule(const RecipeOptions& options, const char* default_scales);

// The same format for both copies.
inline OperandSpec both_copies(const QuantFormat& format) {
  return {.rowwise = format, .columnwise = format, .high = false};
}

// Whether the two copies of a tensor hold the same codes and scales, one transposed.
bool same_codes(const OperandSpec& spec);

// RecipeEntry::path of recipes whose operands every device multiplies as they are; of FP8 with one scale a tensor and
// with blocks of 128, which a CPU emulates; of formats that every device emulates in this version.
RecipePath path_of_plain(const RecipeTarget& target);
RecipePath path_of_fp8_tensors(const RecipeTarget& target);
RecipePath path_of_fp8_blocks(const RecipeTarget& target);
RecipePath path_of_emulated(const RecipeTarget& target);

// FP8 with one scale or 128-blocks: tokens and out_features % 8, in_features % 16.
inline constexpr DimensionRule kFp8Dimensions{.tokens = 8, .out_features = 8, .in_features = 16};
// On a GPU each of them is what one of the three products contracts (docs/numerics.md 11).
inline constexpr int64_t kNativeMultiple = 16;

}  // namespace mantissa
