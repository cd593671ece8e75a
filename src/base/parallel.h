// The one thread runtime: OpenMP. Work is cut into fixed contiguous chunks, so results never depend on timing.
#pragma once

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace mantissa {

inline int max_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

inline int thread_id() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// Calls body(begin, end) on contiguous chunks that cover [0, n); a chunk is a multiple of `grain` items but for the
// last. One chunk a thread; runs in the calling thread when there is one chunk only.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  const int64_t units = (n + grain - 1) / grain;
  const int threads = static_cast<int>(units < max_threads() ? units : max_threads());
  if (threads <= 1) {
    body(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t t = thread_id();
    const int64_t begin = units * t / threads * grain;
    const int64_t end = units * (t + 1) / threads * grain;
    if (begin < n) body(begin, end < n ? end : n);
  }
}

}  // namespace mantissa
