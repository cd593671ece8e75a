// A GPU as the house sees it: memory, one stream of work, graphs of it. Implemented by mantissa_cuda.so, a module that
// is loaded at run time, so that the program starts where no CUDA library is. An error keeps its kind: Exit::kMemory,
// no memory left; kUnavailable, no device, driver or kernel that fits; kDevice, the device failed or is lost;
// kInternal, what a kernel did itself. Messages name the op that was enqueued last.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mantissa {

struct CudaOps;  // ops/cuda/table.h

struct DeviceOptions {
  int ordinal = 0;             // as CUDA_VISIBLE_DEVICES numbers them
  bool deterministic = false;  // the same bits in every run, at a price in speed
  bool search = true;          // GEMM algorithms are timed once for each shape; deterministic takes the library's first
  std::string cache_folder;    // what searches found, kept from run to run; "": nowhere
  bool overlap = true;         // kernels made for it begin while the one before them ends; the bits are the same
};

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  std::string pci_bus_id;
  int sm = 0;  // compute capability * 10: 90
  int multiprocessors = 0;
  int64_t memory_bytes = 0;                   // of the device
  int64_t free_before_bytes = 0;              // free before this process touched it; -1: not known
  std::string driver, cuda, cublaslt, cudnn;  // versions; cudnn "" where it is absent
  std::string cudnn_absence;                  // why
};

// What the card does at this moment (NVML); zeros and why where it does not say.
struct DeviceState {
  int sm_clock_mhz = 0, memory_clock_mhz = 0, temperature_c = 0;
  double power_w = 0, power_limit_w = 0;
  std::string throttle;  // "power cap", "thermal", ...; "": none
  std::string absence;
};

// One op of a profile.
struct OpTime {
  std::string name;
  double begin_us = 0, end_us = 0;  // on the device, since start_profile()
};

// Captured work; launching it again reads and writes the same addresses.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch() = 0;  // enqueued
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual const DeviceOptions& options() const = 0;
  virtual const CudaOps& ops() const = 0;

  // Zeroed memory of the device; Exit::kMemory when it cannot be had.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* p) noexcept = 0;
  // Host memory that copies need not stage.
  virtual void* allocate_pinned(int64_t bytes) = 0;
  virtual void release_pinned(void* p) noexcept = 0;
  // Bytes of the device that are free now.
  virtual int64_t free_bytes() = 0;

  // Enqueued, in order with all other work. copy_in() from pageable memory has read it when it returns; pinned memory
  // must stay as it is until synchronize(). copy_out() returns when the bytes are there.
  virtual void zero(void* to, int64_t bytes) = 0;
  virtual void copy_in(void* to, const void* from, int64_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, int64_t bytes) = 0;
  virtual void copy_out(void* to, const void* from, int64_t bytes) = 0;
  // Waits for all enqueued work and throws what it failed with.
  virtual void synchronize() = 0;

  // What `work` enqueues, as one graph; nothing of it runs. `work` may neither synchronize nor copy from pageable
  // memory.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) = 0;
  virtual bool capturing() const = 0;

  // Microseconds on the device that `work` takes, by events around it; synchronizes.
  virtual double time_us(const std::function<void()>& work) = 0;
  // Between the two, the device times of every op that is enqueued eagerly are recorded.
  virtual void start_profile() = 0;
  virtual std::vector<OpTime> stop_profile() = 0;
  virtual DeviceState state() = 0;

  // Fixes each GEMM shape's algorithm as recorded: lines as gemm_choices() gave them. Unknown lines are refused
  // (Exit::kInput).
  virtual void set_gemm_choices(const std::vector<std::string>& lines) = 0;
  // "fprop bf16 16384x4096x2048 ... -> algorithm" of every shape used so far, for run.json.
  virtual std::vector<std::string> gemm_choices() const = 0;
  // The same of cuDNN's attention: "attention_fwd 16x1024 tokens ... -> plan".
  virtual void set_attention_plans(const std::vector<std::string>& lines) = 0;
  virtual std::vector<std::string> attention_plans() const = 0;
  // "op: reason" of every slower way that an op took so far; each was said on stderr when it was first taken.
  virtual std::vector<std::string> slow_paths() const = 0;
};

// The number of GPUs that can be opened; 0, and in `absence` why.
int device_count(std::string& absence);
// Throws Exit::kUnavailable naming what is missing.
std::unique_ptr<Device> open_device(const DeviceOptions& options);

// The module's entry point: an interface of one build, not of the world.
struct CudaModule {
  int (*count)(std::string& absence);
  Device* (*open)(const DeviceOptions& options);  // the caller deletes it
};
constexpr const char* kCudaFile = "mantissa_cuda.so";
constexpr const char* kCudaSymbol = "mantissa_cuda_module";  // const CudaModule* (*)()

}  // namespace mantissa
