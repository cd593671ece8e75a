#include "ops/cuda/gemm/gemms.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"

namespace mantissa::cuda {
namespace {

constexpr int kAlgorithms = 16;  // asked for; version 13.1 names 8 at most
// Smaller products are not searched: they wait for memory or for their launch.
constexpr double kSearchedFlops = 2e9;
constexpr int64_t kSearchedSide = 128;
// Left free when a search allocates.
constexpr int64_t kFreeMargin = int64_t{512} << 20;

constexpr const char* kArrow = " -> ";

bool worth_a_search(const GemmKey& key) {
  return key.flops() >= kSearchedFlops && std::min({key.m, key.n, key.k}) >= kSearchedSide;
}

// Memory of the device for the length of a search.
class Loan {
 public:
  Loan(CudaDevice& device, int64_t bytes) : device_(device), p_(device.allocate(bytes)) {}
  ~Loan() { device_.release(p_); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  void* get() const { return p_; }

 private:
  CudaDevice& device_;
  void* p_;
};

}  // namespace

Gemms::Gemms(CudaDevice& device) : device_(device), handle_(make_cublas_handle()), search_(device) {}

std::string Gemms::version() const {
  const size_t v = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

ChoiceFile& Gemms::file() {
  if (!file_)
    file_ = std::make_unique<ChoiceFile>(device_.options().cache_folder, device_.info().name, device_.info().sm,
                                         cublasLtGetVersion());
  return *file_;
}

std::optional<cublasLtMatmulAlgo_t> Gemms::restore(const Product& product, const std::string& key,
                                                   const std::string& words, const std::string& source) const {
  const std::optional<AlgorithmParts> parts = parse_algorithm(words);
  const std::optional<cublasLtMatmulAlgo_t> algorithm = parts ? product.restore(*parts) : std::nullopt;
  if (!algorithm)
    fmt::print(stderr, "gemm: cuBLASLt {} refuses \"{}\" of {} for {}; it is chosen anew\n", version(), words, source,
               key);
  return algorithm;
}

Gemms::Plan& Gemms::plan_of(const GemmKey& key) {
  const auto at = plans_.find(key);
  if (at != plans_.end()) return at->second;
  const std::string words = words_of(key);
  Plan plan{.product = Product(handle_.get(), key), .algorithm = {}};
  std::optional<cublasLtMatmulAlgo_t> algorithm;
  if (const auto fixed = fixed_.find(key); fixed != fixed_.end())
    algorithm = restore(plan.product, words, fixed->second, "the run's record");
  if (!algorithm && !device_.deterministic())
    if (const std::string* kept = file().find(words)) algorithm = restore(plan.product, words, *kept, file().path());
  plan.settled = algorithm || device_.deterministic() || !device_.options().search || !worth_a_search(key);
  if (!algorithm) {
    const std::vector<cublasLtMatmulAlgo_t> first = plan.product.guess(1);
    if (first.empty()) fail(Exit::kUnavailable, "gemm: cuBLASLt {} has no algorithm for {}", version(), words);
    algorithm = first[0];
  }
  plan.algorithm = *algorithm;
  return plans_.emplace(key, std::move(plan)).first->second;
}

void Gemms::search(const GemmKey& key, Plan& plan, const GemmAddresses& at, const SearchRoom& room) {
  plan.settled = true;
  const std::string words = words_of(key);
  GemmAddresses written = at;
  std::unique_ptr<Loan> loan;
  if (key.accumulate) {
    const int64_t bytes = bytes_of(key.out, key.m * key.n);
    const int64_t free = device_.free_bytes();
    if (bytes > room.bytes && bytes + kFreeMargin > free) {
      fmt::print(stderr,
                 "gemm: no search for {}: it takes {} bytes, {} are free; the library's first choice is taken\n", words,
                 bytes, free);
      return;
    }
    if (bytes > room.bytes) loan = std::make_unique<Loan>(device_, bytes);
    written.c = loan ? loan->get() : room.spare;
    device_.copy_within(written.c, at.c, bytes);
  }
  if (!announced_)
    fmt::print(stderr, "gemm: timing cuBLASLt's algorithms, once for each shape{}\n",
               file().path().empty() ? "" : "; they are kept in " + file().path());
  announced_ = true;
  const std::vector<cublasLtMatmulAlgo_t> algorithms = plan.product.guess(kAlgorithms);
  const int best = search_.fastest(plan.product, written, algorithms);
  if (best < 0) fail(Exit::kUnavailable, "gemm: no algorithm of cuBLASLt {} runs for {}", version(), words);
  plan.algorithm = algorithms[static_cast<size_t>(best)];
  file().keep(words, words_of(parts_of(plan.algorithm)));
}

void Gemms::multiply(const GemmKey& key, const GemmAddresses& at, const SearchRoom& room) {
  Plan& plan = plan_of(key);
  plan.used = true;
  if (!plan.settled && room.allowed && !device_.capturing()) search(key, plan, at, room);
  check_cublas(plan.product.enqueue(plan.algorithm, at, device_.stream()), "cublasLtMatmul", device_.last_op());
}

std::string Gemms::explain(const GemmKey& key) { return words_of(parts_of(plan_of(key).algorithm)); }

void Gemms::set_choices(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const size_t arrow = line.find(kArrow);
    const std::string words = line.substr(0, arrow);
    const std::string algorithm = arrow == std::string::npos ? "" : line.substr(arrow + std::string(kArrow).size());
    const std::optional<GemmKey> key = parse_gemm_key(words);
    if (!key || !parse_algorithm(algorithm))
      fail(Exit::kInput, "gemm choices: \"{}\" is not \"PRODUCT -> ALGORITHM\" as a run records it", line);
    fixed_[*key] = algorithm;
    plans_.erase(*key);
  }
}

std::vector<std::string> Gemms::choices() const {
  std::vector<std::string> lines;
  for (const auto& [key, plan] : plans_)
    if (plan.used) lines.push_back(words_of(key) + kArrow + words_of(parts_of(plan.algorithm)));
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace mantissa::cuda
