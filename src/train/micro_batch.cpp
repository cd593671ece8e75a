#include "train/micro_batch.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/quant.h"

namespace mantissa {
namespace {

void check_range(const char* name, const ConstTensor& values, int64_t tokens, int64_t least, int64_t end,
                 bool may_be_ignored) {
  check(values && values.dtype == DType::kI32 && values.shape.rank() == 1 && values.count() == tokens,
        "micro-batch: {} is {}, expected i32[{}]", name, values, tokens);
  const auto* v = values.as<int32_t>();
  for (int64_t i = 0; i < tokens; ++i)
    check((v[i] >= least && v[i] < end) || (may_be_ignored && v[i] == kIgnoredLabel),
          "micro-batch: {}[{}] is {}, expected {} to {}", name, i, v[i], least, end - 1);
}

// The length of every document where they all have `length`, else 0.
int64_t uniform_length(const ConstTensor& segments, int64_t length) {
  const auto* s = segments.as<int32_t>();
  for (int64_t i = 0; i + 1 < segments.dim(0); ++i)
    if (s[i + 1] - s[i] != length) return 0;
  return length;
}

}  // namespace

MicroBatch view(const Batch& b) {
  const auto t = static_cast<int64_t>(b.ids.size());
  return {{b.ids.data(), DType::kI32, {t}},
          {b.labels.data(), DType::kI32, {t}},
          {b.positions.data(), DType::kI32, {t}},
          {b.segments.data(), DType::kI32, {static_cast<int64_t>(b.segments.size())}}};
}

void DeviceBatch::allocate(Arena& arena, const BatchLimits& limits) {
  limits_ = limits;
  const int64_t t = limits.tokens, at = stride(), offsets = limits.max_segments + 1;
  buffer_ = arena.tensor("batch", DType::kI32, {kStateWords + 3 * at + offsets});
  state = static_cast<const StepState*>(buffer_.data);
  ids = words(0, t), labels = words(at, t), positions = words(2 * at, t);
  segments.offsets = words(3 * at, offsets);
}

void DeviceBatch::check_values(const MicroBatch& b) const {
  const BatchLimits& l = limits_;
  check_range("ids", b.ids, l.tokens, 0, l.vocab, false);
  if (b.labels) check_range("labels", b.labels, l.tokens, 0, l.vocab, true);
  check_range("positions", b.positions, l.tokens, 0, l.sequence_length, false);
  check(b.segments && b.segments.dtype == DType::kI32 && b.segments.shape.rank() == 1 && b.segments.dim(0) >= 2,
        "micro-batch: segments is {}, expected i32[S+1]", b.segments);
  const auto* s = b.segments.as<int32_t>();
  const int64_t count = b.segments.dim(0) - 1;
  check(count <= l.max_segments, "micro-batch: {} documents, planned for {}", count, l.max_segments);
  check(s[0] == 0 && s[count] == l.tokens, "micro-batch: segments go from {} to {}, expected 0 to {}", s[0], s[count],
        l.tokens);
  for (int64_t i = 0; i < count; ++i)
    check(s[i + 1] >= s[i] && s[i + 1] - s[i] <= l.sequence_length,
          "micro-batch: segments[{}] is {}, after {}: expected ascending offsets, at most {} apart", i + 1, s[i + 1],
          s[i], l.sequence_length);
}

void DeviceBatch::fill(std::byte* place, const MicroBatch& b, const StepState& step) const {
  std::memcpy(place, &step, sizeof step);
  auto* to = reinterpret_cast<int32_t*>(place) + kStateWords;
  const int64_t t = limits_.tokens, at = stride(), offsets = b.segments.dim(0), most = limits_.max_segments + 1;
  std::copy_n(b.ids.as<int32_t>(), t, to);
  if (b.labels)
    std::copy_n(b.labels.as<int32_t>(), t, to + at);
  else
    std::fill_n(to + at, t, kIgnoredLabel);
  std::copy_n(b.positions.as<int32_t>(), t, to + 2 * at);
  std::copy_n(b.segments.as<int32_t>(), offsets, to + 3 * at);
  // Empty documents behind the last one.
  std::fill_n(to + 3 * at + offsets, most - offsets, static_cast<int32_t>(t));
}

void DeviceBatch::upload(Device& device, const MicroBatch& b, const StepState& step) {
  check_values(b);
  const int64_t bytes = buffer_.bytes();
  if (!places_) places_ = PinnedBytes(device, kPlaces * bytes);
  if (next_ == kPlaces) {
    device.synchronize();
    next_ = 0;
  }
  std::byte* place = places_.data() + next_++ * bytes;
  fill(place, b, step);
  device.copy_in(buffer_.data, place, bytes);
  // Rows of one document each have a graph of their own; any other packing shares one.
  segments.uniform = uniform_length(b.segments, limits_.sequence_length);
  segments.longest = limits_.sequence_length;
  const int64_t slots = segments.uniform > 0 ? limits_.tokens / segments.uniform : limits_.max_segments;
  segments.offsets = words(3 * stride(), slots + 1);
}

}  // namespace mantissa
