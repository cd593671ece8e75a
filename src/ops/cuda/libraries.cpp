#include "ops/cuda/libraries.h"

#include <fmt/core.h>

#include <cstdio>

#include "ops/cuda/attention/cudnn.h"
#include "ops/cuda/gemm/gemms.h"

namespace mantissa::cuda {
namespace {

class Opened : public Libraries {
 public:
  explicit Opened(CudaDevice& device) : gemms_(device), cudnn_(Cudnn::open(device, cudnn_absence_)) {}
  void describe(DeviceInfo& info) const override {
    info.cublaslt = gemms_.version();
    if (cudnn_) info.cudnn = cudnn_->version();
    info.cudnn_absence = cudnn_absence_;
  }
  void set_gemm_choices(const std::vector<std::string>& lines) override { gemms_.set_choices(lines); }
  std::vector<std::string> gemm_choices() const override { return gemms_.choices(); }
  void set_attention_plans(const std::vector<std::string>& lines) override {
    if (cudnn_)
      cudnn_->set_plans(lines);
    else if (!lines.empty())
      fmt::print(stderr, "attention: the run's record names plans of cuDNN, which is not here: {}\n", cudnn_absence_);
  }
  std::vector<std::string> attention_plans() const override {
    return cudnn_ ? cudnn_->plans() : std::vector<std::string>();
  }
  Gemms& gemms() { return gemms_; }
  Cudnn* cudnn() const { return cudnn_.get(); }

 private:
  Gemms gemms_;
  std::string cudnn_absence_;
  std::unique_ptr<Cudnn> cudnn_;
};

}  // namespace

std::unique_ptr<Libraries> open_libraries(CudaDevice& device) { return std::make_unique<Opened>(device); }

Gemms& gemms_of(const CudaDevice& device) { return static_cast<Opened&>(device.libraries()).gemms(); }

Cudnn* cudnn_of(const CudaDevice& device) { return static_cast<Opened&>(device.libraries()).cudnn(); }

}  // namespace mantissa::cuda
