#include "tests/gpu/models.h"

#include "tests/model/small_model.h"
#include "tests/train/snapshot.h"

namespace mantissa {

ModelConfig small_model(const std::string& arch, int64_t vocab, int64_t head_dim) {
  ModelConfig m = test::model_of(arch, {.vocab = vocab,
                                        .hidden = 256,
                                        .intermediate = 512,
                                        .layers = 2,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = head_dim,
                                        .positions = 256,
                                        .initializer_range = 0.08});
  m.tie_word_embeddings = arch != "llama";
  return m;
}

Rows::Rows(const std::vector<int>& lengths, uint32_t salt, int64_t vocab) {
  uint32_t state = salt * 2654435761u + 1;
  const auto token = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab));
  };
  for (const int n : lengths) {
    for (int32_t i = 0; i < n; ++i) {
      ids.push_back(token());
      labels.push_back(i + 1 < n ? token() : kIgnoredLabel);
      positions.push_back(i);
      valid += i + 1 < n;
    }
    segments.push_back(static_cast<int32_t>(ids.size()));
  }
}

MicroBatch Rows::view() const {
  return {{ids.data(), DType::kI32, {tokens()}},
          {labels.data(), DType::kI32, {tokens()}},
          {positions.data(), DType::kI32, {tokens()}},
          {segments.data(), DType::kI32, {static_cast<int64_t>(segments.size())}}};
}

std::unique_ptr<Engine> make_engine(const EngineCase& c, Device* device) {
  PrecisionConfig precision;
  precision.recipe = c.recipe, precision.weights = c.weights, precision.scope = c.scope;
  auto engine = std::make_unique<Engine>(small_model(c.arch, 1000, c.head_dim), precision,
                                         EngineOptions{.tokens = c.tokens,
                                                       .sequence_length = kLength,
                                                       .recompute = parse_recompute(c.recompute),
                                                       .state = c.state,
                                                       .device = device,
                                                       .graphs = c.graphs,
                                                       .max_segments = c.max_segments});
  engine->build();
  engine->initialize(7);
  engine->exec().state.seed = 7;
  return engine;
}

void copy_state(Engine& to, Engine& from) { testing::restore(to, testing::snapshot_of(from)); }

std::map<std::string, std::vector<float>> scaling_values(Engine& engine) {
  std::map<std::string, std::vector<float>> all;
  engine.visit_state([&](const StateTensor& s) {
    if (!s.name.starts_with("scaling/")) return;
    std::vector<float>& values = all[s.name];
    values.resize(static_cast<size_t>(s.tensor.count()));
    read_state(s, reinterpret_cast<std::byte*>(values.data()));
  });
  return all;
}

double accumulate(Engine& engine, uint32_t step) {
  const Rows rows[] = {packed_rows(1), uniform_rows(2), packed_rows(3)};
  int64_t valid = 0;
  for (const Rows& r : rows) valid += r.valid;
  engine.begin_step(step);
  for (const Rows& r : rows) engine.micro_step(r.view(), valid, 1e-4);
  EXPECT_EQ(engine.sums().valid, valid);
  return engine.sums().loss / static_cast<double>(valid);
}

Trace train(Engine& engine, uint32_t steps) {
  Trace trace;
  for (uint32_t step = 1; step <= steps; ++step) {
    trace.losses.push_back(accumulate(engine, step));
    if (step == steps)
      for (int id = 0; id < engine.params().size(); ++id) trace.grads.push_back(engine.params().grad_values(id));
    trace.norms.push_back(engine.update({.lr = kLearningRate}).grad_norm);
  }
  for (int id = 0; id < engine.params().size(); ++id) trace.params.push_back(engine.params().values(id));
  return trace;
}

}  // namespace mantissa
