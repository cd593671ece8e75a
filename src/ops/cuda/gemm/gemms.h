// The products of one device: an algorithm for each key, found once.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/cuda/gemm/choice_file.h"
#include "ops/cuda/gemm/search.h"

namespace mantissa::cuda {

// Whether a product may be searched, and scratch beside the workspace that the search may write.
struct SearchRoom {
  bool allowed = false;
  std::byte* spare = nullptr;
  int64_t bytes = 0;
};

class Gemms {
 public:
  explicit Gemms(CudaDevice& device);

  // Enqueues the product.
  //
  // The algorithm is, in this order: the one fixed by set_choices(); unless the device is deterministic, the one that
  // the choice file holds and the fastest of a search; the library's first. A search happens in the first call that
  // allows it outside of a capture, for products that are worth it and only where the device's options ask for it; it
  // reads the product's own values, since the power that a product draws, and so its clocks, depend on them.
  void multiply(const GemmKey& key, const GemmAddresses& at, const SearchRoom& room);
  // The words of the algorithm that multiply() would enqueue, short of a search.
  std::string explain(const GemmKey& key);

  // Lines "KEY -> ALGORITHM", each in its words; Exit::kInput where one is not.
  void set_choices(const std::vector<std::string>& lines);
  // Of the keys multiplied so far, in the order of their words.
  std::vector<std::string> choices() const;

  std::string version() const;  // "13.1.0"

 private:
  struct Plan {
    Product product;
    cublasLtMatmulAlgo_t algorithm;
    bool settled = false;  // no search will change the algorithm
    bool used = false;
  };
  Plan& plan_of(const GemmKey& key);
  // The algorithm in `words`; on stderr, and none, where the library refuses it.
  std::optional<cublasLtMatmulAlgo_t> restore(const Product& product, const std::string& key, const std::string& words,
                                              const std::string& source) const;
  void search(const GemmKey& key, Plan& plan, const GemmAddresses& at, const SearchRoom& room);
  ChoiceFile& file();

  CudaDevice& device_;
  CublasHandle handle_;
  std::unordered_map<GemmKey, Plan, GemmKeyHash> plans_;
  std::unordered_map<GemmKey, std::string, GemmKeyHash> fixed_;  // algorithms in words
  std::unique_ptr<ChoiceFile> file_;
  GemmSearch search_;
  bool announced_ = false;
};

}  // namespace mantissa::cuda
