// Compares ops/cuda/common/rounded.cuh with the exact forms on a GPU: root, reciprocal and codes on every float of
// their ranges, quotients on random pairs, on those whose result lies nearest to a rounding boundary, and on every
// significand over the bias corrections of 2,100 steps. Exit 1 where a bit differs.
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false -arch=sm_90a -Isrc tools/rounded_forms.cu && ./a.out
#include "ops/cuda/common/rounded.cuh"

#include <cmath>
#include <cstdio>
#include <vector>

#include "numerics/moment8.h"

namespace {

using namespace mantissa;
using namespace mantissa::cuda;

enum Form { kRoot, kReciprocal, kCode, kRandom, kNearest, kConstants, kForms };
constexpr const char* kNames[] = {
    "root", "reciprocal", "code", "quotient, random", "quotient, near a boundary", "quotient, bias corrections"};
constexpr int kBlocks = 1056, kThreads = 256;

__device__ unsigned long long tried[kForms], wrong[kForms];
__device__ float wrong_x[kForms], wrong_c[kForms];  // the first that differed

__device__ void note(Form form, bool same, float x, float c) {
  if (!same && atomicAdd(&wrong[form], 1ull) == 0) wrong_x[form] = x, wrong_c[form] = c;
}

__global__ void every_float(Form form, float least, float most) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  unsigned long long count = 0;
  for (uint64_t bits = __float_as_uint(least) + blockIdx.x * uint64_t{blockDim.x} + threadIdx.x;
       bits <= __float_as_uint(most); bits += step, ++count) {
    const float x = __uint_as_float(static_cast<uint32_t>(bits));
    if (form == kRoot) note(form, root_of(x) == __fsqrt_rn(x), x, 0);
    if (form == kReciprocal) note(form, reciprocal_of(x) == __frcp_rn(x), x, 0);
    if (form == kCode) note(form, (nearest_code(x) & 255u) == moment8::nearest_root(x), x, 0);
  }
  atomicAdd(&tried[form], count);
}

__device__ void compare(Form form, float x, float c) {
  note(form, quotient_of(x, c, reciprocal_of(c)) == __fdiv_rn(x, c), x, c);
}

__device__ uint64_t mix(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}
// |x| from 2^-100 to 2^30, c from 2^-50 to 2^20.
__global__ void random_pairs(uint64_t count) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    const uint64_t r = mix(i + 12345), e = mix(r);
    const uint32_t x_exponent = 27 + (e & 0xffff) % 130, c_exponent = 77 + (e >> 16 & 0xffff) % 70;
    compare(kRandom, __uint_as_float(static_cast<uint32_t>(r & 0x807fffff) | x_exponent << 23),
            __uint_as_float(static_cast<uint32_t>(r >> 32 & 0x7fffff) | c_exponent << 23));
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) tried[kRandom] = count;
}

// For every significand B = 2^twos odd, the significands A with A 2^(24 - twos), or twice that, = r mod odd, |r| <= 5:
// A / B misses a multiple of 2^-24, or of 2^-25 below one, by |r| / odd of it. Boundaries between floats are such.
__global__ void nearest_pairs(int twos) {
  unsigned long long count = 0;
  for (uint32_t k = blockIdx.x * blockDim.x + threadIdx.x; k < 1u << (22 - twos); k += gridDim.x * blockDim.x) {
    const uint64_t odd = (1u << (23 - twos)) + 2 * k + 1, half = (odd + 1) / 2;
    uint64_t inverse = 1;
    for (int i = 0; i < 24 - twos; ++i) inverse = inverse * half % odd;
    for (int shift = 0; shift < 2; ++shift, inverse = inverse * half % odd)
      for (int r = -5; r <= 5; ++r)
        for (uint64_t a = inverse * ((odd + static_cast<uint64_t>(r)) % odd) % odd; a < 1u << 24; a += odd) {
          if (a < 1u << 23 || r == 0) continue;
          ++count;
          for (const int e : {0, -60, 20})
            compare(kNearest, ldexpf(static_cast<float>(a), e - 23), ldexpf(static_cast<float>(odd << twos), -23));
        }
  }
  atomicAdd(&tried[kNearest], count);
}

__global__ void constants(const float* c) {
  for (uint32_t m = blockIdx.x * blockDim.x + threadIdx.x; m < 1u << 24; m += gridDim.x * blockDim.x)
    compare(kConstants, __uint_as_float((100u << 23) + m), c[blockIdx.y]);
  if (threadIdx.x == 0 && blockIdx.x == 0) atomicAdd(&tried[kConstants], 1ull << 24);
}

}  // namespace

int main() {
  every_float<<<kBlocks, kThreads>>>(kRoot, 0x1p-100f, 0x1p100f);
  every_float<<<kBlocks, kThreads>>>(kReciprocal, 0x1p-120f, 0x1p100f);
  every_float<<<kBlocks, kThreads>>>(kCode, 0.0f, 65026.0f);
  random_pairs<<<kBlocks, kThreads>>>(20'000'000'000);
  for (int twos = 0; twos < 8; ++twos) nearest_pairs<<<kBlocks, kThreads>>>(twos);
  std::vector<float> corrections;
  for (const double beta2 : {0.95, 0.99, 0.999})
    for (int t = 1; t <= 700; ++t) corrections.push_back(static_cast<float>(std::sqrt(1 - std::pow(beta2, t))));
  float* c = nullptr;
  cudaMalloc(&c, corrections.size() * sizeof(float));
  cudaMemcpy(c, corrections.data(), corrections.size() * sizeof(float), cudaMemcpyHostToDevice);
  constants<<<dim3(64, static_cast<unsigned>(corrections.size())), kThreads>>>(c);
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) {
    std::printf("%s\n", cudaGetErrorString(error));
    return 1;
  }
  unsigned long long count[kForms], bad[kForms];
  float x[kForms], by[kForms];
  cudaMemcpyFromSymbol(count, tried, sizeof count);
  cudaMemcpyFromSymbol(bad, wrong, sizeof bad);
  cudaMemcpyFromSymbol(x, wrong_x, sizeof x);
  cudaMemcpyFromSymbol(by, wrong_c, sizeof by);
  bool same = true;
  for (int i = 0; i < kForms; ++i) {
    std::printf("%-28s %14llu compared, %llu differ", kNames[i], count[i], bad[i]);
    if (bad[i] > 0) std::printf(", first at %a / %a", x[i], by[i]);
    std::printf("\n");
    same = same && bad[i] == 0;
  }
  return same ? 0 : 1;
}
