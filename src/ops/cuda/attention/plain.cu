// The own attention in FP32 arithmetic, for F32 tensors and head_dims that the tensor cores' tiles do not take. A block
// owns 32 queries or 32 keys; a thread two of its rows and every 16th column.
#include "ops/cuda/attention/passes.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kTile = 32, kColumns = 16, kThreads = kTile / 2 * kColumns;

// kSpan: head_dim rounded up, the width of a tile, kColumns * registers of a row.
template <int kSpan>
struct Tile {
  static constexpr int kLine = kSpan + 1;
  float x[kTile * kLine];
  __device__ const float* row(int r) const { return x + r * kLine; }
};
struct Scores {
  float x[kTile][kTile + 1];
};

template <int kSpan, class E>
__device__ void read_tile(Tile<kSpan>& tile, const E* from, int64_t stride, int first, int rows, int dim) {
  for (int at = threadIdx.x; at < kTile * kSpan; at += kThreads) {
    const int row = at / kSpan, column = at % kSpan;
    tile.x[row * Tile<kSpan>::kLine + column] =
        first + row < rows && column < dim ? to_f32(from[(first + row) * stride + column]) : 0.0f;
  }
}

// The thread's four products of two rows of a with two of b.
template <int kSpan>
__device__ void multiply_rows(float (&c)[2][2], const Tile<kSpan>& a, const Tile<kSpan>& b, int row, int column) {
  c[0][0] = c[0][1] = c[1][0] = c[1][1] = 0;
  const float *const a0 = a.row(row), *const a1 = a.row(row + 1), *const b0 = b.row(column),
                     *const b1 = b.row(column + kColumns);
#pragma unroll 8
  for (int k = 0; k < kSpan; ++k) {
    c[0][0] = fmaf(a0[k], b0[k], c[0][0]), c[0][1] = fmaf(a0[k], b1[k], c[0][1]);
    c[1][0] = fmaf(a1[k], b0[k], c[1][0]), c[1][1] = fmaf(a1[k], b1[k], c[1][1]);
  }
}

template <int kSpan>
__device__ void accumulate(float (&c)[2][kSpan / kColumns], const Scores& p, const Tile<kSpan>& b, int row,
                           int column) {
#pragma unroll 4
  for (int k = 0; k < kTile; ++k) {
    const float p0 = p.x[row][k], p1 = p.x[row + 1][k];
#pragma unroll
    for (int j = 0; j < kSpan / kColumns; ++j) {
      const float value = b.row(k)[column + j * kColumns];
      c[0][j] = fmaf(p0, value, c[0][j]), c[1][j] = fmaf(p1, value, c[1][j]);
    }
  }
}

template <int kSpan, class E>
__device__ void write_rows(const float (&c)[2][kSpan / kColumns], const float (&factor)[2], E* to, int64_t stride,
                           int first, int rows, int column, int dim) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int j = 0; j < kSpan / kColumns; ++j)
      if (first + r < rows && column + j * kColumns < dim)
        to[(first + r) * stride + column + j * kColumns] = from_f32<E>(c[r][j] * factor[r]);
}

template <class F>
__device__ float over_columns(float x, F f) {
#pragma unroll
  for (int step = 1; step < kColumns; step *= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

template <int kSpan>
struct ForwardShared {
  Tile<kSpan> q, k, v;
  Scores p;
};

template <int kSpan, class E>
__global__ void __launch_bounds__(kThreads)
    attention_fwd_plain_kernel(E* out, float* lse, const E* qkv, const AttentionView a) {
  extern __shared__ __align__(16) char raw[];
  auto& s = *reinterpret_cast<ForwardShared<kSpan>*>(raw);
  const int head = blockIdx.x % a.heads, kv = head / a.group();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) / a.heads * kTile;
  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns * 2;
  const int end = min(first + kTile, a.tokens);
  read_tile(s.q, qkv + int64_t{head} * a.head_dim, a.qkv_stride, first, a.tokens, a.head_dim);
  const int begin[2] = {document_of(a, first + row).begin, document_of(a, first + row + 1).begin};
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[2][kSpan / kColumns] = {};
  for (int at = document_of(a, first).begin; at < end; at += kTile) {
    __syncthreads();
    read_tile(s.k, qkv + a.key_column(kv), a.qkv_stride, at, end, a.head_dim);
    read_tile(s.v, qkv + a.value_column(kv), a.qkv_stride, at, end, a.head_dim);
    __syncthreads();
    float c[2][2];
    multiply_rows(c, s.q, s.k, row, column);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = first + row + r;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = at + column + i * kColumns;
        if (key > query || key < begin[r]) c[r][i] = -INFINITY;
      }
      const float highest =
          fmaxf(top[r], over_columns(fmaxf(c[r][0], c[r][1]), [](float x, float y) { return fmaxf(x, y); }));
      const float shift = highest == -INFINITY ? 0.0f : highest * a.scale_log2;
      const float keep = exp2f(top[r] * a.scale_log2 - shift);
      top[r] = highest;
      float added = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float p = exp2f(fmaf(c[r][i], a.scale_log2, -shift));
        s.p.x[row + r][column + i * kColumns] = p;
        added += p;
      }
      sum[r] = fmaf(sum[r], keep, over_columns(added, [](float x, float y) { return x + y; }));
#pragma unroll
      for (int j = 0; j < kSpan / kColumns; ++j) o[r][j] *= keep;
    }
    __syncwarp();  // a warp reads only its own rows of p
    accumulate(o, s.p, s.v, row, column);
  }
  const float factor[2] = {1 / sum[0], 1 / sum[1]};
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (column == 0 && first + row + r < a.tokens)
      lse[int64_t{head} * a.tokens + first + row + r] = fmaf(top[r], a.scale, logf(sum[r]));
  write_rows<kSpan>(o, factor, out + int64_t{head} * a.head_dim, a.out_stride, first + row, a.tokens, column,
                    a.head_dim);
}

template <int kSpan>
struct BackwardShared {
  Tile<kSpan> q, k, v, d;
  Scores p, ds;
};

// P and dS of the thread's rows and columns; `on` says whether the query sees the key.
template <int kSpan, class On>
__device__ void recompute(BackwardShared<kSpan>& s, const Tile<kSpan>& rows, const Tile<kSpan>& columns,
                          const Tile<kSpan>& drows, const Tile<kSpan>& dcolumns, int row, int column, float scale_log2,
                          const float (&shift)[2][2], const float (&product)[2][2], On on) {
  float c[2][2], d[2][2];
  multiply_rows(c, rows, columns, row, column);
  multiply_rows(d, drows, dcolumns, row, column);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float p = on(r, i) ? exp2f(fmaf(c[r][i], scale_log2, -shift[r][i])) : 0.0f;
      s.p.x[row + r][column + i * kColumns] = p;
      s.ds.x[row + r][column + i * kColumns] = p * (d[r][i] - product[r][i]);
    }
  __syncwarp();
}

template <int kSpan, class E>
__global__ void __launch_bounds__(kThreads)
    attention_bwd_queries_plain_kernel(E* dqkv, const E* dout, const E* qkv, const float* lse, const float* delta,
                                       const AttentionView a) {
  extern __shared__ __align__(16) char raw[];
  auto& s = *reinterpret_cast<BackwardShared<kSpan>*>(raw);
  const int head = blockIdx.x % a.heads, kv = head / a.group();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) / a.heads * kTile;
  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns * 2;
  const int end = min(first + kTile, a.tokens);
  read_tile(s.q, qkv + int64_t{head} * a.head_dim, a.qkv_stride, first, a.tokens, a.head_dim);
  read_tile(s.d, dout + int64_t{head} * a.head_dim, a.out_stride, first, a.tokens, a.head_dim);
  float shift[2][2], product[2][2], dq[2][kSpan / kColumns] = {};
  int begin[2];
  for (int r = 0; r < 2; ++r) {
    const int query = first + row + r;
    const int64_t at = int64_t{head} * a.tokens + query;
    begin[r] = document_of(a, query).begin;
    shift[r][0] = shift[r][1] = query < a.tokens ? lse[at] * kLog2E : 0;
    product[r][0] = product[r][1] = query < a.tokens ? delta[at] : 0;
  }
  for (int at = document_of(a, first).begin; at < end; at += kTile) {
    __syncthreads();
    read_tile(s.k, qkv + a.key_column(kv), a.qkv_stride, at, end, a.head_dim);
    read_tile(s.v, qkv + a.value_column(kv), a.qkv_stride, at, end, a.head_dim);
    __syncthreads();
    recompute(s, s.q, s.k, s.d, s.v, row, column, a.scale_log2, shift, product, [&](int r, int i) {
      const int key = at + column + i * kColumns;
      return key <= first + row + r && key >= begin[r];
    });
    accumulate(dq, s.ds, s.k, row, column);
  }
  const float factor[2] = {a.scale, a.scale};
  write_rows<kSpan>(dq, factor, dqkv + int64_t{head} * a.head_dim, a.qkv_stride, first + row, a.tokens, column,
                    a.head_dim);
}

template <int kSpan, class E>
__global__ void __launch_bounds__(kThreads)
    attention_bwd_keys_plain_kernel(E* dqkv, const E* dout, const E* qkv, const float* lse, const float* delta,
                                    const AttentionView a) {
  extern __shared__ __align__(16) char raw[];
  auto& s = *reinterpret_cast<BackwardShared<kSpan>*>(raw);
  const int kv = blockIdx.x % a.kv_heads, first = static_cast<int>(blockIdx.x) / a.kv_heads * kTile;
  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns * 2;
  read_tile(s.k, qkv + a.key_column(kv), a.qkv_stride, first, a.tokens, a.head_dim);
  read_tile(s.v, qkv + a.value_column(kv), a.qkv_stride, first, a.tokens, a.head_dim);
  const int last = document_of(a, first + kTile - 1).end;
  const int end[2] = {document_of(a, first + row).end, document_of(a, first + row + 1).end};
  float dk[2][kSpan / kColumns] = {}, dv[2][kSpan / kColumns] = {};
  for (int head = kv * a.group(); head < (kv + 1) * a.group(); ++head)
    for (int at = first; at < last; at += kTile) {
      __syncthreads();
      read_tile(s.q, qkv + int64_t{head} * a.head_dim, a.qkv_stride, at, a.tokens, a.head_dim);
      read_tile(s.d, dout + int64_t{head} * a.head_dim, a.out_stride, at, a.tokens, a.head_dim);
      __syncthreads();
      float shift[2][2], product[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = at + column + i * kColumns;
        const int64_t from = int64_t{head} * a.tokens + query;
        shift[0][i] = shift[1][i] = query < a.tokens ? lse[from] * kLog2E : 0;
        product[0][i] = product[1][i] = query < a.tokens ? delta[from] : 0;
      }
      recompute(s, s.k, s.q, s.v, s.d, row, column, a.scale_log2, shift, product, [&](int r, int i) {
        const int query = at + column + i * kColumns;
        return query >= first + row + r && query < end[r];
      });
      accumulate(dv, s.p, s.d, row, column);
      accumulate(dk, s.ds, s.q, row, column);
    }
  const float scale[2] = {a.scale, a.scale}, one[2] = {1, 1};
  write_rows<kSpan>(dk, scale, dqkv + a.key_column(kv), a.qkv_stride, first + row, a.tokens, column, a.head_dim);
  write_rows<kSpan>(dv, one, dqkv + a.value_column(kv), a.qkv_stride, first + row, a.tokens, column, a.head_dim);
}

// A warp each (token, head); lanes take eight elements at a time.
template <class E>
__global__ void __launch_bounds__(256)
    attention_row_products_kernel(float* delta, const E* dout, const E* out, const AttentionView a) {
  const int64_t unit = int64_t{blockIdx.x} * 8 + threadIdx.x / 32;
  if (unit >= int64_t{a.tokens} * a.heads) return;
  const int64_t token = unit / a.heads, head = unit % a.heads, at = token * a.out_stride + head * a.head_dim;
  float sum = 0;
  for (int d = threadIdx.x % 32 * kWide; d < a.head_dim; d += 32 * kWide) {
    const Wide x = load_wide(dout + at + d, min(kWide, a.head_dim - d)),
               y = load_wide(out + at + d, min(kWide, a.head_dim - d));
#pragma unroll
    for (int i = 0; i < kWide; ++i) sum = fmaf(x.x[i], y.x[i], sum);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) delta[head * a.tokens + token] = sum;
}

template <class F>
void visit_span(const AttentionView& a, F&& f) {
  if (a.head_dim <= 64)
    f.template operator()<64>();
  else if (a.head_dim <= 128)
    f.template operator()<128>();
  else
    f.template operator()<256>();
}
Grid grid_of(const AttentionView& a, int heads, size_t shared) {
  const unsigned tiles = static_cast<unsigned>((a.tokens + kTile - 1) / kTile);
  return {.blocks = tiles * static_cast<unsigned>(heads), .threads = kThreads, .shared_bytes = shared};
}

}  // namespace

template <class E>
void forward_plain(CudaDevice& device, E* out, float* lse, const E* qkv, const AttentionView& a) {
  visit_span(a, [&]<int kSpan>() {
    launch(device, grid_of(a, a.heads, sizeof(ForwardShared<kSpan>)), attention_fwd_plain_kernel<kSpan, E>, out, lse,
           qkv, a);
  });
}

template <class E>
void backward_plain(CudaDevice& device, E* dqkv, const E* dout, const E* qkv, const float* lse, const float* delta,
                    const AttentionView& a) {
  visit_span(a, [&]<int kSpan>() {
    constexpr size_t kShared = sizeof(BackwardShared<kSpan>);
    launch(device, grid_of(a, a.kv_heads, kShared), attention_bwd_keys_plain_kernel<kSpan, E>, dqkv, dout, qkv, lse,
           delta, a);
    launch(device, grid_of(a, a.heads, kShared), attention_bwd_queries_plain_kernel<kSpan, E>, dqkv, dout, qkv, lse,
           delta, a);
  });
}

template <class E>
void row_products(CudaDevice& device, float* delta, const E* dout, const E* out, const AttentionView& a) {
  const int64_t units = int64_t{a.tokens} * a.heads;
  launch(device, {.blocks = static_cast<unsigned>((units + 7) / 8), .threads = 256}, attention_row_products_kernel<E>,
         delta, dout, out, a);
}

template void forward_plain(CudaDevice&, float*, float*, const float*, const AttentionView&);
template void forward_plain(CudaDevice&, Bf16*, float*, const Bf16*, const AttentionView&);
template void backward_plain(CudaDevice&, float*, const float*, const float*, const float*, const float*,
                             const AttentionView&);
template void backward_plain(CudaDevice&, Bf16*, const Bf16*, const Bf16*, const float*, const float*,
                             const AttentionView&);
template void row_products(CudaDevice&, float*, const float*, const float*, const AttentionView&);
template void row_products(CudaDevice&, float*, const Bf16*, const Bf16*, const AttentionView&);

}  // namespace mantissa::cuda
