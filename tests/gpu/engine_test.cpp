// The engine on a GPU against the engine on the CPU; what must not change a bit; what memory it takes.
#include "train/engine.h"

#include <cmath>
#include <cstring>
#include <ostream>

#include "tests/gpu/models.h"
#include "train/memory_plan.h"

namespace mantissa {
namespace {

// FP32: sums in another order. BF16: each of some dozen roundings on the way is made of values that differ by rounding.
struct Bounds {
  double loss, logits, grads, params;
};
constexpr Bounds kF32{1e-5, 1e-4, 1e-4, 2e-3}, kBF16{5e-3, 2e-2, 5e-2, 2e-2};

const Bounds& bounds_of(const std::string& recipe) { return recipe == "fp32" ? kF32 : kBF16; }

struct Case {
  const char *arch, *recipe, *weights;
  int64_t head_dim = 64;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.arch << " " << c.recipe << " " << c.weights << " " << c.head_dim;
}

using GpuEngineOnly = GpuTest;

class GpuEngine : public GpuTest, public testing::WithParamInterface<Case> {
 protected:
  std::unique_ptr<Engine> make(Device* on) const {
    const Case& c = GetParam();
    return make_engine({.arch = c.arch, .recipe = c.recipe, .weights = c.weights, .head_dim = c.head_dim}, on);
  }
};

TEST_P(GpuEngine, LogitsLossAndGradientsAreTheCpus) {
  const auto gpu = make(&device()), cpu = make(nullptr);
  const Bounds& bounds = bounds_of(GetParam().recipe);
  for (const Rows& rows : {packed_rows(5), uniform_rows(6)}) {
    const auto logits = [&](Engine& engine) {
      std::vector<float> out(static_cast<size_t>(kTokens * 1000));
      engine.logits(rows.view(), {out.data(), DType::kF32, {kTokens, 1000}});
      return out;
    };
    EXPECT_LT(relative_error(logits(*gpu), logits(*cpu)), bounds.logits);
    LossSums on_gpu, on_cpu;
    gpu->evaluate(rows.view(), on_gpu);
    cpu->evaluate(rows.view(), on_cpu);
    EXPECT_NEAR(on_gpu.loss / on_cpu.loss, 1, bounds.loss);
    EXPECT_NEAR(on_gpu.z / on_cpu.z, 1, 2 * bounds.loss);
    EXPECT_EQ(on_gpu.valid, rows.valid);
    for (Engine* engine : {gpu.get(), cpu.get()}) {
      engine->begin_step(1);
      engine->micro_step(rows.view(), rows.valid, 1e-3);
    }
    EXPECT_NEAR(gpu->sums().loss / cpu->sums().loss, 1, bounds.loss);
    EXPECT_NEAR(gpu->grad_norm() / cpu->grad_norm(), 1, bounds.grads);
    for (int id = 0; id < cpu->params().size(); ++id)
      EXPECT_LT(relative_error(gpu->params().grad_values(id), cpu->params().grad_values(id)), bounds.grads)
          << cpu->params().spec(id).name;
  }
}

// Every step from the CPU's state: what a step computes is compared, not what five of them make of a rounding. The loss
// falls to 0.1, where BF16 is 1.5% from FP32 at the same weights, on either side.
TEST_P(GpuEngine, StepsAsTheCpu) {
  const auto gpu = make(&device()), cpu = make(nullptr);
  gpu->warm_up(packed_rows(9).view());
  const Bounds& bounds = bounds_of(GetParam().recipe);
  for (uint32_t step = 1; step <= 5; ++step) {
    copy_state(*gpu, *cpu);
    const double loss = accumulate(*gpu, step) / accumulate(*cpu, step);
    const AdamwSettings settings{.lr = kLearningRate};
    const double norm = gpu->update(settings).grad_norm / cpu->update(settings).grad_norm;
    fmt::print("step {}: gpu / cpu: loss {:.5f}, norm {:.5f}\n", step, loss, norm);
    EXPECT_NEAR(loss, 1, 5 * bounds.loss) << "step " << step;
    EXPECT_NEAR(norm, 1, bounds.grads) << "step " << step;
    // Vectors begin at one value, and AdamW moves those without a gradient (the bias of the keys) as their rounding
    // says.
    for (int id = 0; id < cpu->params().size(); ++id)
      if (cpu->params().spec(id).decays()) {
        EXPECT_LT(relative_error(gpu->params().values(id), cpu->params().values(id)), bounds.params)
            << "step " << step << ' ' << cpu->params().spec(id).name;
      }
  }
}

// A recipe's own noise is the measure. Activations of GPU and CPU differ by BF16 roundings, which move some codes by a
// step, and those move others, so that of the two sides' noises some part is not shared: independent ones would lie
// sqrt(2) times one noise apart. Both are as large.
TEST_F(GpuEngineOnly, QuantizedStepsAsTheCpu) {
  const Rows rows = packed_rows(5);
  for (const char* scope : {"linear", "linear+logits+norm"})
    for (const char* recipe : {"fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4"})
      for (const char* arch : {"qwen3", "gpt2"}) {
        // A CPU does not pad a vocabulary of 1000 to what blocks divide.
        if (std::string(scope) != "linear" && (std::string(recipe) == "mxfp8" || std::string(recipe) == "nvfp4"))
          continue;
        SCOPED_TRACE(fmt::format("{} {} {}", arch, recipe, scope));
        const auto make = [&](const char* name, Device* on) {
          return make_engine({.arch = arch, .recipe = name, .weights = "bf16", .scope = scope}, on);
        };
        const auto gpu = make(recipe, &device()), cpu = make(recipe, nullptr), plain = make("bf16", nullptr);
        gpu->warm_up(packed_rows(9).view());
        for (uint32_t step = 1; step <= 3; ++step) {
          copy_state(*gpu, *cpu);
          for (int id = 0; id < cpu->params().size(); ++id) plain->params().set(id, cpu->params().values(id).data());
          double losses[3], noise = 0, error = 0;
          Engine* const engines[] = {gpu.get(), cpu.get(), plain.get()};
          for (int i = 0; i < 3; ++i) losses[i] = accumulate(*engines[i], step);
          for (int id = 0; id < cpu->params().size(); ++id) {
            const std::vector<float> g = gpu->params().grad_values(id), c = cpu->params().grad_values(id),
                                     p = plain->params().grad_values(id);
            if (!cpu->params().spec(id).decays()) continue;
            const double of_cpu = relative_error(c, p), of_gpu = relative_error(g, p);
            noise = std::max(noise, of_cpu), error = std::max(error, relative_error(g, c));
            EXPECT_LT(relative_error(g, c), of_cpu) << cpu->params().spec(id).name;
            EXPECT_NEAR(of_gpu / of_cpu, 1, 0.2) << cpu->params().spec(id).name;
          }
          fmt::print("{:5} {:14} {:18} step {}: gpu / cpu: loss {:.5f}, gradients {:.4f}; bf16 / cpu: {:.5f}, {:.4f}\n",
                     arch, recipe, scope, step, losses[0] / losses[1], error, losses[2] / losses[1], noise);
          EXPECT_NEAR(losses[0] / losses[1], 1, 5 * kBF16.loss) << "step " << step;
          EXPECT_EQ(gpu->amax_trouble(), "");
          // Amaxes and the scales that follow: of activations that differ by rounding.
          const auto on_gpu = scaling_values(*gpu), on_cpu = scaling_values(*cpu);
          for (const auto& [name, values] : on_cpu)
            for (size_t i = 0; i < values.size(); ++i)
              ASSERT_LE(std::abs(on_gpu.at(name)[i] - values[i]), 0.2 * std::abs(values[i])) << name << " " << i;
          for (Engine* engine : engines) engine->update({.lr = kLearningRate});
        }
      }
}

// Rows behind the vocabulary stay zero, in weight and gradient.
TEST_P(GpuEngine, PaddingStaysZero) {
  const auto engine = make(&device());
  train(*engine, 2);
  const ParamStore& params = engine->params();
  for (const char* name : {"embedding.weight", "head.weight"}) {
    const int id = params.find_or_none(name);
    if (id < 0) continue;
    ASSERT_EQ(params.padded_rows(id), 1024);
    for (const Tensor& t : {params.padded_weight(id), params.padded_grad(id)}) {
      const Tensor rows = t.slice(1000, 24);
      std::vector<std::byte> bytes(static_cast<size_t>(rows.bytes()));
      device().copy_out(bytes.data(), rows.data, rows.bytes());
      for (const std::byte b : bytes) ASSERT_EQ(b, std::byte{0}) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuEngine,
                         testing::Values(Case{"gpt2", "fp32", "fp32"}, Case{"llama", "fp32", "fp32"},
                                         Case{"qwen2", "fp32", "fp32"}, Case{"qwen3", "fp32", "fp32"},
                                         Case{"gpt2", "bf16", "fp32"}, Case{"llama", "bf16", "bf16"},
                                         Case{"qwen2", "bf16", "fp32"}, Case{"qwen3", "bf16", "bf16-sr"},
                                         // The widths of heads that have kernels or cuDNN plans of their own.
                                         Case{"qwen3", "fp32", "fp32", 128}, Case{"qwen3", "bf16", "bf16", 128},
                                         Case{"qwen3", "bf16", "fp32", 96}, Case{"qwen3", "bf16", "bf16", 72}),
                         [](const auto& test) {
                           std::string name =
                               std::string(test.param.arch) + "_" + test.param.recipe + "_" + test.param.weights;
                           if (test.param.head_dim != 64) name += "_" + std::to_string(test.param.head_dim);
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

void expect_same_bits(const Trace& x, const Trace& y, const std::string& what) {
  EXPECT_EQ(x.losses, y.losses) << what;
  EXPECT_EQ(x.norms, y.norms) << what;
  for (size_t i = 0; i < x.grads.size(); ++i)
    EXPECT_EQ(0, std::memcmp(x.grads[i].data(), y.grads[i].data(), x.grads[i].size() * 4)) << what << " gradient " << i;
  for (size_t i = 0; i < x.params.size(); ++i)
    EXPECT_EQ(0, std::memcmp(x.params[i].data(), y.params[i].data(), x.params[i].size() * 4))
        << what << " parameter " << i;
}

using GpuEngineDeterministic = DeterministicGpuTest;

TEST_F(GpuEngineDeterministic, SameBitsWhateverIsRecomputedOrCaptured) {
  for (const char* arch : {"gpt2", "qwen3"})
    for (const char* weights : {"fp32", "bf16-sr"}) {
      EngineCase c{.arch = arch, .weights = weights};
      const Trace first = train(*make_engine(c, &device()), 3);
      expect_same_bits(first, train(*make_engine(c, &device()), 3), "again");
      for (const char* plan : {"none", "norm+act", "block"})
        for (const bool graphs : {true, false}) {
          c.recompute = plan, c.graphs = graphs;
          const auto engine = make_engine(c, &device());
          engine->warm_up(packed_rows(4).view());
          expect_same_bits(first, train(*engine, 3), fmt::format("{} {} {} graphs {}", arch, weights, plan, graphs));
        }
    }
}

TEST_F(GpuEngineDeterministic, SameBitsOfEveryRecipe) {
  for (const char* scope : {"linear", "linear+logits+norm"})
    for (const char* recipe : {"fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4"}) {
      EngineCase c{.recipe = recipe, .weights = "bf16", .scope = scope};
      const Trace first = train(*make_engine(c, &device()), 3);
      for (const char* plan : {"none", "norm+act", "block"})
        for (const bool graphs : {true, false}) {
          c.recompute = plan, c.graphs = graphs;
          const auto engine = make_engine(c, &device());
          engine->warm_up(packed_rows(4).view());
          expect_same_bits(first, train(*engine, 3), fmt::format("{} {} {} graphs {}", recipe, scope, plan, graphs));
        }
    }
}

TEST_F(GpuEngineDeterministic, SameBitsAtEveryWidthOfAHead) {
  for (const int64_t head_dim : {128, 96, 72}) {
    EngineCase c{.weights = "bf16", .head_dim = head_dim};
    const Trace first = train(*make_engine(c, &device()), 3);
    for (const char* plan : {"none", "block"})
      for (const bool graphs : {true, false}) {
        c.recompute = plan, c.graphs = graphs;
        const auto engine = make_engine(c, &device());
        engine->warm_up(packed_rows(4).view());
        expect_same_bits(first, train(*engine, 3), fmt::format("head_dim {} {} graphs {}", head_dim, plan, graphs));
      }
  }
}

// What a kernel that begins early reads is there: with every kernel waiting for the whole of the one before, the bits
// are the same.
TEST_F(GpuEngineDeterministic, SameBitsWithoutOverlap) {
  const std::unique_ptr<Device> in_turn = open_device({.deterministic = true, .search = false, .overlap = false});
  for (const char* arch : {"gpt2", "llama", "qwen3"})
    for (const bool graphs : {true, false}) {
      const EngineCase c{.arch = arch, .weights = "bf16", .graphs = graphs};
      expect_same_bits(train(*make_engine(c, in_turn.get()), 3), train(*make_engine(c, &device()), 3),
                       fmt::format("{} graphs {}", arch, graphs));
    }
}

// A graph that was captured with one z weight computes another one's step.
TEST_F(GpuEngineDeterministic, TheZLossMayChangeFromStepToStep) {
  const Rows rows = packed_rows(3);
  const auto captured = make_engine({.graphs = true}, &device()), eager = make_engine({.graphs = false}, &device());
  uint32_t step = 0;
  std::vector<float> without;
  for (const double z : {0.0, 1e-2, 1e-2, 0.5, 0.0}) {
    ++step;
    for (Engine* engine : {captured.get(), eager.get()}) {
      engine->begin_step(step);
      for (int micro = 0; micro < 2; ++micro) engine->micro_step(rows.view(), 2 * rows.valid, z);
    }
    EXPECT_EQ(captured->sums().loss, eager->sums().loss) << "z " << z;
    EXPECT_EQ(captured->sums().z, eager->sums().z) << "z " << z;
    for (int id = 0; id < eager->params().size(); ++id)
      EXPECT_EQ(captured->params().grad_values(id), eager->params().grad_values(id))
          << "z " << z << ' ' << eager->params().spec(id).name;
    if (step == 1) without = eager->params().grad_values(0);
    // The weights have not moved: without a z loss the gradients are those of the first step, with one they are not.
    EXPECT_EQ(captured->params().grad_values(0) == without, z == 0) << "z " << z;
  }
}

// Outside of the deterministic mode sums may take another order, so that gradients differ as roundings do.
TEST_F(GpuEngineOnly, GraphsComputeWhatEagerStepsDo) {
  for (const int64_t head_dim : {64, 128}) {
    const EngineCase c{.weights = "fp32", .head_dim = head_dim};
    EngineCase by_op = c;
    by_op.graphs = false;
    const auto captured = make_engine(c, &device()), eager = make_engine(by_op, &device());
    for (uint32_t step = 1; step <= 3; ++step) {  // the third is a graph that ran before
      double losses[2];
      for (Engine* engine : {captured.get(), eager.get()}) losses[engine == eager.get()] = accumulate(*engine, step);
      EXPECT_NEAR(losses[0] / losses[1], 1, 1e-6) << "step " << step;
      for (int id = 0; id < eager->params().size(); ++id)
        EXPECT_LT(relative_error(captured->params().grad_values(id), eager->params().grad_values(id)), kBF16.grads)
            << "step " << step << ' ' << eager->params().spec(id).name;
    }
  }
}

TEST_F(GpuEngineOnly, MoreThan1024DocumentsInAMicroBatch) {
  std::vector<int> lengths;
  for (int i = 0; i < 1280; ++i) lengths.push_back(1 + i % 3);  // 2,559 tokens
  int total = 0;
  for (const int n : lengths) total += n;
  lengths.push_back(2560 - total);
  const Rows rows(lengths, 11);
  for (const char* recipe : {"fp32", "bf16"}) {
    const EngineCase c{.recipe = recipe, .tokens = 2560, .max_segments = 1400};
    const auto gpu = make_engine(c, &device()), cpu = make_engine(c, nullptr);
    const Bounds& bounds = bounds_of(recipe);
    for (Engine* engine : {gpu.get(), cpu.get()}) {
      engine->begin_step(1);
      engine->micro_step(rows.view(), rows.valid, 1e-3);
    }
    EXPECT_NEAR(gpu->sums().loss / cpu->sums().loss, 1, bounds.loss);
    EXPECT_EQ(gpu->sums().valid, rows.valid);
    for (int id = 0; id < cpu->params().size(); ++id)
      EXPECT_LT(relative_error(gpu->params().grad_values(id), cpu->params().grad_values(id)), bounds.grads)
          << recipe << ' ' << cpu->params().spec(id).name;
  }
}

// What `work` throws while it is captured comes out, and the device goes on.
TEST_F(GpuEngineOnly, AThrowInsideACaptureLeavesTheDeviceUsable) {
  const auto before = make_engine({}, &device());
  before->begin_step(1);
  before->micro_step(packed_rows(1).view(), 200, 0);
  const double loss = before->sums().loss;
  const OnDevice memory(device(), DType::kF32, {64});
  for (int round = 0; round < 2; ++round) {
    try {
      device().capture([&] {
        device().zero(memory.tensor().data, memory.tensor().bytes());
        fail(Exit::kInput, "thrown in a capture");
      });
      FAIL() << "nothing came out";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kInput) << e.what();
      EXPECT_NE(std::string(e.what()).find("thrown in a capture"), std::string::npos) << e.what();
    }
    EXPECT_FALSE(device().capturing());
  }
  for (const float x : memory.floats()) EXPECT_TRUE(std::isnan(x));  // nothing of the capture ran
  device().capture([&] { device().zero(memory.tensor().data, memory.tensor().bytes()); })->launch();
  for (const float x : memory.floats()) EXPECT_EQ(x, 0);
  const auto after = make_engine({}, &device());
  after->begin_step(1);
  after->micro_step(packed_rows(1).view(), 200, 0);
  EXPECT_NEAR(after->sums().loss / loss, 1, 1e-6);
}

TEST_F(GpuEngineOnly, EightBitMomentsTrain) {
  const EngineCase c{.weights = "bf16-sr", .state = "8bit"};
  const Trace a = train(*make_engine(c, &device()), 5);
  const Trace b = train(*make_engine({.weights = "bf16-sr", .state = "fp32"}, &device()), 5);
  EXPECT_LT(a.losses.back(), 0.98 * a.losses.front());
  EXPECT_NEAR(a.losses.back() / b.losses.back(), 1, 0.02);
}

TEST_F(GpuEngineOnly, NonFiniteIsNamedAndMovesNothing) {
  const Rows rows = packed_rows(3);
  const auto engine = make_engine({}, &device());
  const int bad = engine->params().find("layers.1.mlp.up.weight");
  std::vector<float> values = engine->params().values(bad);
  values[5] = NAN;
  engine->params().set(bad, values.data());
  engine->begin_step(1);
  engine->micro_step(rows.view(), rows.valid, 0);
  const std::vector<float> before = engine->params().values(0);
  try {
    engine->update({});
    FAIL() << "a gradient that is not finite was applied";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kNonFinite);
    EXPECT_NE(std::string(e.what()).find("gradient of "), std::string::npos) << e.what();
  }
  EXPECT_EQ(before, engine->params().values(0));
  try {
    engine->find_nonfinite(rows.view());
    FAIL() << "nothing was found";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("layers.1.mlp.up.weight"), std::string::npos) << e.what();
  }
}

TEST_F(GpuEngineOnly, ValuesOutsideTheirTablesAreRefused) {
  const auto engine = make_engine({}, &device());
  engine->begin_step(1);
  const auto refused = [&](const char* what, const std::function<void(Rows&)>& spoil) {
    Rows rows = packed_rows(3);
    spoil(rows);
    try {
      engine->micro_step(rows.view(), rows.valid, 0);
      ADD_FAILURE() << what << " was taken";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
    }
  };
  refused("ids[3] is 1000", [](Rows& r) { r.ids[3] = 1000; });
  refused("labels[4] is -1", [](Rows& r) { r.labels[4] = -1; });
  refused("positions[5] is 128", [](Rows& r) { r.positions[5] = 128; });
  refused("segments[2] is 129", [](Rows& r) { r.segments = {0, 0, 129, 256}; });
  refused("9 documents", [](Rows& r) { r.segments = {0, 1, 2, 3, 4, 5, 6, 64, 128, 256}; });
}

// What a warm-up leaves: nothing.
TEST_F(GpuEngineOnly, WarmUpLeavesNoTrace) {
  const auto warm = make_engine({}, &device()), cold = make_engine({}, &device());
  warm->warm_up(uniform_rows(8).view());
  for (int id = 0; id < cold->params().size(); ++id) EXPECT_EQ(warm->params().values(id), cold->params().values(id));
  for (Engine* engine : {warm.get(), cold.get()}) {
    engine->begin_step(1);
    engine->micro_step(packed_rows(1).view(), 200, 0);
  }
  EXPECT_EQ(warm->sums().loss, cold->sums().loss);
  EXPECT_NEAR(warm->grad_norm() / cold->grad_norm(), 1, 1e-2);
}

// Device memory that was free before the context, less what is free after steps, against the plan. The context's share
// is printed: kGpuContextBytes must hold it.
TEST_F(GpuEngineOnly, TakesThePlannedMemory) {
  const auto engine = make_engine({}, &device());
  const int64_t planned = engine->plan().total();
  const int64_t before = device().free_bytes();
  train(*engine, 2);
  const int64_t measured = device().info().free_before_bytes - device().free_bytes();
  fmt::print("planned {:.1f} MiB; device {:.1f} MiB in use, {:.1f} of it since the build\n",
             static_cast<double>(planned) / (1 << 20), static_cast<double>(measured) / (1 << 20),
             static_cast<double>(before - device().free_bytes()) / (1 << 20));
  EXPECT_EQ(planned, engine->ledger().total() + engine->exec().shared_scratch_bytes());
}

}  // namespace
}  // namespace mantissa
