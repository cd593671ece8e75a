// Device on CUDA: one primary context, one stream, graphs, profile.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/device.h"

namespace mantissa::cuda {

// What libraries keep for a device: handles, plans. Made and known by ops/cuda.
class Libraries {
 public:
  virtual ~Libraries() = default;
  virtual void describe(DeviceInfo& info) const = 0;  // versions
  virtual void set_gemm_choices(const std::vector<std::string>& lines) = 0;
  virtual std::vector<std::string> gemm_choices() const = 0;
  virtual void set_attention_plans(const std::vector<std::string>& lines) = 0;
  virtual std::vector<std::string> attention_plans() const = 0;
};

class CudaDevice : public Device {
 public:
  // `ops` outlives the device.
  CudaDevice(const DeviceOptions& options, const CudaOps& ops);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }
  const DeviceOptions& options() const override { return options_; }
  const CudaOps& ops() const override { return ops_; }
  void* allocate(int64_t bytes) override;
  void release(void* p) noexcept override;
  void* allocate_pinned(int64_t bytes) override;
  void release_pinned(void* p) noexcept override;
  int64_t free_bytes() override;
  void zero(void* to, int64_t bytes) override;
  void copy_in(void* to, const void* from, int64_t bytes) override;
  void copy_within(void* to, const void* from, int64_t bytes) override;
  void copy_out(void* to, const void* from, int64_t bytes) override;
  void synchronize() override;
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override;
  bool capturing() const override { return capturing_; }
  double time_us(const std::function<void()>& work) override;
  void start_profile() override;
  std::vector<OpTime> stop_profile() override;
  DeviceState state() override;
  void set_gemm_choices(const std::vector<std::string>& lines) override { libraries_->set_gemm_choices(lines); }
  std::vector<std::string> gemm_choices() const override { return libraries_->gemm_choices(); }
  void set_attention_plans(const std::vector<std::string>& lines) override { libraries_->set_attention_plans(lines); }
  std::vector<std::string> attention_plans() const override { return libraries_->attention_plans(); }
  std::vector<std::string> slow_paths() const override { return {slow_paths_.begin(), slow_paths_.end()}; }

  cudaStream_t stream() const { return stream_; }
  int multiprocessors() const { return info_.multiprocessors; }
  bool deterministic() const { return options_.deterministic; }
  Libraries& libraries() const { return *libraries_; }
  void set_libraries(std::unique_ptr<Libraries> libraries);

  // Lets `kernel` be launched with so many bytes of dynamic shared memory: beside its static ones they may exceed the
  // 48 KiB that need no leave. A look-up once a kernel is known.
  void allow_shared(const void* kernel, size_t bytes);

  // The start and end of an op: its place in a profile, and its name in an error.
  void mark_begin(const char* op);
  void mark_end();
  void mark_graph() { last_op_ = "a captured graph"; }
  // Of the work enqueued so far; null before any.
  const char* last_op() const { return last_op_; }
  // `op` takes a slower way, for `reason`: said on stderr the first time.
  void say_slow(const char* op, const char* reason);

 private:
  struct Mark {
    const char* op;
    cudaEvent_t begin, end;
  };

  DeviceOptions options_;
  const CudaOps& ops_;
  DeviceInfo info_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Libraries> libraries_;
  bool capturing_ = false, profiling_ = false;
  const char* last_op_ = nullptr;
  std::set<std::string> slow_paths_;  // "OP: REASON"
  cudaEvent_t profile_start_ = nullptr;
  std::vector<Mark> marks_;
  std::unordered_map<const void*, size_t> shared_limits_;  // dynamic bytes, by kernel
};

// The number of devices; 0 and in `absence` why.
int count_devices(std::string& absence);

}  // namespace mantissa::cuda
