#include "ops/elementwise.h"

#include <algorithm>
#include <climits>
#include <type_traits>
#include <vector>

#include "ops/cuda/common/partials.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/norm.h"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kColumnBlocks = 6;  // of column sums, on a multiprocessor

// y[i] = a[i] + b[i] (b null: a[i]), eight elements a thread.
template <bool kAligned, class Y, class A, class B>
__global__ void __launch_bounds__(kThreads) add_kernel(Y* y, const A* a, const B* b, int64_t n) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (i >= n) return;
  const int count = static_cast<int>(min(int64_t{kWide}, n - i));
  Wide va = load_group<kAligned>(a + i, count);
  if (b) {
    const Wide vb = load_group<kAligned>(b + i, count);
#pragma unroll
    for (int k = 0; k < kWide; ++k) va.x[k] += vb.x[k];
  }
  store_group<kAligned>(y + i, va, count);
}

template <class Y, class A, class B>
void launch_add(CudaDevice& device, Y* y, const A* a, const B* b, int64_t n) {
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(n, int64_t{kThreads} * kWide)), .threads = kThreads};
  whole_groups(n, {y, a, b}) ? launch(device, grid, add_kernel<true, Y, A, B>, y, a, b, n)
                             : launch(device, grid, add_kernel<false, Y, A, B>, y, a, b, n);
}

// Partial column sums: a block takes the rows [blockIdx.y * block_rows, ...) of kWarp * kCols columns; its warps take
// these rows in turn, a few in flight, and are added in their order.
template <int kCols, class D>
__global__ void __launch_bounds__(kThreads, kColumnBlocks)
    column_sums_kernel(float* partial, const D* dy, int64_t rows, int64_t cols, int64_t block_rows) {
  constexpr int kFlight = sizeof(D) == 4 ? 2 : 4;
  __shared__ float sums[kWarps][kCols][kWarp];
  let_next_begin();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t col = (int64_t{blockIdx.x} * kWarp + lane) * kCols;
  const int64_t first = blockIdx.y * block_rows, last = min(rows, first + block_rows);
  float sum[kCols] = {};
  for (int64_t row = first + warp; row < last && col < cols; row += kFlight * kWarps) {
    std::conditional_t<kCols == kWide, Packed<D>, D> flight[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      const D* p = dy + (row + i * kWarps) * cols + col;
      const bool is_row = row + i * kWarps < last;
      if constexpr (kCols == kWide)
        flight[i] = is_row ? load_packed(p) : Packed<D>{};
      else
        flight[i] = is_row ? *p : from_f32<D>(0);
    }
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      if constexpr (kCols == kWide) {
        const Wide v = widen(flight[i]);
#pragma unroll
        for (int k = 0; k < kCols; ++k) sum[k] += v.x[k];
      } else {
        sum[0] += to_f32(flight[i]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kCols; ++k) sums[warp][k][lane] = sum[k];
  __syncthreads();
  if (warp >= kCols || col >= cols) return;
  // Thread (warp, lane) owns column `warp` of lane's group.
  float total = sums[0][warp][lane];
  for (int w = 1; w < kWarps; ++w) total += sums[w][warp][lane];
  partial[blockIdx.y * cols + col + warp] = total;
}

// squares[block] = the sum of x² over the groups that the block takes in turn.
template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads) sum_of_squares_kernel(double* squares, const T* x, int64_t n) {
  __shared__ double sums[kWarps];
  double sum = 0;
#pragma unroll 4
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide; i < n;
       i += int64_t{gridDim.x} * kThreads * kWide) {
    const Wide v = load_group<kAligned>(x + i, static_cast<int>(min(int64_t{kWide}, n - i)));
#pragma unroll
    for (int k = 0; k < kWide; ++k) sum = fma(double{v.x[k]}, double{v.x[k]}, sum);
  }
  sum = lanes_sum(sum);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) sum += sums[w];
  squares[blockIdx.x] = sum;
}

// first[block] = the smallest index of a NaN or Inf among the groups that the block takes in turn, or INT64_MAX.
template <bool kAligned, class T>
__global__ void __launch_bounds__(kThreads) first_nonfinite_kernel(int64_t* first, const T* x, int64_t n) {
  __shared__ unsigned long long found;
  if (threadIdx.x == 0) found = LLONG_MAX;
  __syncthreads();
  unsigned long long mine = LLONG_MAX;
#pragma unroll 4
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide; i < n;
       i += int64_t{gridDim.x} * kThreads * kWide) {
    const Wide v = load_group<kAligned>(x + i, static_cast<int>(min(int64_t{kWide}, n - i)));
#pragma unroll
    for (int k = 0; k < kWide; ++k)
      if ((__float_as_uint(v.x[k]) & 0x7f800000u) == 0x7f800000u)
        mine = min(mine, static_cast<unsigned long long>(i + k));
  }
  if (mine != LLONG_MAX) atomicMin(&found, mine);
  __syncthreads();
  if (threadIdx.x == 0) first[blockIdx.x] = static_cast<int64_t>(found);
}

// Blocks of a scan over n elements, whose results, 8 bytes each, come back to the host.
int64_t scan_blocks(const char* op, const Exec& exec, int64_t n) {
  const int64_t most = exec.shared_scratch_bytes() / int64_t{sizeof(double)};
  check(most > 0, "{}: {} bytes of shared scratch, expected 8 or more", op, exec.shared_scratch_bytes());
  return std::min({ceil_div(n, int64_t{kThreads} * kWide), int64_t{8} * device_of(exec).multiprocessors(), most});
}

template <class R>
std::vector<R> read_back(Exec& exec, int64_t count) {
  std::vector<R> results(static_cast<size_t>(count));
  device_of(exec).copy_out(results.data(), exec.shared_scratch(), count * int64_t{sizeof(R)});
  return results;
}

}  // namespace

void add(Exec& exec, Tensor y, ConstTensor a, ConstTensor b) {
  const OpScope scope(exec, "add");
  const int64_t n = y.count();
  if (n == 0) return;
  visit_float(y, [&]<class Y>(Y* yp) {
    visit_float(a, [&]<class A>(const A* ap) {
      visit_float(b, [&]<class B>(const B* bp) { launch_add(device_of(exec), yp, ap, bp, n); });
    });
  });
}

void cast(Exec& exec, Tensor y, ConstTensor x) {
  const OpScope scope(exec, "cast");
  const int64_t n = y.count();
  if (n == 0) return;
  visit_float(y, [&]<class Y>(Y* yp) {
    visit_float(
        x, [&]<class X>(const X* xp) { launch_add(device_of(exec), yp, xp, static_cast<const float*>(nullptr), n); });
  });
}

void bias_bwd(Exec& exec, Tensor db, ConstTensor dy) {
  const OpScope scope(exec, "bias_bwd");
  const int64_t rows = dy.dim(0), cols = dy.dim(1);
  if (dy.count() == 0) return;
  CudaDevice& device = device_of(exec);
  const bool whole = whole_groups(cols, {dy.data});
  const int64_t tiles = ceil_div(cols, int64_t{kWarp} * (whole ? kWide : 1));
  // All blocks at once, each of whose warps has eight rows or more.
  constexpr int64_t kLeastRows = int64_t{kWarps} * 8;
  const int64_t fitting = std::max<int64_t>(1, int64_t{kColumnBlocks} * device.multiprocessors() / tiles);
  const int64_t wanted = std::min({fitting, kRowReductionBlocks, ceil_div(rows, kLeastRows)});
  const int64_t block_rows = ceil_div(rows, wanted), blocks = ceil_div(rows, block_rows);
  float* partial = partial_rows("bias_bwd", exec, blocks, cols);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(blocks)), .threads = kThreads};
  visit_float(dy, [&]<class D>(const D* dp) {
    whole ? launch(device, grid, column_sums_kernel<kWide, D>, partial, dp, rows, cols, block_rows)
          : launch(device, grid, column_sums_kernel<1, D>, partial, dp, rows, cols, block_rows);
  });
  add_partials(exec, partial, blocks, db);
}

double sum_of_squares(Exec& exec, ConstTensor x) {
  const OpScope scope(exec, "sum_of_squares");
  const int64_t n = x.count();
  if (n == 0) return 0;
  const int64_t blocks = scan_blocks("sum_of_squares", exec, n);
  const Grid grid{.blocks = static_cast<unsigned>(blocks), .threads = kThreads};
  auto* squares = reinterpret_cast<double*>(exec.shared_scratch());
  visit_float(x, [&]<class T>(const T* p) {
    whole_groups(n, {p}) ? launch(device_of(exec), grid, sum_of_squares_kernel<true, T>, squares, p, n)
                         : launch(device_of(exec), grid, sum_of_squares_kernel<false, T>, squares, p, n);
  });
  double sum = 0;
  for (const double s : read_back<double>(exec, blocks)) sum += s;
  return sum;
}

int64_t first_nonfinite(Exec& exec, ConstTensor x) {
  const OpScope scope(exec, "first_nonfinite");
  const int64_t n = x.count();
  if (n == 0) return -1;
  const int64_t blocks = scan_blocks("first_nonfinite", exec, n);
  const Grid grid{.blocks = static_cast<unsigned>(blocks), .threads = kThreads};
  auto* first = reinterpret_cast<int64_t*>(exec.shared_scratch());
  visit_float(x, [&]<class T>(const T* p) {
    whole_groups(n, {p}) ? launch(device_of(exec), grid, first_nonfinite_kernel<true, T>, first, p, n)
                         : launch(device_of(exec), grid, first_nonfinite_kernel<false, T>, first, p, n);
  });
  const std::vector<int64_t> found = read_back<int64_t>(exec, blocks);
  const int64_t index = *std::min_element(found.begin(), found.end());
  return index == LLONG_MAX ? -1 : index;
}

}  // namespace mantissa::cuda
