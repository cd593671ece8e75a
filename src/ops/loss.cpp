#include "ops/loss.h"

#include <algorithm>

#include "ops/cpu/loss.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"

namespace mantissa {

void cross_entropy(Exec& exec, LossSums* sums, Tensor logits, int64_t vocab, ConstTensor labels,
                   const StepState* state) {
  check(logits.shape.rank() == 2, "cross_entropy: logits is {}, expected [R,V]", logits);
  const int64_t rows = logits.dim(0);
  check(vocab > 0 && vocab <= logits.dim(1), "cross_entropy: vocab is {}, expected 1 to the columns of logits {}",
        vocab, logits);
  expect_float("cross_entropy", "logits", logits, logits.shape, "R, V");
  expect("cross_entropy", "labels", labels, DType::kI32, {rows}, "R of logits");
  if (exec.device()) return exec.gpu().cross_entropy(exec, sums, logits, vocab, labels, state);
  const int32_t* label = labels.as<int32_t>();
  LossSums call;
  for (int64_t r = 0; r < rows; ++r) {
    check(label[r] == kIgnoredLabel || (label[r] >= 0 && label[r] < vocab),
          "cross_entropy: labels[{}] is {}, expected 0 to {} or {}", r, label[r], vocab - 1, kIgnoredLabel);
    call.valid += label[r] != kIgnoredLabel;
  }
  // Rows are summed in order, so the sums do not depend on the number of threads.
  const int64_t most = exec.shared_scratch_bytes() / int64_t{2 * sizeof(double)};
  check(rows == 0 || most > 0, "cross_entropy: {} bytes of shared scratch, expected 16 or more",
        exec.shared_scratch_bytes());
  auto* loss = reinterpret_cast<double*>(exec.shared_scratch());
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t n = std::min(most, rows - begin);
    const CrossEntropy args{.rows = n,
                            .cols = logits.dim(1),
                            .vocab = vocab,
                            .type = logits.dtype,
                            .logits = logits.slice(begin, n).data,
                            .labels = label + begin,
                            .state = state,
                            .loss = loss,
                            .lse = loss + n};
    MANTISSA_CPU_CALL(exec, cross_entropy, args);
    for (int64_t r = 0; r < n; ++r) {
      call.loss += args.loss[r];
      call.z += args.lse[r] * args.lse[r];
    }
  }
  sums->loss += call.loss;
  sums->z += call.z;
  sums->valid += call.valid;
}

int64_t cross_entropy_scratch_bytes(int64_t rows) { return rows * int64_t{2 * sizeof(double)}; }

}  // namespace mantissa
