// Values between safetensors (F32, F16, BF16, any alignment) and parameters, in pieces, on all threads: no tensor is
// held in memory a second time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/safetensors.h"
#include "model/hf/match.h"
#include "model/param_writer.h"

namespace mantissa::hf {

// dtype F32, F16 or BF16.
bool is_float(const safetensors::View& view);

// Shapes agree and every value equals the other (NaN equals nothing, -0 equals 0).
bool same_values(const safetensors::View& a, const safetensors::View& b);

struct NonFinite {
  int64_t nan = 0, inf = 0;
};
NonFinite count_nonfinite(const safetensors::View& view);

// Fills the match's rows of the store: master and compute copy. `round_to` kBF16 rounds the values to BF16 first.
void load_match(const Match& match, ParamWriter& writer, DType round_to);
inline void load_match(const Match& match, ParamStore& params, DType round_to) {
  ParamWriter writer(params);
  load_match(match, writer, round_to);
}

// The match's rows of the updated parameter are, bit for bit, what load_match would fill in.
bool holds_match(const Match& match, const ParamStore& params, DType round_to);

// Hands the bytes of a part of parameter `id` (the updated values) to `take`, in the folder's layout, as F32 or BF16,
// in pieces of some megabytes.
void write_part(const ParamStore& params, int id, const HfPart& part, DType dtype,
                const std::function<void(std::span<const std::byte>)>& take);

}  // namespace mantissa::hf
