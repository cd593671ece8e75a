// Random products whose exact result is known, run on any candidate.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "ops/cpu_gemm/candidates.h"
#include "ops/gemm_problem.h"

namespace mantissa::test {

// A side with its value(outer, k), block scales included, per-tensor ones not.
struct Side {
  GemmSide view;
  std::vector<double> values;  // [outer, k]
  int64_t k = 0;
  std::vector<uint8_t> data, scales;
  std::unique_ptr<Quantized> codes;
  std::unique_ptr<float> amax;

  double value(int64_t outer, int64_t at) const { return values[static_cast<size_t>(outer * k + at)]; }
};

// Normally distributed values.
Side plain_side(std::mt19937& random, DType dtype, int64_t outer, int64_t k, bool transposed);
// Random finite codes; scales around 2^shift.
Side quantized_side(std::mt19937& random, const QuantFormat& format, int64_t outer, int64_t k, bool transposed,
                    int shift = 0);

struct Product {
  const Side& a;
  const Side& b;
  int64_t m, n, k;
  DType c_dtype = DType::kF32;
  bool bias = false;
  float beta = 0;
};

// c as FP32, c_old and bias being pseudo-random functions of their indices.
std::vector<float> run_product(Exec& exec, const GemmCandidate& candidate, const Product& product);
// What a product's sums are and how large their terms.
struct Exact {
  std::vector<double> sum, size;  // [m, n]: of a b, of |a b|, times the tensor scales
};
Exact exact_sums(const Product& product);
// The greatest |c - exact| over its bound: FP32 accumulation in any order, then one rounding (two with FP32 block
// scales).
double worst_error(const Product& product, const Exact& exact, const std::vector<float>& c);
// The candidates that the machine has and that take the product.
std::vector<const GemmCandidate*> candidates_for(const Exec& exec, const Product& product);

}  // namespace mantissa::test
