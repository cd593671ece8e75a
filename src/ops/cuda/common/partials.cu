#include "ops/cuda/common/partials.h"

#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

struct Target {
  void* sum;
  bool is_bf16;
};

// A block sums kWarp columns of one target: warp w the rows w, w + kWarp, ..., then warp w the column w over all warps.
__global__ void __launch_bounds__(kWarp* kWarp)
    add_partials_kernel(const float* partial, int rows, int64_t stride, int64_t cols, Target a, Target b) {
  __shared__ float sums[kWarp][kWarp + 1];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first = int64_t{blockIdx.x} * kWarp, column = first + warp;
  const Target target = blockIdx.y ? b : a;
  auto* const half = static_cast<Bf16*>(target.sum) + column;
  auto* const single = static_cast<float*>(target.sum) + column;
  const bool writes = lane == 0 && column < cols;
  wait_for_last();
  const float old = !writes ? 0.0f : target.is_bf16 ? to_f32(*half) : *single;
  const float* p = partial + (blockIdx.y ? cols : 0) + first + lane;
  float sum = 0;
  if (first + lane < cols) {
#pragma unroll 8
    for (int row = warp; row < rows; row += kWarp) sum += p[row * stride];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  sum = old + lanes_sum(sums[lane][warp]);
  if (!writes) return;
  if (target.is_bf16)
    *half = from_f32<Bf16>(sum);
  else
    *single = sum;
}

}  // namespace

float* partial_rows(const char* op, const Exec& exec, int64_t rows, int64_t cols) {
  const int64_t bytes = rows * cols * int64_t{sizeof(float)};
  check(bytes <= exec.shared_scratch_bytes(),
        "{}: {} bytes of shared scratch, needs {} ({} partial sums of {} columns)", op, exec.shared_scratch_bytes(),
        bytes, rows, cols);
  return reinterpret_cast<float*>(exec.shared_scratch());
}

void add_partials(Exec& exec, const float* partial, int64_t rows, Tensor a, Tensor b) {
  const int64_t cols = a.count();
  const unsigned targets = b ? 2 : 1;
  const Grid grid{
      .blocks = dim3(static_cast<unsigned>(ceil_div(cols, kWarp)), targets), .threads = kWarp * kWarp, .follows = true};
  launch(device_of(exec), grid, add_partials_kernel, partial, static_cast<int>(rows), targets * cols, cols,
         Target{a.data, a.dtype == DType::kBF16}, Target{b.data, b.dtype == DType::kBF16});
}

}  // namespace mantissa::cuda
