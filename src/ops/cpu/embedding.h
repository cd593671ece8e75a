// CPU kernels of embedding.h.
#pragma once

#include "ops/cpu/dispatch.h"

namespace mantissa {

struct EmbeddingFwd {
  int64_t rows, cols;  // T, H
  DType y_type, table_type;
  void* y;                     // [T,H] y_type
  const int32_t* ids;          // [T]
  const void* table;           // [V,H] table_type
  const int32_t* positions;    // [T] or null
  const void* position_table;  // [P,H] table_type, or null
};

struct EmbeddingBwd {
  int64_t rows, cols, vocab;
  DType dtable_type, dy_type;
  void* dtable;        // [V,H] dtable_type
  const void* dy;      // [T,H] dy_type
  const int32_t* ids;  // [T]
  int32_t* first;      // [V] scratch
  int32_t* next;       // [T] scratch
  int32_t* used;       // [T] scratch
};

MANTISSA_CPU_KERNEL(void embedding_fwd(const EmbeddingFwd& a); void embedding_bwd(const EmbeddingBwd& a))

}  // namespace mantissa
