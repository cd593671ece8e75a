#include "ops/cpu_gemm/candidates.h"

#include <cstdlib>
#include <string_view>

#include "ops/cpu/gemm/multiply.h"
#include "ops/cpu/gemm/pack.h"
#include "ops/cpu/gemm/store.h"
#include "ops/cpu_gemm/cpu_features.h"
#include "ops/cpu_gemm/onednn.h"

namespace mantissa {
namespace {

const char* takes_all(const GemmProblem&) { return ""; }

const char* has_base(const Exec&) { return ""; }

#if defined(MANTISSA_X86)
constexpr GemmEngine kAmx{{"amx", GemmMath::kBF16, 2, 2, 16, multiply_amx, cpu_avx512::pack_left_bf16,
                           cpu_avx512::pack_right_bf16, begin_amx, end_amx},
                          cpu_avx512::store_block,
                          cpu_avx512::scale_sums};
constexpr GemmEngine kAvx512Bf16{{"avx512bf16", GemmMath::kBF16, 1, 3, 32, multiply_avx512bf16,
                                  cpu_avx512::pack_left_bf16, cpu_avx512::pack_right_bf16, nullptr, nullptr},
                                 cpu_avx512::store_block,
                                 cpu_avx512::scale_sums};
constexpr GemmEngine kAvx512{{"avx512", GemmMath::kF32, 1, 3, 32, cpu_avx512::multiply_f32, cpu_avx512::pack_left_f32,
                              cpu_avx512::pack_right_f32, nullptr, nullptr},
                             cpu_avx512::store_block,
                             cpu_avx512::scale_sums};
constexpr GemmEngine kAvx2{{"avx2", GemmMath::kF32, 1, 1, 16, cpu_avx2::multiply_f32, cpu_avx2::pack_left_f32,
                            cpu_avx2::pack_right_f32, nullptr, nullptr},
                           cpu_avx2::store_block,
                           cpu_avx2::scale_sums};

const char* takes_bf16(const GemmProblem& p) {
  if (p.math == GemmMath::kBF16) return "";
  return p.scaling == GemmScaling::kInside ? "a product of code and block scale leaves BF16's normal range"
                                           : "F32 sides";
}

const char* has_avx2(const Exec& exec) { return exec.isa() >= Isa::kAvx2 ? "" : "the instruction set is below AVX2"; }
const char* has_avx512(const Exec& exec) {
  return exec.isa() >= Isa::kAvx512 ? "" : "the instruction set is below AVX-512";
}
const char* has_avx512bf16(const Exec& exec) {
  return cpu_features().avx512bf16 ? has_avx512(exec) : "the CPU has no AVX512-BF16";
}
const char* has_amx(const Exec& exec) {
  return cpu_features().amx_bf16 ? has_avx512(exec) : cpu_features().amx_absence;
}
#endif

constexpr GemmEngine kBase{{"base", GemmMath::kF32, 1, 1, 16, cpu_base::multiply_f32, cpu_base::pack_left_f32,
                            cpu_base::pack_right_f32, nullptr, nullptr},
                           cpu_base::store_block,
                           cpu_base::scale_sums};

const char* has_onednn(const Exec&) { return onednn_module().gemm ? "" : onednn_module().absence.c_str(); }
const char* onednn_takes(const GemmProblem& p) {
  const bool plain = p.scaling == GemmScaling::kNone && p.a.dtype == p.b.dtype && bits_of(p.a.dtype) >= 16;
  if (!plain) return "quantized or mixed sides";
  return onednn_module().gemm(&p, /*execute=*/false) ? "oneDNN has no such product of dtypes" : "";
}
void run_onednn(Exec&, const GemmEngine*, const GemmProblem& problem) {
  const char* error = onednn_module().gemm(&problem, /*execute=*/true);
  check(!error, "gemm: oneDNN: {}", error);
}

void run_engine(Exec& exec, const GemmEngine* engine, const GemmProblem& problem) { run_gemm(exec, *engine, problem); }

constexpr GemmCandidate kTable[] = {
#if defined(MANTISSA_X86)
    {"amx", has_amx, takes_bf16, &kAmx, run_engine},
    {"avx512bf16", has_avx512bf16, takes_bf16, &kAvx512Bf16, run_engine},
    {"avx512", has_avx512, takes_all, &kAvx512, run_engine},
    {"avx2", has_avx2, takes_all, &kAvx2, run_engine},
#endif
    {"onednn", has_onednn, onednn_takes, nullptr, run_onednn},
    {"base", has_base, takes_all, &kBase, run_engine},
};

// Candidates before the one that MANTISSA_GEMM names are out; returns its index.
size_t first_allowed(const Exec& exec) {
  const char* wanted = std::getenv("MANTISSA_GEMM");
  if (!wanted || !*wanted) return 0;
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (std::string_view(wanted) != kTable[i].name) continue;
    const char* why = kTable[i].missing(exec);
    if (*why) fail(Exit::kUnavailable, "MANTISSA_GEMM={}: {}", wanted, why);
    return i;
  }
  std::string names;
  for (const GemmCandidate& candidate : kTable) names += std::string(names.empty() ? "" : ", ") + candidate.name;
  fail(Exit::kUsage, "MANTISSA_GEMM={}: expected one of {}", wanted, names);
}

}  // namespace

std::span<const GemmCandidate> gemm_candidates() { return kTable; }

const GemmCandidate& choose_gemm(const Exec& exec, const GemmProblem& problem, std::vector<std::string>* refused) {
  const size_t first = first_allowed(exec);
  for (size_t i = 0; i < std::size(kTable); ++i) {
    const char* why = i < first ? "MANTISSA_GEMM leaves it out" : kTable[i].missing(exec);
    if (!*why) why = kTable[i].refuses(problem);
    if (!*why) return kTable[i];
    if (refused) refused->push_back(std::string(kTable[i].name) + ": " + why);
  }
  fail(Exit::kInternal, "gemm: no candidate takes the problem");
}

const TileKernel& tile_kernel(const Exec& exec, GemmMath math) {
  const size_t first = first_allowed(exec);
  const TileKernel* fallback = nullptr;
  for (size_t i = first; i < std::size(kTable); ++i) {
    if (!kTable[i].engine || *kTable[i].missing(exec)) continue;
    const TileKernel& tiles = kTable[i].engine->tiles;
    if (tiles.math == math) return tiles;
    if (!fallback) fallback = &tiles;
  }
  return *fallback;
}

}  // namespace mantissa
