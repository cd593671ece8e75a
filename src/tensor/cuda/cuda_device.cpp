#include "tensor/cuda/cuda_device.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/nvml.h"

namespace mantissa::cuda {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(cudaGraph_t graph, CudaDevice& device) : device_(device) {
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
    MANTISSA_CUDA(cudaGraphUpload(executable_, device.stream()));
  }
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override {
    device_.mark_graph();
    MANTISSA_CUDA_ON(device_, cudaGraphLaunch(executable_, device_.stream()));
  }

 private:
  CudaDevice& device_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

int count_devices(std::string& absence) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status != cudaSuccess)
    absence = cudaGetErrorString(status);
  else if (count == 0)
    absence = "the driver knows none";
  return status == cudaSuccess ? count : 0;
}

CudaDevice::CudaDevice(const DeviceOptions& options, const CudaOps& ops) : options_(options), ops_(ops) {
  char bus[32] = "";
  MANTISSA_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, options.ordinal));
  info_.pci_bus_id = bus;
  info_.free_before_bytes = read_free_bytes(bus);
  MANTISSA_CUDA(cudaSetDevice(options.ordinal));
  MANTISSA_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  cudaDeviceProp properties;
  MANTISSA_CUDA(cudaGetDeviceProperties(&properties, options.ordinal));
  int runtime = 0;
  MANTISSA_CUDA(cudaRuntimeGetVersion(&runtime));
  info_.name = properties.name;
  info_.sm = properties.major * 10 + properties.minor;
  info_.multiprocessors = properties.multiProcessorCount;
  info_.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info_.driver = read_driver_version();
  info_.cuda = version_text(runtime);
}

CudaDevice::~CudaDevice() {
  if (stream_) cudaStreamSynchronize(stream_);
  libraries_.reset();
  for (const Mark& mark : marks_) cudaEventDestroy(mark.begin), cudaEventDestroy(mark.end);
  if (profile_start_) cudaEventDestroy(profile_start_);
  if (stream_) cudaStreamDestroy(stream_);
}

void CudaDevice::set_libraries(std::unique_ptr<Libraries> libraries) {
  libraries_ = std::move(libraries);
  libraries_->describe(info_);
}

void* CudaDevice::allocate(int64_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(Exit::kMemory, "memory: {} bytes of {} could not be allocated, {} are free", bytes, info_.name, free_bytes());
  }
  check_cuda(status, "cudaMalloc", last_op_);
  zero(p, bytes);
  return p;
}

void CudaDevice::release(void* p) noexcept {
  cudaStreamSynchronize(stream_);
  cudaFree(p);
}

void* CudaDevice::allocate_pinned(int64_t bytes) {
  void* p = nullptr;
  MANTISSA_CUDA_ON(*this, cudaMallocHost(&p, static_cast<size_t>(bytes)));
  return p;
}

void CudaDevice::release_pinned(void* p) noexcept {
  cudaStreamSynchronize(stream_);
  cudaFreeHost(p);
}

int64_t CudaDevice::free_bytes() {
  size_t free = 0, total = 0;
  MANTISSA_CUDA_ON(*this, cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

void CudaDevice::zero(void* to, int64_t bytes) {
  MANTISSA_CUDA_ON(*this, cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_));
}

void CudaDevice::copy_in(void* to, const void* from, int64_t bytes) {
  MANTISSA_CUDA_ON(*this, cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_));
}

void CudaDevice::copy_within(void* to, const void* from, int64_t bytes) {
  MANTISSA_CUDA_ON(*this, cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_));
}

void CudaDevice::copy_out(void* to, const void* from, int64_t bytes) {
  MANTISSA_CUDA_ON(*this, cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_));
  synchronize();
}

void CudaDevice::synchronize() { MANTISSA_CUDA_ON(*this, cudaStreamSynchronize(stream_)); }

std::unique_ptr<DeviceGraph> CudaDevice::capture(const std::function<void()>& work) {
  check(!capturing_ && !profiling_, "capture: inside a capture or a profile");
  MANTISSA_CUDA_ON(*this, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  capturing_ = true;
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    capturing_ = false;
    cudaStreamEndCapture(stream_, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  capturing_ = false;
  MANTISSA_CUDA_ON(*this, cudaStreamEndCapture(stream_, &graph));
  return std::make_unique<CudaGraph>(graph, *this);
}

double CudaDevice::time_us(const std::function<void()>& work) {
  cudaEvent_t begin, end;
  MANTISSA_CUDA_ON(*this, cudaEventCreate(&begin));
  MANTISSA_CUDA_ON(*this, cudaEventCreate(&end));
  MANTISSA_CUDA_ON(*this, cudaEventRecord(begin, stream_));
  work();
  MANTISSA_CUDA_ON(*this, cudaEventRecord(end, stream_));
  synchronize();
  float ms = 0;
  MANTISSA_CUDA_ON(*this, cudaEventElapsedTime(&ms, begin, end));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms * 1e3;
}

void CudaDevice::start_profile() {
  check(!capturing_ && !profiling_, "start_profile: inside a capture or a profile");
  if (!profile_start_) MANTISSA_CUDA_ON(*this, cudaEventCreate(&profile_start_));
  MANTISSA_CUDA_ON(*this, cudaEventRecord(profile_start_, stream_));
  profiling_ = true;
}

std::vector<OpTime> CudaDevice::stop_profile() {
  check(profiling_, "stop_profile: no profile is open");
  profiling_ = false;
  synchronize();
  std::vector<OpTime> times;
  for (const Mark& mark : marks_) {
    float begin = 0, end = 0;
    MANTISSA_CUDA_ON(*this, cudaEventElapsedTime(&begin, profile_start_, mark.begin));
    MANTISSA_CUDA_ON(*this, cudaEventElapsedTime(&end, profile_start_, mark.end));
    times.push_back({mark.op, begin * 1e3, end * 1e3});
    cudaEventDestroy(mark.begin);
    cudaEventDestroy(mark.end);
  }
  marks_.clear();
  return times;
}

void CudaDevice::allow_shared(const void* kernel, size_t bytes) {
  constexpr size_t kWithoutLeave = 48 * 1024;
  const auto [limit, is_new] = shared_limits_.try_emplace(kernel, 0);
  if (is_new) {
    cudaFuncAttributes attributes;
    MANTISSA_CUDA_ON(*this, cudaFuncGetAttributes(&attributes, kernel));
    limit->second = kWithoutLeave - std::min(kWithoutLeave, attributes.sharedSizeBytes);
  }
  if (bytes <= limit->second) return;
  MANTISSA_CUDA_ON(*this,
                   cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  limit->second = bytes;
}

void CudaDevice::mark_begin(const char* op) {
  last_op_ = op;
  nvtxRangePushA(op);
  if (!profiling_) return;
  Mark mark{op, nullptr, nullptr};
  MANTISSA_CUDA_ON(*this, cudaEventCreate(&mark.begin));
  MANTISSA_CUDA_ON(*this, cudaEventCreate(&mark.end));
  MANTISSA_CUDA_ON(*this, cudaEventRecord(mark.begin, stream_));
  marks_.push_back(mark);
}

void CudaDevice::mark_end() {
  nvtxRangePop();
  if (profiling_) cudaEventRecord(marks_.back().end, stream_);
}

void CudaDevice::say_slow(const char* op, const char* reason) {
  if (slow_paths_.insert(fmt::format("{}: {}", op, reason)).second)
    fmt::print(stderr, "slow path: {}: {}\n", op, reason);
}

DeviceState CudaDevice::state() { return read_state(info_.pci_bus_id); }

}  // namespace mantissa::cuda
