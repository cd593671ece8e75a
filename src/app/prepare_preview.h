// The first rows of prepared data for the eye: segments, tokens as text, ids, what is learned.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace mantissa {

// `rows` training rows as text, a few tokens of each of their segments.
std::string preview_rows(const Dataset& data, int64_t rows);

}  // namespace mantissa
