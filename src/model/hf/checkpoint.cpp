#include "model/hf/checkpoint.h"

#include "base/error.h"
#include "base/file.h"
#include "model/arch/arch.h"
#include "model/hf/match.h"
#include "model/hf/values.h"

namespace mantissa {
namespace {

std::vector<ParamSpec> specs_of(const ParamStore& params) {
  std::vector<ParamSpec> specs;
  for (int id = 0; id < params.size(); ++id) specs.push_back(params.spec(id));
  return specs;
}

}  // namespace

int64_t load_hf_weights(const std::string& folder, const ModelConfig& model, ParamStore& params, DType round_to) {
  const auto tensors = hf::Tensors::open(folder);
  const std::vector<ParamSpec> specs = specs_of(params);
  const std::vector<hf::Match> matches = hf::match_tensors(tensors, model, specs);
  if (model.tie_word_embeddings && hf::head_differs(tensors, specs))
    fail(Exit::kInput, "{}: lm_head.weight: differs from the embedding, which this model ties to it", tensors.name());
  ParamWriter writer(params);
  int64_t bytes = 0;
  for (size_t i = 0; i < matches.size(); ++i) {
    if (i == 0) read_ahead(matches[0].view->bytes);
    if (i + 1 < matches.size()) read_ahead(matches[i + 1].view->bytes);
    hf::load_match(matches[i], writer, round_to);
    bytes += static_cast<int64_t>(matches[i].view->bytes.size());
  }
  tensors.check_whole();
  return bytes;
}

std::string first_different_tensor(const std::string& folder, const ModelConfig& model, const ParamStore& params,
                                   DType round_to) {
  const auto tensors = hf::Tensors::open(folder);
  const std::vector<ParamSpec> specs = specs_of(params);
  std::string different;
  for (const hf::Match& match : hf::match_tensors(tensors, model, specs)) {
    if (hf::holds_match(match, params, round_to)) continue;
    different = match.name;
    break;
  }
  tensors.check_whole();
  return different;
}

void for_each_hf_part(
    const ParamSpec& spec, const std::vector<float>& values,
    const std::function<void(const std::string&, const std::vector<int64_t>&, const std::vector<float>&)>& visit) {
  const int64_t cols = spec.shape.rank() == 1 ? 1 : spec.shape[1];
  for (const HfPart& part : spec.hf) {
    std::vector<float> out(static_cast<size_t>(part.rows * cols));
    const float* in = values.data() + part.row * cols;
    for (int64_t r = 0; r < part.rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        out[static_cast<size_t>(part.transposed ? c * part.rows + r : r * cols + c)] = in[r * cols + c];
    visit(part.name, hf::part_shape(spec, part), out);
  }
}

}  // namespace mantissa
