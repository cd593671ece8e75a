#include "model/param_writer.h"

#include <algorithm>
#include <cstring>

namespace mantissa {
namespace {

void store(const Tensor& to, int64_t at, const float* values, int64_t n) {
  if (to.dtype == DType::kF32) {
    std::memcpy(to.as<float>() + at, values, static_cast<size_t>(n) * sizeof(float));
  } else {
    bf16* out = to.as<bf16>() + at;
    for (int64_t i = 0; i < n; ++i) out[i] = to_bf16(values[i]);
  }
}

std::byte* element(const Tensor& t, int64_t at) { return static_cast<std::byte*>(t.data) + bytes_of(t.dtype, at); }

}  // namespace

ParamWriter::ParamWriter(ParamStore& params, int64_t most) : params_(params), device_(params.options().device) {
  if (!device_) return;
  piece_ = std::min(kPiece, most);
  half_bytes_ = bytes_of(params.compute_dtype(), piece_) + (params.has_master() ? bytes_of(DType::kF32, piece_) : 0);
  halves_ = PinnedBytes(*device_, 2 * half_bytes_);
}

ParamWriter::~ParamWriter() = default;  // pinned memory is released when the device is done with it

void ParamWriter::write(int id, int64_t begin, int64_t n, int64_t unit,
                        const std::function<void(int64_t, int64_t)>& fill) {
  id_ = id;
  if (!device_) {
    first_ = 0;
    weight_ = params_.weight(id), master_ = params_.has_master() ? params_.updated(id) : Tensor{};
    fill(begin, n);
    return;
  }
  check(unit <= piece_, "parameter writer: {} elements at a time, expected at most {}", unit, piece_);
  const int64_t step = piece_ / unit * unit;
  for (int64_t at = begin; at < begin + n; at += step) {
    const int64_t count = std::min(step, begin + n - at);
    std::byte* half = halves_.data() + half_ * half_bytes_;
    first_ = at;
    weight_ = {half, params_.compute_dtype(), {count}};
    master_ = params_.has_master() ? Tensor{half + weight_.bytes(), DType::kF32, {count}} : Tensor{};
    fill(at, count);
    send(at, count);
  }
}

void ParamWriter::send(int64_t first, int64_t count) {
  device_->synchronize();  // the other half has arrived, and is filled next
  device_->copy_in(element(params_.weight(id_), first), weight_.data, bytes_of(weight_.dtype, count));
  if (master_) device_->copy_in(element(params_.updated(id_), first), master_.data, bytes_of(DType::kF32, count));
  half_ ^= 1;
}

void ParamWriter::put(int64_t at, const float* values, int64_t n) const {
  store(weight_, at - first_, values, n);
  if (master_) store(master_, at - first_, values, n);
}

}  // namespace mantissa
