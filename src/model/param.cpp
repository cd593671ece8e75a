#include "model/param.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "model/arch/arch.h"
#include "model/param_writer.h"
#include "ops/random.h"

namespace mantissa {
namespace {

// FP32 values of a tensor in host or device memory.
std::vector<float> to_floats(const Tensor& t, Device* device) {
  std::vector<float> out(static_cast<size_t>(t.count()));
  std::vector<std::byte> copy;
  const void* data = t.data;
  if (device) {
    copy.resize(static_cast<size_t>(t.bytes()));
    device->copy_out(copy.data(), t.data, t.bytes());
    data = copy.data();
  }
  if (t.dtype == DType::kF32) {
    std::memcpy(out.data(), data, out.size() * sizeof(float));
  } else {
    const auto* p = static_cast<const bf16*>(data);
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(p[i]);
  }
  return out;
}

constexpr int64_t kBlock = 1024;  // values that are drawn at a time

}  // namespace

ParamStore::ParamStore(std::vector<ParamSpec> specs, const ParamStoreOptions& options)
    : specs_(std::move(specs)), options_(options), written_(specs_.size(), 0) {}

int ParamStore::find(const std::string& name) const {
  const int id = find_or_none(name);
  check(id >= 0, "no parameter named {}", name);
  return id;
}

int ParamStore::find_or_none(const std::string& name) const {
  for (int i = 0; i < size(); ++i)
    if (spec(i).name == name) return i;
  return -1;
}

int64_t ParamStore::count() const {
  int64_t n = 0;
  for (const ParamSpec& s : specs_) n += s.shape.count();
  return n;
}

int64_t ParamStore::padded_rows(int id) const {
  const ParamSpec& s = spec(id);
  const bool vocabulary = s.name == param_names::kEmbedding || s.name == param_names::kHead;
  if (!options_.gpu || !vocabulary) return s.shape[0];
  return ceil_div(s.shape[0], kVocabularyMultiple) * kVocabularyMultiple;
}

Tensor ParamStore::padded(Tensor t, int id) const {
  return t.shape.rank() == 2 ? Tensor(t.data, t.dtype, {padded_rows(id), t.dim(1)}) : t;
}

void ParamStore::allocate(Arena& arena) {
  const auto each = [this](std::vector<Tensor>& tensors, bool wanted, const auto& make) {
    tensors.clear();
    for (int id = 0; wanted && id < size(); ++id) tensors.push_back(make(id));
  };
  const auto as_specified = [&](const char* purpose, DType dtype) {
    return [&arena, this, purpose, dtype](int id) { return arena.tensor(purpose, dtype, spec(id).shape); };
  };
  const auto with_padding = [&](const char* purpose, DType dtype) {
    return [&arena, this, purpose, dtype](int id) -> Tensor {
      const Shape& shape = spec(id).shape;
      if (shape.rank() != 2) return arena.tensor(purpose, dtype, shape);
      return arena.tensor(purpose, dtype, {padded_rows(id), shape[1]}).slice(0, shape[0]);
    };
  };
  const auto scales = [&](int id) {
    return arena.tensor("optimizer", DType::kF32, {ceil_div(spec(id).shape.count(), kMomentBlock)});
  };
  const bool training = options_.training, scaled = training && options_.state == DType::kU8;
  each(weight_, true, with_padding("weights", compute_dtype()));
  each(master_, has_master(), as_specified("master weights", DType::kF32));
  each(grad_, training, with_padding("gradients", options_.grads));
  for (auto* moment : {&m_, &v_}) each(*moment, training, as_specified("optimizer", options_.state));
  for (auto* scale : {&m_scale_, &v_scale_}) each(*scale, scaled, scales);
}

std::vector<AdamwParam> ParamStore::optimized() const {
  std::vector<AdamwParam> all;
  for (int id = 0; id < size(); ++id) {
    AdamwParam p{.param = updated(id),
                 .copy = has_master() ? weight(id) : Tensor{},
                 .grad = grad(id),
                 .m = m(id),
                 .v = v(id),
                 .m_scale = {},
                 .v_scale = {},
                 .decays = spec(id).decays(),
                 .id = static_cast<uint32_t>(id)};
    if (options_.state == DType::kU8)
      p.m_scale = m_scale_[static_cast<size_t>(id)], p.v_scale = v_scale_[static_cast<size_t>(id)];
    all.push_back(p);
  }
  return all;
}

void ParamStore::initialize(uint64_t seed) {
  ParamWriter writer(*this);
  const Isa isa = detect_isa();
  for (int id = 0; id < size(); ++id) {
    const ParamSpec& s = spec(id);
    const RandomKey key{seed, 0, static_cast<uint32_t>(id), DrawForm::kInit};
    const float value = s.init == Init::kOnes ? 1.0f : 0.0f;
    writer.write(id, 0, s.shape.count(), kBlock, [&](int64_t first, int64_t count) {
      parallel_for(count, kBlock, [&](int64_t begin, int64_t end) {
        float values[kBlock];
        for (int64_t at = begin; at < end; at += kBlock) {
          const int64_t n = std::min(kBlock, end - at);
          if (s.init == Init::kNormal)
            normal_values(isa, key, first + at, n, static_cast<float>(s.init_std), values);
          else
            std::fill_n(values, n, value);
          writer.put(first + at, values, n);
        }
      });
    });
  }
}

void ParamStore::set(int id, const float* values) {
  const int64_t n = spec(id).shape.count();
  ParamWriter writer(*this, n);
  writer.write(id, 0, n, 1, [&](int64_t first, int64_t count) { writer.put(first, values + first, count); });
}

std::vector<float> ParamStore::values(int id) const { return to_floats(updated(id), options_.device); }
std::vector<float> ParamStore::grad_values(int id) const { return to_floats(grad(id), options_.device); }

void ParamStore::read_updated(int id, int64_t begin, int64_t n, std::byte* to) const {
  const Tensor from = updated(id);
  const auto* first = static_cast<const std::byte*>(from.data) + bytes_of(from.dtype, begin);
  if (options_.device)
    options_.device->copy_out(to, first, bytes_of(from.dtype, n));
  else
    std::memcpy(to, first, static_cast<size_t>(bytes_of(from.dtype, n)));
}

void ParamStore::zero_grad(int id) {
  const Tensor g = grad(id);
  if (options_.device)
    options_.device->zero(g.data, g.bytes());
  else
    std::memset(g.data, 0, static_cast<size_t>(g.bytes()));
}

void ParamStore::begin_step() {
  for (int id = 0; id < size(); ++id) {
    written_[static_cast<size_t>(id)] = 0;
    if (spec(id).shape.rank() < 2) zero_grad(id);
  }
}

void ParamStore::mark_written() { std::fill(written_.begin(), written_.end(), char{1}); }

float ParamStore::take_beta(int id) {
  char& written = written_[static_cast<size_t>(id)];
  const float beta = written ? 1.0f : 0.0f;
  written = 1;
  return beta;
}

}  // namespace mantissa
