#include "ops/cuda/attention/cudnn.h"

#include "base/error.h"
#include "tensor/cuda/check.h"

#ifdef MANTISSA_CUDNN_FRONTEND

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>

// The library that cudnn-frontend looks its functions up in.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace mantissa::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr const char* kLibrary = "libcudnn.so.9";
// Before it, plans of lengths that are no multiple of 128 copy from host memory at each call.
constexpr size_t kOldestVersion = 91600;

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStatistics,
  kDout,
  kDq,
  kDk,
  kDv,
  kLengthsQ,
  kLengthsKv,
  kFirstQkv,
  kFirstOut,
  kFirstStatistic
};

constexpr const char* kArrow = " -> ";

// What cannot be made is not available here, unless CUDA says more.
void need(fe::error_t status, const char* what) {
  if (status.is_bad()) fail_in_library(fmt::format("cuDNN: {}: {}", what, status.get_message()), Exit::kUnavailable);
}

void need(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail_in_library(fmt::format("cuDNN: {}: status {}", what, static_cast<int>(status)), Exit::kUnavailable);
}

// "attention_bwd bf16 16x1024 tokens 16+8 heads of 128 scale 0.0883883", packed "4096 tokens in 4 slots of 1024".
std::string words_of(const CudnnShape& s) {
  const std::string documents = s.packed ? fmt::format("{} tokens in {} slots of {}", s.tokens, s.batch, s.longest)
                                         : fmt::format("{}x{} tokens", s.batch, s.longest);
  return fmt::format("{} bf16 {} {}+{} heads of {} scale {}", s.backward ? "attention_bwd" : "attention_fwd", documents,
                     s.heads, s.kv_heads, s.head_dim, s.scale);
}

// A graph, and the addresses that its next execution takes.
struct Plan {
  fe::graph::Graph graph;
  std::unordered_map<int64_t, void*> addresses;
  int64_t workspace = 0;
  std::string name;
};

class GraphBuilder {
 public:
  GraphBuilder(Plan& plan, const CudnnShape& shape) : plan_(plan), shape_(shape) {}

  void build() {
    plan_.graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (shape_.packed) {
      const int64_t slots = shape_.batch;
      lengths_q_ = integers(kLengthsQ, slots), lengths_kv_ = integers(kLengthsKv, slots);
      first_qkv_ = integers(kFirstQkv, slots + 1), first_out_ = integers(kFirstOut, slots + 1);
      first_statistic_ = integers(kFirstStatistic, slots + 1);
    }
    shape_.backward ? backward() : forward();
  }

 private:
  void forward() {
    fe::graph::SDPA_attributes options;
    options.set_name("attention").set_generate_stats(true).set_causal_mask(true).set_attn_scale(shape_.scale);
    if (shape_.packed) options.set_padding_mask(true).set_seq_len_q(lengths_q_).set_seq_len_kv(lengths_kv_);
    auto [out, statistics] = plan_.graph.sdpa(q(), k(), v(), options);
    output(out, kOut);
    lay_out(out);
    output(statistics, kStatistics);
    lay_statistics(statistics);
  }

  void backward() {
    const TensorPtr out = input(kOut), dout = input(kDout), statistics = input(kStatistics);
    lay_out(out), lay_out(dout), lay_statistics(statistics);
    fe::graph::SDPA_backward_attributes options;
    options.set_name("attention_bwd").set_causal_mask(true).set_attn_scale(shape_.scale);
    if (shape_.packed)
      options.set_padding_mask(true)
          .set_seq_len_q(lengths_q_)
          .set_seq_len_kv(lengths_kv_)
          .set_max_total_seq_len_q(shape_.tokens)
          .set_max_total_seq_len_kv(shape_.tokens);
    auto [dq, dk, dv] = plan_.graph.sdpa_backward(q(), k(), v(), out, dout, statistics, options);
    output(dq, kDq), output(dk, kDk), output(dv, kDv);
    lay_part(dq, shape_.heads), lay_part(dk, shape_.kv_heads), lay_part(dv, shape_.kv_heads);
  }

  TensorPtr input(Uid uid) { return plan_.graph.tensor(fe::graph::Tensor_attributes().set_uid(uid)); }
  void output(const TensorPtr& tensor, Uid uid) { tensor->set_output(true).set_uid(uid); }
  TensorPtr integers(Uid uid, int64_t count) {
    const TensorPtr tensor = input(uid);
    tensor->set_dim({count, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(fe::DataType_t::INT32);
    return tensor;
  }

  TensorPtr q() { return part(kQ, shape_.heads); }
  TensorPtr k() { return part(kK, shape_.kv_heads); }
  TensorPtr v() { return part(kV, shape_.kv_heads); }
  TensorPtr part(Uid uid, int64_t heads) {
    const TensorPtr tensor = input(uid);
    lay_part(tensor, heads);
    return tensor;
  }

  // `heads` neighbouring heads of rows of `row` elements: [B, heads, S, D].
  void lay(const TensorPtr& tensor, int64_t heads, int64_t row, const TensorPtr& first) {
    const int64_t dim = shape_.head_dim;
    tensor->set_dim({shape_.batch, heads, shape_.longest, dim}).set_stride({shape_.longest * row, dim, row, 1});
    tensor->set_data_type(fe::DataType_t::BFLOAT16);
    if (first) tensor->set_ragged_offset(first);
  }
  void lay_part(const TensorPtr& tensor, int64_t heads) {
    lay(tensor, heads, (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim, first_qkv_);
  }
  void lay_out(const TensorPtr& tensor) { lay(tensor, shape_.heads, shape_.heads * shape_.head_dim, first_out_); }
  void lay_statistics(const TensorPtr& tensor) {
    const int64_t heads = shape_.heads, longest = shape_.longest;
    tensor->set_dim({shape_.batch, heads, longest, 1}).set_data_type(fe::DataType_t::FLOAT);
    if (shape_.packed)
      tensor->set_stride({heads * longest, 1, heads, 1}).set_ragged_offset(first_statistic_);
    else
      tensor->set_stride({heads * longest, longest, 1, 1});
  }

  Plan& plan_;
  const CudnnShape& shape_;
  TensorPtr lengths_q_, lengths_kv_, first_qkv_, first_out_, first_statistic_;  // null unless packed
};

}  // namespace

struct Cudnn::Impl {
  explicit Impl(CudaDevice& d) : device(d) {}
  ~Impl() {
    plans.clear();
    if (handle) fe::detail::destroy_handle(handle);
  }

  Plan& plan_of(const CudnnShape& shape) {
    if (const auto found = plans.find(shape); found != plans.end()) return *found->second;
    check(!device.capturing(), "attention: cuDNN has no plan for this shape yet; it runs once before it is captured");
    if (!handle) {
      need(fe::detail::create_handle(&handle), "cudnnCreate");
      need(fe::detail::set_stream(handle, device.stream()), "cudnnSetStream");
    }
    std::unique_ptr<Plan> plan = recorded(shape);
    if (!plan) {
      plan = described(shape);
      const fe::error_t first = plan->graph.build(handle, {fe::HeurMode_t::A});
      if (first.is_bad()) {
        plan = described(shape);
        need(plan->graph.build(handle, {fe::HeurMode_t::FALLBACK}), "attention");
        device.say_slow(shape.backward ? "attention_bwd" : "attention_fwd",
                        "cuDNN's heuristics offer no engine that runs: one of its fallback engines is taken");
      }
      need(plan->graph.get_plan_name(plan->name), "plan of attention");
    }
    need(plan->graph.get_workspace_size(plan->workspace), "workspace of attention");
    return *(plans[shape] = std::move(plan));
  }

  // The shape's graph, without a plan.
  std::unique_ptr<Plan> described(const CudnnShape& shape) const {
    auto plan = std::make_unique<Plan>();
    plan->graph.set_sm_version(device.info().sm);
    GraphBuilder(*plan, shape).build();
    return plan;
  }

  // The plan that a run recorded for the shape; null where there is none, or cuDNN does not offer it any more.
  std::unique_ptr<Plan> recorded(const CudnnShape& shape) {
    const std::string words = words_of(shape);
    const auto wanted = fixed.find(words);
    if (wanted == fixed.end()) return nullptr;
    std::unique_ptr<Plan> plan = described(shape);
    fe::graph::Graph& graph = plan->graph;
    need(graph.validate(), "attention");
    need(graph.build_operation_graph(handle), "attention");
    need(graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), "attention");
    const int64_t count = graph.get_execution_plan_count();
    for (int64_t i = 0; i < count; ++i) {
      if (graph.get_plan_name_at_index(i, plan->name).is_bad() || plan->name != wanted->second) continue;
      if (graph.build_plan_at_index(handle, i).is_good()) return plan;
    }
    fmt::print(stderr,
               "attention: cuDNN {} does not make the plan \"{}\" of the run's record for {}; one is chosen anew\n",
               version, wanted->second, words);
    return nullptr;
  }

  CudaDevice& device;
  std::string version;
  cudnnHandle_t handle = nullptr;
  std::map<CudnnShape, std::unique_ptr<Plan>> plans;
  std::map<std::string, std::string> fixed;  // plans' names by the words of their shapes
};

std::unique_ptr<Cudnn> Cudnn::open(CudaDevice& device, std::string& absence) {
  if (!fe::cudnn_dlhandle) fe::cudnn_dlhandle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!fe::cudnn_dlhandle) {
    absence = dlerror();
    return nullptr;
  }
  const size_t version = fe::detail::get_backend_version();
  auto impl = std::make_unique<Impl>(device);
  impl->version = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (version < kOldestVersion) {
    absence =
        fmt::format("cuDNN {} is older than {}.{}", impl->version, kOldestVersion / 10000, kOldestVersion / 100 % 100);
    return nullptr;
  }
  // cudnn-frontend takes the runtime of the CUDA version that this is built with, where several are installed.
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", fmt::format("libcudart.so.{}", CUDART_VERSION / 1000).c_str(), 0);
  return std::unique_ptr<Cudnn>(new Cudnn(std::move(impl)));
}

int64_t Cudnn::workspace_bytes(const CudnnShape& shape) { return impl_->plan_of(shape).workspace; }

void Cudnn::attention(const CudnnShape& shape, const CudnnTensors& t, void* workspace) {
  Plan& plan = impl_->plan_of(shape);
  const auto at = [&](const void* base, int64_t head) {
    return const_cast<char*>(static_cast<const char*>(base)) + head * shape.head_dim * 2;  // BF16
  };
  const auto set = [&](Uid uid, const void* address) { plan.addresses[uid] = const_cast<void*>(address); };
  const int64_t k = shape.heads, v = shape.heads + shape.kv_heads;
  set(kQ, t.qkv), set(kK, at(t.qkv, k)), set(kV, at(t.qkv, v)), set(kOut, t.out), set(kStatistics, t.statistics);
  if (shape.backward) set(kDout, t.dout), set(kDq, t.dqkv), set(kDk, at(t.dqkv, k)), set(kDv, at(t.dqkv, v));
  if (shape.packed) {
    set(kLengthsQ, t.lengths), set(kLengthsKv, t.lengths);
    set(kFirstQkv, t.first_qkv), set(kFirstOut, t.first_out), set(kFirstStatistic, t.first_statistic);
  }
  fe::error_t status = plan.graph.execute(impl_->handle, plan.addresses, workspace);
  if (status.is_bad())
    fail_in_library(fmt::format("cuDNN: attention: {}", status.get_message()), Exit::kInternal,
                    impl_->device.last_op());
}

void Cudnn::set_plans(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const size_t arrow = line.find(kArrow);
    if (!line.starts_with("attention_") || arrow == std::string::npos || arrow + std::strlen(kArrow) == line.size())
      fail(Exit::kInput, "attention plans: \"{}\" is not \"SHAPE -> PLAN\" as a run records it", line);
    impl_->fixed[line.substr(0, arrow)] = line.substr(arrow + std::strlen(kArrow));
  }
  impl_->plans.clear();
}

std::vector<std::string> Cudnn::plans() const {
  std::vector<std::string> lines;
  for (const auto& [shape, plan] : impl_->plans) lines.push_back(words_of(shape) + kArrow + plan->name);
  std::sort(lines.begin(), lines.end());
  return lines;
}

#else

namespace mantissa::cuda {

struct Cudnn::Impl {
  std::string version;
};

std::unique_ptr<Cudnn> Cudnn::open(CudaDevice&, std::string& absence) {
  absence = "built without cudnn-frontend";
  return nullptr;
}

int64_t Cudnn::workspace_bytes(const CudnnShape&) { return 0; }
void Cudnn::attention(const CudnnShape&, const CudnnTensors&, void*) {}
void Cudnn::set_plans(const std::vector<std::string>&) {}
std::vector<std::string> Cudnn::plans() const { return {}; }

#endif

Cudnn::Cudnn(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cudnn::~Cudnn() = default;
const std::string& Cudnn::version() const { return impl_->version; }

}  // namespace mantissa::cuda
