// Token (and learned position) embedding.
#pragma once

#include "tensor/exec.h"

namespace mantissa {

// y[T,H] = table[ids[t]] (+ position_table[positions[t]] if given). ids, positions i32.
void embedding_fwd(Exec& exec, Tensor y, ConstTensor ids, ConstTensor table /*[V,H]*/, ConstTensor positions,
                   ConstTensor position_table /*[P,H], optional*/);
// ids and positions are checked on a CPU; on a GPU the caller sees to it that they lie in the tables.
// dtable[ids[t]] += dy[t], in token order (on a GPU sums of fixed pieces, in token order); the same for dposition_table
// if given. F32 or BF16 gradients; a BF16 gradient sums each row in FP32 and rounds once.
void embedding_bwd(Exec& exec, Tensor dtable, Tensor dposition_table, ConstTensor dy, ConstTensor ids,
                   ConstTensor positions);

// GPU scratch that embedding_bwd takes at most.
int64_t embedding_scratch_bytes(int64_t tokens, int64_t rows, int64_t cols);

}  // namespace mantissa
