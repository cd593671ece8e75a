#include "ops/adamw.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using GpuAdamw = GpuTest;

struct Variant {
  DType param, grad, state;
  bool copy, stochastic;
};
constexpr DType kF = DType::kF32, kB = DType::kBF16, k8 = DType::kU8;
constexpr Variant kVariants[] = {{kF, kF, kF, true, false},  {kF, kF, kF, false, false}, {kF, kB, kF, true, false},
                                 {kF, kB, kB, true, false},  {kF, kF, kB, true, false},  {kF, kB, k8, true, false},
                                 {kF, kF, k8, true, false},  {kB, kB, kB, false, false}, {kB, kB, kB, false, true},
                                 {kB, kF, kB, true, true},   {kB, kF, kF, false, false}, {kB, kB, kF, false, true},
                                 {kB, kB, k8, false, false}, {kB, kB, k8, false, true},  {kB, kF, k8, true, true}};
// Parameters of every kind of size: a scalar, odd ones, blocks of moments with a rest, many chunks.
constexpr int64_t kSizes[] = {1, 7, 128, 129, 2048, 5000, 70001, 1 << 20};

// One parameter on both sides.
class Both {
 public:
  Both(Device& device, const Variant& v, int64_t n, uint32_t id) : device_(device), n_(n) {
    host_.id = id;
    host_.decays = id % 2 == 0;
    host_.param = add(v.param, n, packed(random_values(n, id, 1, v.param == kB), v.param));
    if (v.copy) host_.copy = add(kB, n, packed(random_values(n, 99), kB));
    host_.grad = add(v.grad, n, {});
    const int64_t blocks = (n + kMomentBlock - 1) / kMomentBlock;
    host_.m = add(v.state, n, {});
    host_.v = add(v.state, n, {});
    if (v.state == k8) {
      host_.m_scale = add(kF, blocks, {});
      host_.v_scale = add(kF, blocks, {});
    }
    param_ = host_;
    Tensor* const sides[] = {&param_.param, &param_.copy, &param_.m, &param_.v, &param_.m_scale, &param_.v_scale};
    for (Tensor* t : sides)
      if (*t) *t = twin(t->data).tensor();
    param_.grad = twin(host_.grad.data);
  }
  void set_grad(uint64_t seed, float scale) { set_grad(random_values(n_, seed, scale)); }
  void set_grad(const std::vector<float>& values) {
    const std::vector<std::byte> bytes = packed(values, host_.grad.dtype);
    std::memcpy(const_cast<void*>(host_.grad.data), bytes.data(), bytes.size());
    twin(host_.grad.data).upload(host_.grad);
  }
  void poison_grad(int64_t at) {
    auto* bytes = static_cast<std::byte*>(const_cast<void*>(host_.grad.data));
    const int64_t width = bytes_of(host_.grad.dtype, 1);
    std::memset(bytes + at * width, 0xff, static_cast<size_t>(width));
    twin(host_.grad.data).upload(host_.grad);
  }
  const AdamwParam& host() const { return host_; }
  const AdamwParam& device() const { return param_; }
  void expect_equal() const {
    const char* names[] = {"param", "copy", "m", "v", "m_scale", "v_scale"};
    const Tensor tensors[] = {host_.param, host_.copy, host_.m, host_.v, host_.m_scale, host_.v_scale};
    for (int i = 0; i < 6; ++i) {
      if (!tensors[i]) continue;
      const std::vector<std::byte> got = twin(tensors[i].data).bytes();
      EXPECT_EQ(std::memcmp(got.data(), tensors[i].data, got.size()), 0) << names[i] << " of " << tensors[i].str();
    }
  }

 private:
  Tensor add(DType dtype, int64_t n, std::vector<std::byte> bytes) {
    bytes.resize(static_cast<size_t>(bytes_of(dtype, n)));
    memory_.push_back(std::move(bytes));
    const Tensor t(memory_.back().data(), dtype, {n});
    twins_.push_back(std::make_unique<OnDevice>(device_, ConstTensor(t)));
    return t;
  }
  OnDevice& twin(const void* host) const {
    for (size_t i = 0; i < memory_.size(); ++i)
      if (memory_[i].data() == host) return *twins_[i];
    throw std::logic_error("no such tensor");
  }

  Device& device_;
  int64_t n_;
  AdamwParam host_, param_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<OnDevice>> twins_;
};

struct Model {
  std::vector<std::unique_ptr<Both>> params;
  std::vector<AdamwParam> host() const {
    std::vector<AdamwParam> all;
    for (const auto& p : params) all.push_back(p->host());
    return all;
  }
  std::vector<AdamwParam> device() const {
    std::vector<AdamwParam> all;
    for (const auto& p : params) all.push_back(p->device());
    return all;
  }
};

AdamwOutcome read(const OnDevice& t) {
  AdamwOutcome outcome;
  std::memcpy(&outcome, t.bytes().data(), sizeof outcome);
  return outcome;
}

AdamwStep step_of(int64_t t) {
  return {.lr = 3e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .grad_scale = 0.75f, .t = t};
}

TEST_F(GpuAdamw, GivesTheCpusBitsInEveryVariant) {
  Exec cpu;
  const OnDevice outcome(device(), DType::kU8, {int64_t{sizeof(AdamwOutcome)}});
  for (const Variant& v : kVariants) {
    SCOPED_TRACE(testing::Message() << name_of(v.param) << " " << name_of(v.grad) << " " << name_of(v.state)
                                    << (v.copy ? " copy" : "") << (v.stochastic ? " stochastic" : ""));
    Model model;
    uint32_t id = 0;
    for (const int64_t n : kSizes) model.params.push_back(std::make_unique<Both>(device(), v, n, id++));
    for (int64_t t = 1; t <= 4; ++t) {
      for (size_t i = 0; i < model.params.size(); ++i)
        model.params[i]->set_grad(100 * static_cast<uint64_t>(t) + i, t == 3 ? 0.0f : 0.1f);
      cpu.state.seed = exec().state.seed = 0x123456789abcdefu;
      cpu.state.step = exec().state.step = static_cast<uint32_t>(t);
      AdamwOutcome want;
      adamw_update(cpu, &want, model.host(), step_of(t), t % 2 == 0 ? 1.0 : 0.0, v.stochastic);
      adamw_update(exec(), outcome.as<AdamwOutcome>(), model.device(), step_of(t), t % 2 == 0 ? 1.0 : 0.0,
                   v.stochastic);
      const AdamwOutcome got = read(outcome);
      EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-7 * want.grad_norm);
      EXPECT_EQ(got.unmoved, want.unmoved) << t;
      for (const auto& p : model.params) p->expect_equal();
    }
  }
}

// Slices of a tensor begin anywhere.
TEST_F(GpuAdamw, TakesAddressesOfAnyAlignment) {
  Exec cpu;
  const OnDevice outcome(device(), DType::kU8, {int64_t{sizeof(AdamwOutcome)}});
  for (const Variant& v : {kVariants[0], kVariants[8]}) {
    Both whole(device(), v, 5001, 3);
    whole.set_grad(5, 1);
    const auto tail = [](AdamwParam p) {
      const auto cut = [](auto& t) {
        if (t) t = t.slice(1, t.count() - 1);
      };
      cut(p.param), cut(p.copy), cut(p.grad), cut(p.m), cut(p.v);
      return p;
    };
    const std::vector<AdamwParam> host{tail(whole.host())}, dev{tail(whole.device())};
    AdamwOutcome want;
    adamw_update(cpu, &want, host, step_of(1), 0, v.stochastic);
    adamw_update(exec(), outcome.as<AdamwOutcome>(), dev, step_of(1), 0, v.stochastic);
    whole.expect_equal();
  }
}

TEST_F(GpuAdamw, MixesVariantsAndMovesNothingWhenTheNormIsNotFinite) {
  Exec cpu;
  const OnDevice outcome(device(), DType::kU8, {int64_t{sizeof(AdamwOutcome)}});
  Model model;
  uint32_t id = 0;
  for (const Variant& v : kVariants)
    if (!v.stochastic) model.params.push_back(std::make_unique<Both>(device(), v, 3000 + 500 * id, id)), ++id;
  for (size_t i = 0; i < model.params.size(); ++i) model.params[i]->set_grad(i, 1);
  AdamwOutcome want;
  adamw_update(cpu, &want, model.host(), step_of(1), 0.5, false);
  adamw_update(exec(), outcome.as<AdamwOutcome>(), model.device(), step_of(1), 0.5, false);
  for (const auto& p : model.params) p->expect_equal();
  EXPECT_EQ(read(outcome).unmoved, want.unmoved);
  const std::vector<std::byte> first = outcome.bytes();

  model.params[3]->poison_grad(2999);
  adamw_update(exec(), outcome.as<AdamwOutcome>(), model.device(), step_of(2), 0.5, false);
  EXPECT_FALSE(std::isfinite(read(outcome).grad_norm));
  EXPECT_EQ(read(outcome).unmoved, 0);
  for (const auto& p : model.params) p->expect_equal();

  AdamwOutcome host_outcome;
  adamw_update(cpu, &host_outcome, model.host(), step_of(2), 0.5, false);
  EXPECT_FALSE(std::isfinite(host_outcome.grad_norm));
  for (const auto& p : model.params) p->expect_equal();

  for (size_t i = 0; i < model.params.size(); ++i) model.params[i]->set_grad(i, 1);
  adamw_update(exec(), outcome.as<AdamwOutcome>(), model.device(), step_of(1), 0.5, false);
  EXPECT_EQ(std::memcmp(outcome.bytes().data(), first.data(), sizeof(double)), 0);  // the same norm in every run
}

// Gradients of zero and of every size down to 2^-80 side by side: moments that are zero, or whose products lose bits,
// take the CPU's way beside ordinary ones.
TEST_F(GpuAdamw, TinyAndZeroGradientsAgree) {
  Exec cpu;
  const OnDevice outcome(device(), DType::kU8, {int64_t{sizeof(AdamwOutcome)}});
  for (const Variant& v : kVariants) {
    SCOPED_TRACE(testing::Message() << name_of(v.param) << " " << name_of(v.grad) << " " << name_of(v.state));
    Both p(device(), v, 5000, 4);
    for (int64_t t = 1; t <= 4; ++t) {
      std::vector<float> grad = random_values(5000, static_cast<uint64_t>(t), 1);
      for (size_t i = 0; i < grad.size(); ++i) {
        const size_t run = i / 512;  // some of ordinary size, some mixed, some of zeros
        if (run % 4 == 1 || run % 4 == 3) grad[i] = std::ldexp(grad[i], -static_cast<int>(i * 37 % 81));
        if (run % 4 == 2 || (run % 4 == 3 && i % 5 == 0)) grad[i] = 0;
      }
      p.set_grad(grad);
      cpu.state.seed = exec().state.seed = 77;
      cpu.state.step = exec().state.step = static_cast<uint32_t>(t);
      AdamwOutcome want;
      adamw_update(cpu, &want, std::vector{p.host()}, step_of(t), 0, v.stochastic);
      adamw_update(exec(), outcome.as<AdamwOutcome>(), std::vector{p.device()}, step_of(t), 0, v.stochastic);
      p.expect_equal();
      EXPECT_EQ(read(outcome).unmoved, want.unmoved) << t;
    }
  }
}

// A huge second moment: FP32's infinities take the CPU's way.
TEST_F(GpuAdamw, OverflowOfTheSecondMomentAgrees) {
  Exec cpu;
  const OnDevice outcome(device(), DType::kU8, {int64_t{sizeof(AdamwOutcome)}});
  for (const Variant& v : {kVariants[0], kVariants[5], kVariants[8], kVariants[13]}) {
    Both p(device(), v, 300, 4);
    AdamwStep step = step_of(1);
    step.grad_scale = 1e20f;
    p.set_grad(1, 1e3f);
    AdamwOutcome want;
    adamw_update(cpu, &want, std::vector{p.host()}, step, 0, v.stochastic);
    adamw_update(exec(), outcome.as<AdamwOutcome>(), std::vector{p.device()}, step, 0, v.stochastic);
    p.expect_equal();
    EXPECT_EQ(read(outcome).unmoved, want.unmoved);
  }
}

}  // namespace
}  // namespace mantissa
