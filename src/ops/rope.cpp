#include "ops/rope.h"

#include "base/parallel.h"
#include "ops/cpu/rope.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"
#include "tensor/quant.h"

namespace mantissa {
namespace {

constexpr int64_t kGrain = 16;              // tokens
constexpr int64_t kWeightGradTokens = 256;  // tokens of one partial sum of the weight gradients
constexpr int64_t kWeightGradPartials = 1024;

void check_layout(const char* op, const HeadLayout& layout) {
  check(layout.kv_heads > 0 && layout.heads > 0 && layout.heads % layout.kv_heads == 0,
        "{}: {} heads, expected a multiple of {} kv heads", op, layout.heads, layout.kv_heads);
  check(layout.head_dim > 0 && layout.head_dim % 2 == 0, "{}: head_dim is {}, expected an even number", op,
        layout.head_dim);
}

void check_args(const char* op, const Exec& exec, const ConstTensor& y, const ConstTensor& x,
                const ConstTensor& cos_sin, const ConstTensor& positions, const HeadLayout& layout) {
  check_layout(op, layout);
  if (x.dtype != DType::kBF16 && x.dtype != DType::kF32)
    fail(Exit::kInternal, "{}: x is {}, expected bf16 or f32", op, x);
  expect(op, "x", x, x.dtype, {x.rows(), layout.qkv_cols()}, "[T, (N + 2 KV) D]");
  expect(op, "y", y, x.dtype, x.shape, "as x");
  if (!cos_sin.data || cos_sin.dtype != DType::kF32 || cos_sin.shape.rank() != 2 || cos_sin.dim(1) != layout.head_dim)
    fail(Exit::kInternal, "{}: cos_sin is {}, expected f32[P,{}]", op, cos_sin, layout.head_dim);
  expect(op, "positions", positions, DType::kI32, {x.rows()}, "T of x");
  if (exec.device()) return;
  const auto* p = static_cast<const int32_t*>(positions.data);
  for (int64_t t = 0; t < x.rows(); ++t)
    check(p[t] >= 0 && p[t] < cos_sin.dim(0), "{}: positions[{}] is {}, expected [0, {}) (P of cos_sin)", op, t, p[t],
          cos_sin.dim(0));
}

void check_norm(const char* op, const ConstTensor& x, const ConstTensor& rstd, const ConstTensor& q_weight,
                const ConstTensor& k_weight, const HeadLayout& layout) {
  expect(op, "rstd", rstd, DType::kF32, {x.rows(), layout.heads + layout.kv_heads}, "[T, N + KV]");
  expect(op, "q_weight", q_weight, x.dtype, {layout.head_dim}, "D, dtype of x");
  expect(op, "k_weight", k_weight, x.dtype, {layout.head_dim}, "D, dtype of x");
}

template <class E>
RopeJob<E> job_of(const Tensor& y, const ConstTensor& x, const ConstTensor& cos_sin, const ConstTensor& positions,
                  const HeadLayout& layout) {
  return {.layout = layout,
          .cos_sin = cos_sin.as<float>(),
          .positions = positions.as<int32_t>(),
          .y = y.as<E>(),
          .x = x.as<E>()};
}

template <class E>
void run_rope(Exec& exec, const Tensor& y, const ConstTensor& x, const ConstTensor& cos_sin,
              const ConstTensor& positions, const HeadLayout& layout, bool inverse) {
  RopeJob<E> job = job_of<E>(y, x, cos_sin, positions, layout);
  if (inverse) job.dy = job.x;
  parallel_for(x.rows(), kGrain,
               [&](int64_t begin, int64_t end) { MANTISSA_CPU_CALL(exec, rope, job, inverse, begin, end); });
}

// dw += the partial sums, in their order.
template <class W>
void add_partials(W* dw, const float* partials, int64_t count, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) {
    float sum = 0;
    for (int64_t p = 0; p < count; ++p) sum += partials[p * 2 * dim + i];
    dw[i] = from_float<W>(to_float(dw[i]) + sum);
  }
}

template <class E>
void run_norm_bwd(Exec& exec, RopeJob<E> job, const Tensor& dq_weight, const Tensor& dk_weight, int64_t tokens) {
  const int64_t dim = job.layout.head_dim;
  // The cut of the tokens depends on their number alone, so the sums do not depend on the threads.
  int64_t step = kWeightGradTokens;
  while (ceil_div(tokens, step) > kWeightGradPartials) step *= 2;
  const int64_t count = ceil_div(tokens, step), bytes = count * 2 * dim * static_cast<int64_t>(sizeof(float));
  check(bytes <= exec.shared_scratch_bytes(), "qk_norm_rope_bwd: {} bytes of shared scratch, needs {}",
        exec.shared_scratch_bytes(), bytes);
  auto* partials = reinterpret_cast<float*>(exec.shared_scratch());
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t last = (p + 1) * step < tokens ? (p + 1) * step : tokens;
      MANTISSA_CPU_CALL(exec, qk_norm_rope_bwd, job, partials + p * 2 * dim, p * step, last);
    }
  });
  for (const auto& [dw, offset] : {std::pair{&dq_weight, int64_t{0}}, std::pair{&dk_weight, dim}}) {
    if (dw->dtype == DType::kF32)
      add_partials(dw->template as<float>(), partials + offset, count, dim);
    else
      add_partials(dw->template as<bf16>(), partials + offset, count, dim);
  }
}

}  // namespace

void rope_fwd(Exec& exec, Tensor y, ConstTensor x, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout) {
  check_args("rope_fwd", exec, y, x, cos_sin, positions, layout);
  if (exec.device()) return exec.gpu().rope_fwd(exec, y, x, cos_sin, positions, layout);
  if (x.dtype == DType::kBF16)
    run_rope<bf16>(exec, y, x, cos_sin, positions, layout, false);
  else
    run_rope<float>(exec, y, x, cos_sin, positions, layout, false);
}

void rope_bwd(Exec& exec, Tensor dx, ConstTensor dy, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout) {
  check_args("rope_bwd", exec, dx, dy, cos_sin, positions, layout);
  if (exec.device()) return exec.gpu().rope_bwd(exec, dx, dy, cos_sin, positions, layout);
  if (dy.dtype == DType::kBF16)
    run_rope<bf16>(exec, dx, dy, cos_sin, positions, layout, true);
  else
    run_rope<float>(exec, dx, dy, cos_sin, positions, layout, true);
}

void qk_norm_rope_fwd(Exec& exec, Tensor y, Tensor rstd, ConstTensor x, ConstTensor q_weight, ConstTensor k_weight,
                      ConstTensor cos_sin, ConstTensor positions, const HeadLayout& layout, float eps) {
  check_args("qk_norm_rope_fwd", exec, y, x, cos_sin, positions, layout);
  check_norm("qk_norm_rope_fwd", x, rstd, q_weight, k_weight, layout);
  if (exec.device())
    return exec.gpu().qk_norm_rope_fwd(exec, y, rstd, x, q_weight, k_weight, cos_sin, positions, layout, eps);
  const auto run = [&]<class E>(E) {
    RopeJob<E> job = job_of<E>(y, x, cos_sin, positions, layout);
    job.q_weight = q_weight.as<E>(), job.k_weight = k_weight.as<E>();
    job.rstd = rstd.as<float>(), job.eps = eps;
    parallel_for(x.rows(), kGrain,
                 [&](int64_t begin, int64_t end) { MANTISSA_CPU_CALL(exec, qk_norm_rope_fwd, job, begin, end); });
  };
  x.dtype == DType::kBF16 ? run(bf16{}) : run(float{});
}

void qk_norm_rope_bwd(Exec& exec, Tensor dx, Tensor dq_weight, Tensor dk_weight, ConstTensor dy, ConstTensor x,
                      ConstTensor rstd, ConstTensor q_weight, ConstTensor k_weight, ConstTensor cos_sin,
                      ConstTensor positions, const HeadLayout& layout) {
  const char* op = "qk_norm_rope_bwd";
  check_args(op, exec, dx, x, cos_sin, positions, layout);
  check_norm(op, x, rstd, q_weight, k_weight, layout);
  expect(op, "dy", dy, x.dtype, x.shape, "as x");
  check(dx.data != x.data || x.data == dy.data, "{}: dx may be dy itself, not x", op);
  for (const auto& [name, dw] : {std::pair{"dq_weight", &dq_weight}, std::pair{"dk_weight", &dk_weight}}) {
    if (dw->dtype != DType::kF32 && dw->dtype != DType::kBF16)
      fail(Exit::kInternal, "{}: {} is {}, expected f32 or bf16", op, name, dw->str());
    expect(op, name, *dw, dw->dtype, {layout.head_dim}, "D");
  }
  if (exec.device())
    return exec.gpu().qk_norm_rope_bwd(exec, dx, dq_weight, dk_weight, dy, x, rstd, q_weight, k_weight, cos_sin,
                                       positions, layout);
  const auto run = [&]<class E>(E) {
    RopeJob<E> job = job_of<E>(dx, x, cos_sin, positions, layout);
    job.dy = dy.as<E>(), job.q_weight = q_weight.as<E>(), job.k_weight = k_weight.as<E>();
    job.rstd = const_cast<float*>(rstd.as<float>());
    run_norm_bwd(exec, job, dq_weight, dk_weight, x.rows());
  };
  x.dtype == DType::kBF16 ? run(bf16{}) : run(float{});
}

}  // namespace mantissa
