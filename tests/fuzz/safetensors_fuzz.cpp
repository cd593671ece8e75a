// Safetensors images: every tensor's bytes lie inside, as many as shape and dtype ask.
#include <span>

#include "base/safetensors.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

MANTISSA_FUZZ(input, {
  const auto reader = safetensors::Reader::parse(std::as_bytes(std::span(input)), "input");
  unsigned sum = 0;
  for (const auto& [name, view] : reader.tensors())
    for (const std::byte b : view.bytes) sum += static_cast<unsigned>(b);
  if (sum == 0xffffffffu) std::abort();  // keeps the reads
})
