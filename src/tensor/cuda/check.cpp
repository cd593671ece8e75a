#include "tensor/cuda/check.h"

namespace mantissa::cuda {
namespace {

[[noreturn]] void fail_with(Exit code, std::string message, const char* op) {
  if (op) message += fmt::format("; the last op enqueued is {}", op);
  if (code == Exit::kDevice) message += "; the same command goes on on a healthy device";
  throw Error(code, std::move(message));
}

}  // namespace

Exit exit_of(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return Exit::kMemory;
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDeviceNotLicensed:
    case cudaErrorStartupFailure:
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorSharedObjectInitFailed:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
      return Exit::kUnavailable;
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorOperatingSystem:
    case cudaErrorExternalDevice:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
      return Exit::kDevice;
    default:
      return Exit::kInternal;
  }
}

void check_cuda(cudaError_t status, const char* what, const char* op) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  fail_with(exit_of(status), fmt::format("CUDA: {}: {}", what, cudaGetErrorString(status)), op);
}

void fail_in_library(std::string message, Exit otherwise, const char* op) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) message += fmt::format(" (CUDA: {})", cudaGetErrorString(status));
  fail_with(status == cudaSuccess ? otherwise : exit_of(status), std::move(message), op);
}

}  // namespace mantissa::cuda
