// What quantized copies stand for, and how far that is from their source.
#include <vector>

#include "numerics/error_metrics.h"
#include "numerics/hadamard.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/quantize.h"
#include "ops/quantized_value.h"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256, kGroup = 16;  // elements along a row, within a block of every format
static_assert(kGroup == kHadamardSize);

// Codes of the group of element (row, j), one a byte; the group ends with the row.
__device__ __forceinline__ int load_codes(const QuantizedView& q, int64_t row, int64_t j, uint8_t (&codes)[kGroup]) {
  const int count = static_cast<int>(min(int64_t{kGroup}, q.inner - j));
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    codes[i] = 0;
    if (i >= count) continue;
    const int64_t e = row * q.inner + j + i;
    codes[i] = q.format.element == DType::kE2M1 ? (q.data[e / 2] >> (e % 2 * 4)) & 15u : q.data[e];
  }
  return count;
}

__global__ void __launch_bounds__(kThreads) dequantize_kernel(const __grid_constant__ QuantizedView q, float* y) {
  const int64_t groups = ceil_div(q.inner, kGroup), task = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = task / groups, j = task % groups * kGroup;
  if (row >= q.outer) return;
  uint8_t codes[kGroup];
  const int count = load_codes(q, row, j, codes);
  const float factor = factor_of(q, row, j);
#pragma unroll
  for (int i = 0; i < kGroup; ++i)
    if (i < count) y[row * q.inner + j + i] = decode(q.format.element, codes[i]) * factor;
}

// What a group stands for, and which of its codes are the format's largest.
struct Group {
  float values[kGroup];
  bool largest[kGroup];
};
__device__ __forceinline__ int load_group(const QuantizedView& q, int64_t row, int64_t j, Group& group) {
  const QuantFormat& f = q.format;
  if (!f.values) {
    uint8_t codes[kGroup];
    const int count = load_codes(q, row, j, codes);
    const float factor = factor_of(q, row, j);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      group.values[i] = decode(f.element, codes[i]) * factor;
      group.largest[i] = is_largest(f.element, codes[i]);
    }
    return count;
  }
  const int count = static_cast<int>(min(int64_t{kGroup}, q.inner - j));
  const int64_t line = f.blocking == Blocking::kTile ? row / f.block : row;
  const uint8_t scale = static_cast<const uint8_t*>(q.scale_inv)[scale_index(f, q.outer, q.inner, line, j / f.block)];
  const bool nvfp4 = f.rule == ScaleRule::kNvfp4;
  const float top = decode(f.element, largest_code(f.element)) * (nvfp4 ? decode_e4m3(scale) : decode_e8m0(scale));
  const float tensor = nvfp4 ? *q.amax * (1.0f / 2688.0f) : 1.0f;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    const float value = i < count ? to_float(reinterpret_cast<const bf16*>(q.data)[row * q.inner + j + i]) : 0.0f;
    group.values[i] = value * tensor;
    group.largest[i] = fabsf(value) == top;
  }
  return count;
}

constexpr int kErrorRows = 32;  // outer rows whose error a block sums

template <class T>
__global__ void __launch_bounds__(kThreads)
    quantize_error_kernel(const __grid_constant__ QuantizedView q, bool columnwise, const T* x, QuantError* errors) {
  QuantError sum;
  const int64_t groups = ceil_div(q.inner, kGroup), first = int64_t{blockIdx.x} * kErrorRows;
  const int64_t tasks = min(int64_t{kErrorRows}, q.outer - first) * groups;
  for (int64_t task = threadIdx.x; task < tasks; task += kThreads) {
    const int64_t row = first + task / groups, j = task % groups * kGroup;
    Group group;
    const int count = load_group(q, row, j, group);
    float source[kGroup] = {};
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (i < count) source[i] = to_float(x[columnwise ? (j + i) * q.outer + row : row * q.inner + j + i]);
    if (q.format.hadamard) {
      bf16 from[kGroup], to[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) from[i] = to_bf16(source[i]);
      hadamard16(from, to);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) source[i] = to_float(to[i]);
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i >= count) continue;
      const float value = group.values[i];
      const double difference = double{source[i]} - double{value};
      sum.signal += double{source[i]} * double{source[i]};
      sum.noise += difference * difference;
      sum.amax = larger_magnitude(sum.amax, source[i]);
      sum.saturated += group.largest[i] && is_beyond(source[i], value);
      sum.flushed += is_flushed(source[i], value);
      ++sum.count;
    }
  }
  // One order of the additions, whatever the timing.
  __shared__ QuantError sums[kThreads];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int t = 1; t < kThreads; ++t) sum += sums[t];
  errors[blockIdx.x] = sum;
}

// numerics' bf16 has the bits of the header's type.
template <class F>
void visit_source(const ConstTensor& x, F&& f) {
  x.dtype == DType::kBF16 ? f(static_cast<const bf16*>(x.data)) : f(static_cast<const float*>(x.data));
}

void check_codes(const char* op, const Quantized& q) {
  check(!q.format.values, "{}: data {} holds values, expected codes", op, q.data);
}

}  // namespace

void dequantize(Exec& exec, Tensor y, const Quantized& q) {
  const OpScope scope(exec, "dequantize");
  if (y.count() == 0) return;
  check_codes("dequantize", q);
  const QuantizedView view = view_of(q);
  const int64_t blocks = ceil_div(view.outer * ceil_div(view.inner, kGroup), kThreads);
  launch(device_of(exec), {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, dequantize_kernel, view,
         y.as<float>());
}

QuantError quantization_error(Exec& exec, const Quantized& q, bool columnwise, ConstTensor x) {
  const OpScope scope(exec, "quantization_error");
  QuantError sum;
  if (x.count() == 0) return sum;
  const QuantizedView view = view_of(q);
  const int64_t blocks = ceil_div(view.outer, kErrorRows), bytes = blocks * static_cast<int64_t>(sizeof(QuantError));
  check(bytes <= exec.shared_scratch_bytes(), "quantization_error: {} rows exceed the scratch of {} bytes", view.outer,
        exec.shared_scratch_bytes());
  auto* errors = reinterpret_cast<QuantError*>(exec.shared_scratch());
  visit_source(x, [&]<class T>(const T* p) {
    launch(device_of(exec), {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, quantize_error_kernel<T>,
           view, columnwise, p, errors);
  });
  std::vector<QuantError> parts(static_cast<size_t>(blocks));
  device_of(exec).copy_out(parts.data(), errors, bytes);
  for (const QuantError& part : parts) sum += part;
  return sum;
}

}  // namespace mantissa::cuda
