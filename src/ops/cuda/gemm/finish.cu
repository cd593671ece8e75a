#include "numerics/block_scale.h"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/gemm/finish.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256;

template <class To, class From>
__global__ void __launch_bounds__(kThreads) gemm_convert_kernel(To* to, const From* from, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) to[i] = from_f32<To>(to_f32(from[i]));
}

template <class C, class Bias>
__global__ void __launch_bounds__(kThreads)
    gemm_finish_kernel(C* c, const float* product, const Bias* bias, bool accumulate, int64_t m, int64_t n) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= n) return;
  const float shift = bias ? to_f32(bias[column]) : 0;
  for (int64_t row = blockIdx.y; row < m; row += gridDim.y) {
    const int64_t i = row * n + column;
    float sum = product[i] + shift;
    if (accumulate) sum += to_f32(c[i]);
    c[i] = from_f32<C>(sum);
  }
}

__global__ void nvfp4_alpha_kernel(float* alpha, const float* amax_a, const float* amax_b, float beta) {
  alpha[0] = *amax_a * *amax_b * kNvfp4Factor;
  alpha[1] = beta;
}

}  // namespace

void nvfp4_alpha(CudaDevice& device, float* alpha, const float* amax_a, const float* amax_b, float beta) {
  launch(device, {.blocks = 1, .threads = 1}, nvfp4_alpha_kernel, alpha, amax_a, amax_b, beta);
}

void copy_bias(CudaDevice& device, Tensor to, ConstTensor from) {
  const int64_t n = to.count();
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(n, int64_t{kThreads})), .threads = kThreads};
  visit_float(to, [&]<class To>(To* t) {
    visit_float(from, [&]<class From>(const From* f) { launch(device, grid, gemm_convert_kernel<To, From>, t, f, n); });
  });
}

void finish_product(CudaDevice& device, Tensor c, ConstTensor product, ConstTensor bias, bool accumulate) {
  const int64_t m = c.rows(), n = c.cols();
  const Grid grid{.blocks = dim3(static_cast<unsigned>(ceil_div(n, int64_t{kThreads})),
                                 static_cast<unsigned>(std::min(m, int64_t{1024}))),
                  .threads = kThreads};
  visit_float(c, [&]<class C>(C* cp) {
    visit_float(bias, [&]<class Bias>(const Bias* bp) {
      launch(device, grid, gemm_finish_kernel<C, Bias>, cp, static_cast<const float*>(product.data), bp, accumulate, m,
             n);
    });
  });
}

}  // namespace mantissa::cuda
