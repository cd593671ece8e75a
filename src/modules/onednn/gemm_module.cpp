// oneDNN's matmul behind one C function; primitives are made once a shape and kept.
#include <oneapi/dnnl/dnnl.hpp>

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>

#include "ops/cpu_gemm/onednn.h"

namespace mantissa {
namespace {

using Memory = dnnl::memory;

Memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? Memory::data_type::bf16 : Memory::data_type::f32;
}

// What a primitive depends on.
using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, int, bool, bool, bool>;

Key key_of(const GemmProblem& p) {
  const int bias = p.bias ? 1 + static_cast<int>(p.bias_dtype) : 0;
  return {p.m, p.n, p.k, p.a.dtype, p.c_dtype, bias, p.a.transposed, p.b.transposed, p.accumulate};
}

struct Matmuls {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, dnnl::matmul::primitive_desc> descs;
  std::map<Key, dnnl::matmul> primitives;
  std::mutex one_call;
};

dnnl::matmul::primitive_desc describe(const GemmProblem& p, const dnnl::engine& engine) {
  const Memory::dims left = p.a.transposed ? Memory::dims{1, p.m} : Memory::dims{p.k, 1};
  const Memory::dims right = p.b.transposed ? Memory::dims{p.n, 1} : Memory::dims{1, p.k};
  const Memory::desc a({p.m, p.k}, type_of(p.a.dtype), left), b({p.k, p.n}, type_of(p.b.dtype), right);
  const Memory::desc c({p.m, p.n}, type_of(p.c_dtype), Memory::dims{p.n, 1});
  const Memory::desc bias =
      p.bias ? Memory::desc({1, p.n}, type_of(p.bias_dtype), Memory::dims{p.n, 1}) : Memory::desc();
  dnnl::primitive_attr attributes;
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return p.bias ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes)
                : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
  const dnnl::matmul::desc desc = p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return {desc, attributes, engine};
#endif
}

void run(Matmuls& all, const GemmProblem& p, bool execute) {
  const std::lock_guard lock(all.one_call);
  const Key key = key_of(p);
  auto found = all.primitives.find(key);
  if (found == all.primitives.end()) {
    const auto desc = describe(p, all.engine);
    all.descs.emplace(key, desc);
    found = all.primitives.emplace(key, dnnl::matmul(desc)).first;
  }
  if (!execute) return;
  const dnnl::matmul::primitive_desc& desc = all.descs.at(key);
  const auto memory = [&](const Memory::desc& layout, const void* data) {
    return Memory(layout, all.engine, const_cast<void*>(data));
  };
  std::unordered_map<int, Memory> args{{DNNL_ARG_SRC, memory(desc.src_desc(), p.a.data)},
                                       {DNNL_ARG_WEIGHTS, memory(desc.weights_desc(), p.b.data)},
                                       {DNNL_ARG_DST, memory(desc.dst_desc(), p.c)}};
  if (p.bias) args.emplace(DNNL_ARG_BIAS, memory(desc.bias_desc(), p.bias));
  found->second.execute(all.stream, args);
  all.stream.wait();
}

}  // namespace
}  // namespace mantissa

extern "C" __attribute__((visibility("default"))) const char* mantissa_onednn_gemm(const mantissa::GemmProblem* problem,
                                                                                   bool execute) {
  static thread_local std::string message;
  try {
    static mantissa::Matmuls all;
    mantissa::run(all, *problem, execute);
    return nullptr;
  } catch (const dnnl::error& error) {
    message = error.message;
    return message.c_str();
  }
}
