// How fast plain kernels move a given number of bytes: the ceiling of a memory-bound kernel of that size, launches and
// all. Each row is a captured graph of launches back to back over buffers of random bits that exceed 400 MB together,
// the median of 25.
//   nvcc -std=c++20 -O3 -arch=native bench/copy_ceiling.cu -o /tmp/copy_ceiling && /tmp/copy_ceiling
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

constexpr int kThreads = 512;

void check(cudaError_t e) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(e));
  std::exit(1);
}

__global__ void fill(uint4* x, size_t n) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    x[i] = make_uint4(static_cast<uint32_t>(z), static_cast<uint32_t>(z >> 32), static_cast<uint32_t>(z >> 13),
                      static_cast<uint32_t>(z >> 21));
  }
}

// One read, one write.
__global__ void __launch_bounds__(kThreads) copy(uint4* y, const uint4* x, size_t n) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) y[i] = x[i];
}

__device__ uint4 mix(uint4 a, uint4 b) { return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w); }

// Three reads, one of them of what is written: the bytes of a norm's backward pass.
__global__ void __launch_bounds__(kThreads) merge(uint4* y, const uint4* a, const uint4* b, size_t n) {
  const size_t i = size_t{blockIdx.x} * 2 * kThreads + threadIdx.x, j = i + kThreads;
  if (j < n) {
    const uint4 u = mix(mix(a[i], b[i]), y[i]), v = mix(mix(a[j], b[j]), y[j]);
    y[i] = u, y[j] = v;
  } else if (i < n) {
    y[i] = mix(mix(a[i], b[i]), y[i]);
  }
}

// Reads alone: a reduction's bytes.
__global__ void __launch_bounds__(kThreads) read(uint4* y, const uint4* x, size_t n) {
  uint4 sum{};
  const size_t step = size_t{gridDim.x} * kThreads;
  size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = x[i], b = x[i + step], c = x[i + 2 * step], d = x[i + 3 * step];
    sum = mix(sum, mix(mix(a, b), mix(c, d)));
  }
  for (; i < n; i += step) sum = mix(sum, x[i]);
  if ((sum.x | sum.y | sum.z | sum.w) == 0) *y = sum;
}

double microseconds(cudaStream_t stream, const std::function<void(int)>& launch, int launches) {
  cudaGraph_t graph;
  cudaGraphExec_t run;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) launch(i);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&run, graph, 0));
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 35; ++i) {
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(run, stream));
    check(cudaEventRecord(end, stream));
    check(cudaStreamSynchronize(stream));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 10) times.push_back(ms * 1e3f / static_cast<float>(launches));
  }
  std::sort(times.begin(), times.end());
  check(cudaGraphExecDestroy(run));
  check(cudaGraphDestroy(graph));
  return times[times.size() / 2];
}

}  // namespace

int main() {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream));
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  constexpr size_t kPool = size_t{1} << 26;  // 1 GiB
  uint4 *x, *y;
  check(cudaMalloc(&x, kPool * sizeof(uint4)));
  check(cudaMalloc(&y, kPool * sizeof(uint4)));
  fill<<<1024, 256, 0, stream>>>(x, kPool);
  fill<<<1024, 256, 0, stream>>>(y, kPool);
  std::printf("%8s %18s %18s %18s\n", "MB", "copy", "3 reads, 1 write", "read");
  for (const size_t bytes : {25165824ul, 50331648ul, 100663296ul, 201326592ul, 402653184ul, 805306368ul}) {
    const size_t n = bytes / sizeof(uint4);  // 16-byte words that the kernel moves
    const auto sets = static_cast<int>(std::max<size_t>(2, 402653184 / bytes)), launches = std::max(sets, 40);
    const auto at = [&](int i, size_t words) { return static_cast<size_t>(i % sets) * words % (kPool - words); };
    const auto blocks = [](size_t words, size_t each) { return static_cast<unsigned>((words + each - 1) / each); };
    const double us[] = {
        microseconds(
            stream,
            [&](int i) {
              const size_t half = n / 2, from = at(i, half);
              copy<<<blocks(half, kThreads), kThreads, 0, stream>>>(y + from, x + from, half);
            },
            launches),
        microseconds(
            stream,
            [&](int i) {
              const size_t part = n / 4, from = at(i, 2 * part);
              merge<<<blocks(part, 2 * kThreads), kThreads, 0, stream>>>(y + from, x + from, x + from + part, part);
            },
            launches),
        microseconds(
            stream, [&](int i) { read<<<4 * sms, kThreads, 0, stream>>>(y, x + at(i, n), n); }, launches)};
    std::printf("%8.1f", static_cast<double>(bytes) / 1e6);
    for (const double t : us) std::printf("  %7.2f us %4.0f GB/s", t, static_cast<double>(bytes) / t / 1e3);
    std::printf("\n");
  }
  check(cudaDeviceSynchronize());
}
