// The GPU's ops, one pointer each. ops/x.cpp checks the arguments, then calls the one with the same signature and
// contract through exec.device()->ops(). Every address in the arguments is the device's, unless the contract says host.
#pragma once

#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/gemm.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace mantissa {

struct CudaOps {
  decltype(&mantissa::swiglu_fwd) swiglu_fwd;
  decltype(&mantissa::swiglu_bwd) swiglu_bwd;
  decltype(&mantissa::gelu_fwd) gelu_fwd;
  decltype(&mantissa::gelu_bwd) gelu_bwd;
  decltype(&mantissa::adamw_update) adamw_update;
  decltype(&mantissa::attention_fwd) attention_fwd;
  decltype(&mantissa::attention_bwd) attention_bwd;
  decltype(&mantissa::cached_attention) cached_attention;
  decltype(&mantissa::add) add;
  decltype(&mantissa::cast) cast;
  decltype(&mantissa::bias_bwd) bias_bwd;
  decltype(&mantissa::sum_of_squares) sum_of_squares;
  decltype(&mantissa::first_nonfinite) first_nonfinite;
  decltype(&mantissa::embedding_fwd) embedding_fwd;
  decltype(&mantissa::embedding_bwd) embedding_bwd;
  decltype(&mantissa::gemm) gemm;
  decltype(&mantissa::explain_gemm) explain_gemm;
  decltype(&mantissa::cross_entropy) cross_entropy;
  decltype(&mantissa::rms_norm_fwd) rms_norm_fwd;
  decltype(&mantissa::rms_norm_bwd) rms_norm_bwd;
  decltype(&mantissa::add_rms_norm_fwd) add_rms_norm_fwd;
  decltype(&mantissa::layer_norm_fwd) layer_norm_fwd;
  decltype(&mantissa::layer_norm_bwd) layer_norm_bwd;
  decltype(&mantissa::add_layer_norm_fwd) add_layer_norm_fwd;
  decltype(&mantissa::rope_fwd) rope_fwd;
  decltype(&mantissa::rope_bwd) rope_bwd;
  decltype(&mantissa::qk_norm_rope_fwd) qk_norm_rope_fwd;
  decltype(&mantissa::qk_norm_rope_bwd) qk_norm_rope_bwd;
};

}  // namespace mantissa
