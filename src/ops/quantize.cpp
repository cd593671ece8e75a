// Checks, tensor scales and threads around the cast kernels.
#include "ops/quantize.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/parallel.h"
#include "ops/cpu/quantize.h"
#include "ops/cuda/table.h"

namespace mantissa {
namespace {

constexpr int64_t kAmaxGrain = 1 << 14;  // elements

bool block_is(const QuantFormat& f, std::initializer_list<int> allowed) {
  return std::find(allowed.begin(), allowed.end(), f.block) != allowed.end();
}

// The combinations that recipes know.
bool known(const QuantFormat& f) {
  const bool fp8 = f.element == DType::kE4M3 || f.element == DType::kE5M2;
  switch (f.rule) {
    case ScaleRule::kGiven:
      return fp8 && f.blocking == Blocking::kTensor;
    case ScaleRule::kCurrent:
    case ScaleRule::kCurrentPow2:
      return fp8 && (f.blocking == Blocking::kTensor || block_is(f, {128}));
    case ScaleRule::kE8M0:
      return fp8 && f.blocking != Blocking::kTensor && block_is(f, {32});
    case ScaleRule::kNvfp4:
      return f.element == DType::kE2M1 && f.blocking != Blocking::kTensor && block_is(f, {16});
  }
  return false;
}

void check_copy(const char* op, const Quantized& q) {
  const QuantFormat& f = q.format;
  check(known(f) && !(f.stochastic && f.element != DType::kE2M1),
        "{}: no cast to {} with scale rule {}, blocking {}, block {}{}", op, name_of(f.element),
        static_cast<int>(f.rule), static_cast<int>(f.blocking), f.block, f.stochastic ? ", stochastic" : "");
  check(q.data.shape.rank() == 2 && q.data.dtype == data_dtype(f), "{}: data is {}, expected {}[outer,inner]", op,
        q.data, name_of(data_dtype(f)));
  check(f.layout == ScaleLayout::kBlocks || (f.block == 128 && !f.values),
        "{}: data {} has scales for a library that "
        "takes blocks of 128 alone",
        op, q.data);
  if (f.element == DType::kE2M1 && q.data.dim(1) % 2 != 0)
    fail(Exit::kUsage, "{}: {} has odd rows; two FP4 codes share a byte", op, q.data);
  const Shape scales = scale_shape(f, q.data.dim(0), q.data.dim(1));
  check(q.scale_inv.dtype == scale_dtype(f) && q.scale_inv.shape == scales,
        "{}: scale_inv is {}, expected {}{} for data {}", op, q.scale_inv, name_of(scale_dtype(f)), scales, q.data);
  check(f.rule != ScaleRule::kNvfp4 || q.amax, "{}: an nvfp4 copy needs amax", op);
}

void check_source(const char* op, const Quantized& q, bool columnwise, const ConstTensor& x) {
  check_copy(op, q);
  check(x.dtype == DType::kBF16 || x.dtype == DType::kF32, "{}: source is {}, expected bf16 or f32", op, x);
  const int64_t m = x.rows(), k = x.cols();
  const Shape expected = columnwise ? Shape{k, m} : Shape{m, k};
  check(q.data.shape == expected, "{}: {} data is {}, expected {} from source {}", op,
        columnwise ? "columnwise" : "rowwise", q.data, expected, x);
  if (!q.format.hadamard) return;
  check(columnwise && q.format.blocking == Blocking::kRow && q.format.rule == ScaleRule::kNvfp4,
        "{}: the Hadamard transform is for columnwise nvfp4 copies in 1 x 16 blocks", op);
  if (x.dtype != DType::kBF16) fail(Exit::kUsage, "{}: source of a Hadamard transform is {}, expected bf16", op, x);
  if (m % 16 != 0)
    fail(Exit::kUsage, "{}: source is {}: {} tokens, expected a multiple of 16 for the Hadamard transform", op, x, m);
}

QuantizePanel& panel_of(Exec& exec) {
  static_assert(sizeof(QuantizePanel) <= Exec::kThreadScratch);
  return *reinterpret_cast<QuantizePanel*>(exec.thread_scratch(thread_id()));
}

// Runs body(begin, end) -> amax bits over chunks of [0, n); the maximum of all, which no order can change.
template <class Body>
float parallel_amax(Exec& exec, int64_t n, int64_t grain, Body&& body) {
  auto* most = reinterpret_cast<uint32_t*>(exec.shared_scratch());
  const int threads = max_threads();
  std::memset(most, 0, static_cast<size_t>(threads) * sizeof *most);
  parallel_for(n, grain, [&](int64_t begin, int64_t end) { most[thread_id()] = body(begin, end); });
  return std::bit_cast<float>(*std::max_element(most, most + threads));
}

float amax_of_source(Exec& exec, const ConstTensor& x) {
  const bool is_bf16 = x.dtype == DType::kBF16;
  return parallel_amax(exec, x.count(), kAmaxGrain, [&](int64_t begin, int64_t end) {
    return MANTISSA_CPU_CALL(exec, amax_of, x.data, is_bf16, begin, end);
  });
}

float amax_of_rotation(Exec& exec, const QuantizeJob& job) {
  return parallel_amax(exec, job.panels(), 1, [&](int64_t begin, int64_t end) {
    return MANTISSA_CPU_CALL(exec, amax_of_rotated, job, begin, end, panel_of(exec));
  });
}

struct Copy {
  Quantized* q;
  bool columnwise;
};

void check_copies(const Copy* copies, int count, const ConstTensor& x) {
  for (const Copy& copy : std::span(copies, static_cast<size_t>(count))) {
    check_source("quantize", *copy.q, copy.columnwise, x);
    check(copy.q->format.rule != ScaleRule::kGiven || copy.q->scale, "quantize: data {} has no given scale",
          copy.q->data);
  }
}

void cast(Exec& exec, const Copy* copies, int count, const ConstTensor& x, uint32_t tensor_id,
          const float* producer_amax) {
  for (const Copy& copy : std::span(copies, static_cast<size_t>(count)))
    check(!copy.q->format.values && copy.q->format.layout == ScaleLayout::kBlocks,
          "quantize: data {} is stored as a GPU's products take it", copy.q->data);
  QuantizeJob job{};
  job.x = x.data;
  job.is_bf16 = x.dtype == DType::kBF16;
  job.m = x.rows();
  job.k = x.cols();
  job.token_offset = exec.state.token_offset + exec.row_offset;

  float source_amax = producer_amax ? *producer_amax : -1.0f;  // below zero: not known yet
  for (int i = 0; i < count; ++i) {
    Quantized& q = *copies[i].q;
    const QuantFormat& f = q.format;
    // The turned copy of tiles holds the same codes, so it draws the same bits.
    const bool own_draws = copies[i].columnwise && f.blocking == Blocking::kRow;
    QuantizeForm& form = job.forms[job.form_count++];
    form.format = f;
    form.columnwise = copies[i].columnwise;
    form.data = q.data.as<uint8_t>();
    form.scale_inv = q.scale_inv.data;
    form.key = exec.random_key(tensor_id, own_draws ? DrawForm::kColumnwise : DrawForm::kRowwise);

    const bool needs_amax =
        f.rule == ScaleRule::kNvfp4 || (f.blocking == Blocking::kTensor && f.rule != ScaleRule::kGiven);
    float amax = 0;
    if (f.hadamard) {
      amax = amax_of_rotation(exec, job);
    } else if (needs_amax || q.amax || q.raised) {
      if (source_amax < 0) source_amax = amax_of_source(exec, x);
      amax = source_amax;
    }
    if (q.amax) *q.amax = amax;
    if (q.raised && exec.pass == Pass::kForward) *q.raised = std::max(*q.raised, amax);
    if (f.rule == ScaleRule::kNvfp4) form.nvfp4 = nvfp4_tensor_scale(amax);
    if (f.blocking == Blocking::kTensor) {
      form.tensor_scale = f.rule == ScaleRule::kGiven
                              ? *q.scale
                              : compute_scale_from_amax(amax, f.element == DType::kE4M3 ? kMaxE4M3 : kMaxE5M2,
                                                        f.rule == ScaleRule::kCurrentPow2, kScaleForInfF32);
      q.scale_inv.as<float>()[0] = 1.0f / form.tensor_scale;
    }
  }
  parallel_for(job.panels(), 1, [&](int64_t begin, int64_t end) {
    MANTISSA_CPU_CALL(exec, quantize_panels, job, begin, end, panel_of(exec));
  });
}

}  // namespace

void quantize(Exec& exec, Operand& x) {
  Copy copies[2];
  int count = 0;
  if (x.rowwise) copies[count++] = {&x.rowwise, false};
  if (x.columnwise) copies[count++] = {&x.columnwise, true};
  if (!count) return;
  check_copies(copies, count, x.high);
  if (exec.device()) return exec.gpu().quantize(exec, x);
  cast(exec, copies, count, x.high, x.tensor_id, x.producer_amax);
}

void quantize_form(Exec& exec, Quantized& q, bool columnwise, ConstTensor x, uint32_t tensor_id,
                   const float* producer_amax) {
  const Copy copy{&q, columnwise};
  check_copies(&copy, 1, x);
  if (exec.device()) return exec.gpu().quantize_form(exec, q, columnwise, x, tensor_id, producer_amax);
  cast(exec, &copy, 1, x, tensor_id, producer_amax);
}

void dequantize(Exec& exec, Tensor y, const Quantized& q) {
  check_copy("dequantize", q);
  check(y.dtype == DType::kF32 && y.shape == q.data.shape, "dequantize: y is {}, expected f32{}", y, q.data.shape);
  if (exec.device()) return exec.gpu().dequantize(exec, y, q);
  const QuantizedView job = view_of(q);
  parallel_for(job.outer, 1, [&](int64_t begin, int64_t end) {
    MANTISSA_CPU_CALL(exec, dequantize_rows, job, y.as<float>(), begin, end);
  });
}

QuantError quantization_error(Exec& exec, const Quantized& q, bool columnwise, ConstTensor x) {
  check_source("quantization_error", q, columnwise, x);
  if (exec.device()) return exec.gpu().quantization_error(exec, q, columnwise, x);
  const QuantizedView job = view_of(q);
  const int64_t chunks = ceil_div(job.outer, kErrorRows);
  auto* part = reinterpret_cast<QuantError*>(exec.shared_scratch());
  check(chunks * static_cast<int64_t>(sizeof *part) <= exec.shared_scratch_bytes(),
        "quantization_error: {} rows exceed the scratch of {} bytes", job.outer, exec.shared_scratch_bytes());
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      part[c] = MANTISSA_CPU_CALL(exec, error_of_rows, job, columnwise, x.data, x.dtype == DType::kBF16, c * kErrorRows,
                                  std::min((c + 1) * kErrorRows, job.outer), panel_of(exec));
  });
  QuantError sum;
  for (int64_t c = 0; c < chunks; ++c) sum += part[c];
  return sum;
}

}  // namespace mantissa
