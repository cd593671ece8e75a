#include "model/param.h"

#include <cmath>
#include <cstring>

#include "base/parallel.h"

namespace mantissa {
namespace {

std::vector<float> to_floats(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.count()));
  if (t.dtype == DType::kF32) {
    std::memcpy(out.data(), t.data, out.size() * sizeof(float));
  } else {
    const bf16* p = t.as<bf16>();
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(p[i]);
  }
  return out;
}

// Two independent standard normals from 64 random bits (Box and Muller 1958).
void normal_pair(uint32_t a, uint32_t b, float* out) {
  const double u = (static_cast<double>(a) + 0.5) / 4294967296.0, w = static_cast<double>(b) / 4294967296.0;
  const double r = std::sqrt(-2 * std::log(u)), angle = 6.283185307179586 * w;
  out[0] = static_cast<float>(r * std::cos(angle));
  out[1] = static_cast<float>(r * std::sin(angle));
}

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

void ParamStore::allocate(Arena& arena) {
  for (auto* list : {&weight_, &master_, &grad_, &m_, &v_}) list->clear();
  for (const ParamSpec& s : specs_) {
    weight_.push_back(arena.tensor("weights", compute_dtype(), s.shape));
    if (has_master()) master_.push_back(arena.tensor("master weights", DType::kF32, s.shape));
    if (!options_.training) continue;
    grad_.push_back(arena.tensor("gradients", options_.grads, s.shape));
    m_.push_back(arena.tensor("optimizer", options_.state, s.shape));
    v_.push_back(arena.tensor("optimizer", options_.state, s.shape));
  }
}

void ParamStore::initialize(uint64_t seed) {
  std::vector<float> values;
  for (int id = 0; id < size(); ++id) {
    const ParamSpec& s = spec(id);
    values.assign(static_cast<size_t>(s.shape.count()), s.init == Init::kOnes ? 1.0f : 0.0f);
    if (s.init == Init::kNormal) {
      const RandomKey key{seed, 0, static_cast<uint32_t>(id), DrawForm::kInit};
      const int64_t n = s.shape.count();
      parallel_for(ceil_div(n, 4), 1024, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const Random4 r = draw(key, static_cast<uint64_t>(block));
          float four[4];
          normal_pair(r.x[0], r.x[1], four);
          normal_pair(r.x[2], r.x[3], four + 2);
          for (int64_t i = 0; i < 4 && block * 4 + i < n; ++i)
            values[static_cast<size_t>(block * 4 + i)] = static_cast<float>(s.init_std) * four[i];
        }
      });
    }
    set(id, values.data());
  }
}

void ParamStore::set(int id, const float* values) {
  const int64_t n = spec(id).shape.count();
  if (has_master()) std::memcpy(updated(id).data, values, static_cast<size_t>(n) * sizeof(float));
  const Tensor w = weight(id);
  if (w.dtype == DType::kF32) {
    std::memcpy(w.data, values, static_cast<size_t>(n) * sizeof(float));
  } else {
    bf16* p = w.as<bf16>();
    for (int64_t i = 0; i < n; ++i) p[i] = to_bf16(values[i]);
  }
}

std::vector<float> ParamStore::values(int id) const { return to_floats(updated(id)); }
std::vector<float> ParamStore::grad_values(int id) const { return to_floats(grad(id)); }

void ParamStore::begin_step() {
  for (int id = 0; id < size(); ++id) {
    written_[static_cast<size_t>(id)] = 0;
    if (spec(id).shape.rank() < 2) std::memset(grad(id).data, 0, static_cast<size_t>(grad(id).bytes()));
  }
}

float ParamStore::take_beta(int id) {
  char& written = written_[static_cast<size_t>(id)];
  const float beta = written ? 1.0f : 0.0f;
  written = 1;
  return beta;
}

}  // namespace mantissa
