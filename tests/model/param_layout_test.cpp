// Where parameters lie: each purpose in one range, the gradients of a block in one bucket.
#include <gtest/gtest.h>

#include "model/arch/arch.h"
#include "model/param.h"
#include "tests/model/small_model.h"

namespace mantissa {
namespace {

ModelConfig small_model(const std::string& arch) {
  ModelConfig m = test::model_of(arch, {.vocab = 97,
                                        .hidden = 24,
                                        .intermediate = 40,
                                        .layers = 3,
                                        .heads = 3,
                                        .kv_heads = 1,
                                        .head_dim = 8,
                                        .positions = 32});
  m.tie_word_embeddings = arch == "gpt2";
  return m;
}

struct Store {
  Store(const std::string& arch, const ParamStoreOptions& options)
      : params(find_arch(arch).params(small_model(arch)), options) {
    arena.build([this](Arena& a) { params.allocate(a); });
  }
  ParamStore params;
  Arena arena;
};

const std::byte* begin_of(const Tensor& t) { return static_cast<const std::byte*>(t.data); }
const std::byte* end_of(const Tensor& t) { return begin_of(t) + t.bytes(); }

// Each tensor begins within the arena's alignment of the end of the one before.
void expect_one_range(const std::vector<Tensor>& tensors, const char* purpose) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    const int64_t gap = begin_of(tensors[i]) - end_of(tensors[i - 1]);
    EXPECT_GE(gap, 0) << purpose << " " << i;
    EXPECT_LT(gap, Arena::kAlignment) << purpose << " " << i;
  }
}

class Layout : public ::testing::TestWithParam<const char*> {};

TEST_P(Layout, EachPurposeIsOneRange) {
  for (const bool gpu : {false, true}) {
    const Store store(
        GetParam(),
        {.weights = WeightMode::kF32Master, .grads = DType::kBF16, .state = DType::kU8, .device = nullptr, .gpu = gpu});
    std::vector<Tensor> weights, masters, grads, moments, scales;
    const std::vector<AdamwParam> optimized = store.params.optimized();
    for (const auto list : {&AdamwParam::m, &AdamwParam::v})
      for (const AdamwParam& p : optimized) moments.push_back(p.*list);
    for (const auto list : {&AdamwParam::m_scale, &AdamwParam::v_scale})
      for (const AdamwParam& p : optimized) moments.push_back(p.*list);
    for (int id = 0; id < store.params.size(); ++id) {
      weights.push_back(store.params.padded_weight(id));
      masters.push_back(store.params.updated(id));
      grads.push_back(store.params.padded_grad(id));
    }
    expect_one_range(weights, "weights");
    expect_one_range(masters, "masters");
    expect_one_range(grads, "gradients");
    expect_one_range(moments, "moments");
  }
}

TEST_P(Layout, BucketsCoverTheGradientsInOrder) {
  for (const bool gpu : {false, true}) {
    const Store store(GetParam(), {.grads = DType::kBF16, .gpu = gpu});
    std::vector<std::string> names;
    std::vector<Tensor> buckets;
    int next = 0;
    for (const ParamGroup& group : store.params.groups()) {
      names.push_back(group.name);
      EXPECT_EQ(group.first, next);
      next += group.count;
      const Tensor bucket = store.params.grad_bucket(group);
      EXPECT_EQ(bucket.dtype, DType::kBF16);
      EXPECT_EQ(begin_of(bucket), begin_of(store.params.grad(group.first)));
      EXPECT_EQ(end_of(bucket), end_of(store.params.padded_grad(next - 1)));
      for (int id = group.first; id < next; ++id)
        EXPECT_TRUE(store.params.spec(id).name.starts_with(group.name + ".")) << store.params.spec(id).name;
      buckets.push_back(bucket);
    }
    EXPECT_EQ(next, store.params.size());
    expect_one_range(buckets, "buckets");
    std::vector<std::string> wanted = {"embedding", "layers.0", "layers.1", "layers.2", "final_norm"};
    if (std::string(GetParam()) == "gpt2")
      wanted.insert(wanted.begin() + 1, "positions");
    else
      wanted.push_back("head");
    EXPECT_EQ(names, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, Layout, ::testing::Values("gpt2", "llama", "qwen2", "qwen3"));

}  // namespace
}  // namespace mantissa
