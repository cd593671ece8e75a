// Casts from numerics/ itself, byte for byte those of the CPU, of every form: what every faster cast is held to. A
// block casts one panel of 128 x 128, in groups of 16 elements: every block size is a multiple of one.
#include "ops/quantize.h"

#include <algorithm>

#include "base/philox.h"
#include "numerics/hadamard.h"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quantize/fp8_cast.h"
#include "ops/cuda/quantize/values_cast.h"
#include "ops/quantized_value.h"

namespace mantissa::cuda {
namespace {

constexpr int kPanel = 128, kThreads = 256, kGroup = 16;
constexpr int kGroups = kPanel / kGroup, kTasks = kPanel * kGroups;  // groups of a line, of a panel
static_assert(kTasks % kThreads == 0 && kGroup == kHadamardSize);

struct Source {
  const void* x;  // [M,K]
  int64_t m, k;
};

// One copy to write; see Quantized for the layouts. Null where it is not wanted.
struct Form {
  QuantFormat format;
  bool columnwise;
  uint8_t* data;
  void* scale_inv;
  const float* scale;  // kGiven
  const float* amax;   // of the tensor, where the scale comes from it
  float* raised[2];    // raised to the amax of the tensor by this cast: the scales do not wait for it
  uint32_t tensor;     // of the random stream
  DrawForm draws;
};
struct Cast {
  Source source;
  const StepState* state;  // null: the values of `given`
  StepState given;
  int64_t row_offset;
  Form forms[2];

  __device__ StepState now() const { return state ? *state : given; }
};

template <class T>
struct Panel {
  static constexpr int kPitch = kPanel + 16 / static_cast<int>(sizeof(T));  // rows stay aligned to 16 bytes
  alignas(16) T x[kPanel * kPitch];
  uint32_t amax[kTasks];  // bits, a block each
  float multiplier[kTasks];
  float decoded[kTasks];  // where values are stored: what a code of the block stands for, but for the tensor's scale
  uint8_t random[kPanel * kPanel];
};

// Where a panel lies, and how much of it is in the matrix.
struct Place {
  int64_t m0, k0;
  int rows, cols;
};
__device__ __forceinline__ Place place_of(const Source& s) {
  Place at{int64_t{blockIdx.y} * kPanel, int64_t{blockIdx.x} * kPanel, kPanel, kPanel};
  at.rows = static_cast<int>(min(int64_t{kPanel}, s.m - at.m0));
  at.cols = static_cast<int>(min(int64_t{kPanel}, s.k - at.k0));
  return at;
}

// The panel, behind the edges zeros.
template <class T>
__device__ void load_panel(Panel<T>& panel, const Source& s, const Place& at, bool aligned) {
  const T* x = static_cast<const T*>(s.x);
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  for (int i = threadIdx.x; i < kPanel * kPanel / kVector; i += kThreads) {
    const int row = i / (kPanel / kVector), col = i % (kPanel / kVector) * kVector;
    T* to = panel.x + row * Panel<T>::kPitch + col;
    const T* from = x + (at.m0 + row) * s.k + at.k0 + col;
    if (aligned && row < at.rows && col < at.cols) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j) to[j] = row < at.rows && col + j < at.cols ? from[j] : T{};
    }
  }
}

// Group `task` of a copy: 16 elements along its inner dimension from (row, col) of the panel.
struct GroupAt {
  int row, col;
};
__device__ __forceinline__ GroupAt group_at(bool columnwise, int task) {
  return columnwise ? GroupAt{task / kPanel * kGroup, task % kPanel} : GroupAt{task / kGroups, task % kGroups * kGroup};
}
template <class T>
__device__ __forceinline__ float element(const Panel<T>& panel, bool columnwise, const GroupAt& g, int i) {
  const int row = columnwise ? g.row + i : g.row, col = columnwise ? g.col : g.col + i;
  return to_float(panel.x[row * Panel<T>::kPitch + col]);
}

// The block that a group belongs to, among the panel's.
__device__ __forceinline__ int block_of(const QuantFormat& f, bool columnwise, const GroupAt& g) {
  switch (f.blocking) {
    case Blocking::kTensor:
      return 0;
    case Blocking::kTile:
      return g.row / f.block * (kPanel / f.block) + g.col / f.block;
    default:
      return columnwise ? g.row / f.block * kPanel + g.col : g.row * (kPanel / f.block) + g.col / f.block;
  }
}

// Where the scale of the panel's block `index` is stored; -1 behind the edges.
__device__ __forceinline__ int64_t stored_index(const Source& s, const Place& at, const Form& form, int index) {
  const int block = form.format.block, per_line = kPanel / block;
  const int64_t outer = form.columnwise ? s.k : s.m, inner = form.columnwise ? s.m : s.k;
  const auto stored = [&](int64_t line, int64_t at_block) {
    return scale_index(form.format, outer, inner, line, at_block);
  };
  if (form.format.blocking == Blocking::kTile) {
    const int down = index / per_line, across = index % per_line;
    if (down * block >= at.rows || across * block >= at.cols) return -1;
    const int64_t m = at.m0 / block + down, k = at.k0 / block + across;
    return form.columnwise ? stored(k, m) : stored(m, k);
  }
  if (form.columnwise) {
    const int down = index / kPanel, col = index % kPanel;
    if (down * block >= at.rows || col >= at.cols) return -1;
    return stored(at.k0 + col, at.m0 / block + down);
  }
  const int row = index / per_line, across = index % per_line;
  if (row >= at.rows || across * block >= at.cols) return -1;
  return stored(at.m0 + row, at.k0 / block + across);
}

__device__ __forceinline__ float largest_value(DType element) { return element == DType::kE4M3 ? kMaxE4M3 : kMaxE5M2; }

// What one scale a tensor multiplies by.
__device__ float tensor_scale(const Form& form) {
  if (form.format.rule == ScaleRule::kGiven) return *form.scale;
  return compute_scale_from_amax(*form.amax, largest_value(form.format.element),
                                 form.format.rule == ScaleRule::kCurrentPow2, kScaleForInfF32);
}

// The multiplier of a block, whose scale is stored at `index` unless that is below zero; what the scale stands for.
__device__ float block_scale(const Form& form, bool is_bf16, float amax, int64_t index, float& decoded) {
  switch (form.format.rule) {
    case ScaleRule::kE8M0: {
      const uint8_t exponent =
          mxfp8_exponent(amax, form.format.element == DType::kE4M3 ? kInverseMaxE4M3 : kInverseMaxE5M2);
      if (index >= 0) static_cast<uint8_t*>(form.scale_inv)[index] = exponent;
      decoded = decode_e8m0(exponent);
      return reciprocal_e8m0(exponent);
    }
    case ScaleRule::kNvfp4: {
      const Nvfp4TensorScale tensor = nvfp4_tensor_scale(*form.amax);
      const uint8_t scale = nvfp4_block_scale(amax, tensor.per_block);
      if (index >= 0) static_cast<uint8_t*>(form.scale_inv)[index] = scale;
      decoded = decode_e4m3(scale);
      return nvfp4_encode_scale(scale, tensor.decode);
    }
    default: {
      const float scale =
          compute_scale_from_amax(amax, largest_value(form.format.element), form.format.rule == ScaleRule::kCurrentPow2,
                                  is_bf16 ? kScaleForInfBF16 : kScaleForInfF32);
      if (index >= 0) static_cast<float*>(form.scale_inv)[index] = 1.0f / scale;
      decoded = 1.0f / scale;
      return scale;
    }
  }
}

// *amax = max(*amax, most), of whole warps; bits of magnitudes order as they do.
__device__ __forceinline__ void raise_bits(float* amax, uint32_t most) {
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % 32 == 0 && most > 0) atomicMax(reinterpret_cast<unsigned*>(amax), most);
}

// Fills panel.multiplier and stores the scales. Every thread of the block takes part.
template <class T>
__device__ void scale_panel(Panel<T>& panel, const Cast& cast, const Form& form, const Place& at) {
  const bool per_tensor = form.format.blocking == Blocking::kTensor;
  for (int i = threadIdx.x; i < kTasks; i += kThreads) panel.amax[i] = 0;
  __syncthreads();
  const bool raises = form.raised[0] || form.raised[1];
  if (!per_tensor || raises) {
    for (int task = threadIdx.x; task < kTasks; task += kThreads) {
      const GroupAt g = group_at(form.columnwise, task);
      uint32_t most = 0;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) most = amax_bits(most, element(panel, form.columnwise, g, i));
      atomicMax(&panel.amax[block_of(form.format, form.columnwise, g)], most);
    }
    __syncthreads();
  }
  if (per_tensor) {
    if (threadIdx.x == 0) {
      const float scale = tensor_scale(form);
      panel.multiplier[0] = scale;
      panel.decoded[0] = 1;
      if (blockIdx.x == 0 && blockIdx.y == 0) *static_cast<float*>(form.scale_inv) = 1.0f / scale;
    }
  } else {
    const int blocks = form.format.blocking == Blocking::kTile
                           ? kPanel / form.format.block * (kPanel / form.format.block)
                           : kPanel * (kPanel / form.format.block);
    for (int i = threadIdx.x; i < blocks; i += kThreads)
      panel.multiplier[i] = block_scale(form, sizeof(T) == sizeof(bf16), __uint_as_float(panel.amax[i]),
                                        stored_index(cast.source, at, form, i), panel.decoded[i]);
  }
  if (raises) {
    uint32_t most = 0;
    for (int i = threadIdx.x; i < kTasks; i += kThreads) most = max(most, panel.amax[i]);
    for (float* raised : form.raised)
      if (raised) raise_bits(raised, most);
  }
  __syncthreads();
}

// One byte an element: byte e % 16 of draw e / 16, e = (token_offset + row_offset + m) K + k.
template <class T>
__device__ void draw_panel(Panel<T>& panel, const Cast& cast, const Form& form, const Place& at) {
  const StepState state = cast.now();
  const RandomKey key{state.seed, state.step, form.tensor, form.draws};
  const int64_t first_row = state.token_offset + cast.row_offset + at.m0;
  for (int task = threadIdx.x; task < kTasks; task += kThreads) {
    const GroupAt g = group_at(false, task);
    const auto e = static_cast<uint64_t>((first_row + g.row) * cast.source.k + at.k0 + g.col);
    uint8_t* bytes = panel.random + g.row * kPanel + g.col;
    const Random4 first = draw(key, e / kGroup), second = e % kGroup ? draw(key, e / kGroup + 1) : first;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int byte = static_cast<int>(e % kGroup) + i;
      const Random4& from = byte < kGroup ? first : second;
      bytes[i] = static_cast<uint8_t>(from.x[byte % kGroup / 4] >> (byte % 4 * 8));
    }
  }
  __syncthreads();
}

// The Hadamard transform down each 16 rows.
__device__ void rotate_panel(Panel<bf16>& panel) {
  for (int task = threadIdx.x; task < kTasks; task += kThreads) {
    const GroupAt g = group_at(true, task);
    bf16 x[kGroup], y[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x[i] = panel.x[(g.row + i) * Panel<bf16>::kPitch + g.col];
    hadamard16(x, y);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) panel.x[(g.row + i) * Panel<bf16>::kPitch + g.col] = y[i];
  }
  __syncthreads();
}

__device__ __forceinline__ uint8_t encode(const QuantFormat& f, float x, uint8_t random) {
  switch (f.element) {
    case DType::kE4M3:
      return encode_e4m3(x);
    case DType::kE5M2:
      return encode_e5m2(x);
    default:
      return f.stochastic ? encode_e2m1_stochastic(x, random) : encode_e2m1(x);
  }
}

// Values for products that know no codes.
template <class T>
__device__ void write_values(const Panel<T>& panel, const Cast& cast, const Form& form, const Place& at) {
  const int64_t inner = form.columnwise ? cast.source.m : cast.source.k;
  for (int task = threadIdx.x; task < kTasks; task += kThreads) {
    const GroupAt g = group_at(form.columnwise, task);
    if (g.row >= at.rows || g.col >= at.cols) continue;
    const int count = form.columnwise ? min(kGroup, at.rows - g.row) : min(kGroup, at.cols - g.col);
    const int block = block_of(form.format, form.columnwise, g);
    const float multiplier = panel.multiplier[block], decoded = panel.decoded[block];
    alignas(16) bf16 values[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int row = form.columnwise ? g.row + i : g.row, col = form.columnwise ? g.col : g.col + i;
      const uint8_t code =
          encode(form.format, element(panel, form.columnwise, g, i) * multiplier, panel.random[row * kPanel + col]);
      values[i] = to_bf16(decode(form.format.element, code) * decoded);
    }
    bf16* to = reinterpret_cast<bf16*>(form.data) +
               (form.columnwise ? (at.k0 + g.col) * inner + at.m0 + g.row : (at.m0 + g.row) * inner + at.k0 + g.col);
    if (count == kGroup && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(values)[i];
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        if (i < count) to[i] = values[i];
    }
  }
  __syncthreads();
}

template <class T>
__device__ void write_panel(const Panel<T>& panel, const Cast& cast, const Form& form, const Place& at) {
  const bool packs = form.format.element == DType::kE2M1;
  const int64_t inner = form.columnwise ? cast.source.m : cast.source.k;
  for (int task = threadIdx.x; task < kTasks; task += kThreads) {
    const GroupAt g = group_at(form.columnwise, task);
    if (g.row >= at.rows || g.col >= at.cols) continue;
    const int count = form.columnwise ? min(kGroup, at.rows - g.row) : min(kGroup, at.cols - g.col);
    const float multiplier = panel.multiplier[block_of(form.format, form.columnwise, g)];
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int row = form.columnwise ? g.row + i : g.row, col = form.columnwise ? g.col : g.col + i;
      const uint32_t code =
          encode(form.format, element(panel, form.columnwise, g, i) * multiplier, panel.random[row * kPanel + col]);
      packs ? words[i / 8] |= code << (i % 8 * 4) : words[i / 4] |= code << (i % 4 * 8);
    }
    const int64_t first =
        form.columnwise ? (at.k0 + g.col) * inner + at.m0 + g.row : (at.m0 + g.row) * inner + at.k0 + g.col;
    uint8_t* to = form.data + (packs ? first / 2 : first);
    const int bytes = packs ? count / 2 : count, whole = packs ? kGroup / 2 : kGroup;
    if (bytes == whole && reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(whole) == 0) {
      if (packs)
        *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
      else
        *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        if (i < bytes) to[i] = static_cast<uint8_t>(words[i / 4] >> (i % 4 * 8));
    }
  }
  __syncthreads();
}

template <class T>
__global__ void __launch_bounds__(kThreads) quantize_cast_kernel(const __grid_constant__ Cast cast, bool aligned) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& panel = *reinterpret_cast<Panel<T>*>(shared);
  const Place at = place_of(cast.source);
  load_panel(panel, cast.source, at, aligned);
  __syncthreads();
#pragma unroll 1
  for (const Form& form : cast.forms) {
    if (!form.data) continue;
    if constexpr (sizeof(T) == sizeof(bf16)) {
      if (form.format.hadamard) rotate_panel(panel);  // the last form
    }
    scale_panel(panel, cast, form, at);
    if (form.format.stochastic) draw_panel(panel, cast, form, at);
    form.format.values ? write_values(panel, cast, form, at) : write_panel(panel, cast, form, at);
  }
}

// ---- amax of a whole tensor ----

template <class T>
__global__ void __launch_bounds__(kThreads) amax_kernel(float* amax, const T* x, int64_t n, bool aligned) {
  uint32_t most = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide; i < n;
       i += int64_t{gridDim.x} * kThreads * kWide) {
    const int count = static_cast<int>(min(int64_t{kWide}, n - i));
    const Wide v = aligned && count == kWide ? load_wide(x + i) : load_wide(x + i, count);
#pragma unroll
    for (int k = 0; k < kWide; ++k) most = amax_bits(most, v.x[k]);
  }
  raise_bits(amax, most);
}

// Of x[M,K] rotated down each 16 rows.
__global__ void __launch_bounds__(kThreads) rotated_amax_kernel(float* amax, const bf16* x, int64_t m, int64_t k) {
  const int64_t col = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = int64_t{blockIdx.y} * kGroup;
  uint32_t most = 0;
  if (col < k) {
    bf16 from[kGroup], to[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) from[i] = x[(row + i) * k + col];
    hadamard16(from, to);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) most = amax_bits(most, to_float(to[i]));
  }
  raise_bits(amax, most);
}

// ---- host ----

bool takes_amax_first(const QuantFormat& f) {
  return f.rule == ScaleRule::kNvfp4 || (f.blocking == Blocking::kTensor && f.rule != ScaleRule::kGiven);
}

// numerics' bf16 has the bits of the header's type.
template <class F>
void visit_source(const ConstTensor& x, F&& f) {
  x.dtype == DType::kBF16 ? f(static_cast<const bf16*>(x.data)) : f(static_cast<const float*>(x.data));
}

void find_amax(Exec& exec, float* amax, const ConstTensor& x) {
  CudaDevice& device = device_of(exec);
  device.zero(amax, sizeof *amax);
  const int64_t blocks =
      std::min(ceil_div(x.count(), int64_t{kThreads} * kWide), int64_t{8} * device.multiprocessors());
  visit_float(x, [&]<class T>(const T* p) {
    launch(device, {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, amax_kernel<T>, amax, p, x.count(),
           whole_groups(kWide, {p}));
  });
}

void find_rotated_amax(Exec& exec, float* amax, const ConstTensor& x) {
  CudaDevice& device = device_of(exec);
  device.zero(amax, sizeof *amax);
  const dim3 blocks(static_cast<unsigned>(ceil_div(x.cols(), kThreads)), static_cast<unsigned>(x.rows() / kGroup));
  launch(device, {.blocks = blocks, .threads = kThreads}, rotated_amax_kernel, amax, static_cast<const bf16*>(x.data),
         x.rows(), x.cols());
}

struct Copy {
  Quantized* q;
  bool columnwise;
};

void cast_copies(Exec& exec, std::initializer_list<Copy> copies, const ConstTensor& x, uint32_t tensor_id,
                 const float* producer_amax) {
  if (x.count() == 0) return;
  CudaDevice& device = device_of(exec);
  Cast cast{.source = {x.data, x.rows(), x.cols()},
            .state = exec.state_address(),
            .given = exec.state,
            .row_offset = exec.row_offset,
            .forms = {}};
  const float* source_amax = producer_amax;  // null: not known yet
  const Quantized *first = copies.begin()->q, *last = (copies.end() - 1)->q;
  const bool both_amaxes = !producer_amax && copies.size() == 2 && !first->format.hadamard && last->format.hadamard &&
                           find_both_amaxes(exec, first->amax, last->amax, x);
  int count = 0;
  for (const Copy& copy : copies) {
    Quantized& q = *copy.q;
    const QuantFormat& f = q.format;
    const bool own_draws = copy.columnwise && f.blocking == Blocking::kRow;
    Form& form = cast.forms[count++];
    form = {.format = f,
            .columnwise = copy.columnwise,
            .data = static_cast<uint8_t*>(q.data.data),
            .scale_inv = q.scale_inv.data,
            .scale = q.scale,
            .amax = nullptr,
            .raised = {nullptr, exec.pass == Pass::kForward ? q.raised : nullptr},
            .tensor = tensor_id,
            .draws = own_draws ? DrawForm::kColumnwise : DrawForm::kRowwise};
    if (both_amaxes) {
      form.amax = q.amax;
    } else if (f.hadamard) {
      find_rotated_amax(exec, q.amax, x);
      form.amax = q.amax;
    } else if (source_amax) {
      form.amax = source_amax;
      if (q.amax && q.amax != source_amax) device.copy_within(q.amax, source_amax, sizeof(float));
    } else if (takes_amax_first(f)) {
      float* room = q.amax;
      if (!room) {
        check(exec.shared_scratch_bytes() >= int64_t{sizeof(float)}, "quantize: no scratch for an amax");
        room = reinterpret_cast<float*>(exec.shared_scratch());
      }
      find_amax(exec, room, x);
      form.amax = source_amax = room;
    } else if (q.amax) {
      device.zero(q.amax, sizeof(float));
      form.raised[0] = q.amax;
    }
  }
  Operand whole{.high = {const_cast<void*>(x.data), x.dtype, x.shape}};
  for (const Copy& copy : copies) (copy.columnwise ? whole.columnwise : whole.rowwise) = *copy.q;
  whole.tensor_id = tensor_id;
  if (cast_fp8(exec, whole, cast.forms[0].amax) || cast_values(exec, whole)) return;
  const dim3 panels(static_cast<unsigned>(ceil_div(x.cols(), kPanel)),
                    static_cast<unsigned>(ceil_div(x.rows(), kPanel)));
  check(ceil_div(x.rows(), kPanel) < 65536, "quantize: {} has {} rows, expected fewer than {}", x, x.rows(),
        65535 * kPanel);
  visit_source(x, [&]<class T>(const T* p) {
    const bool aligned =
        x.cols() % (16 / static_cast<int64_t>(sizeof(T))) == 0 && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    launch(device, {.blocks = panels, .threads = kThreads, .shared_bytes = sizeof(Panel<T>)}, quantize_cast_kernel<T>,
           cast, aligned);
  });
}

}  // namespace

void quantize(Exec& exec, Operand& x) {
  const OpScope scope(exec, "quantize");
  if (x.rowwise && x.columnwise)
    cast_copies(exec, {{&x.rowwise, false}, {&x.columnwise, true}}, x.high, x.tensor_id, x.producer_amax);
  else if (x.rowwise)
    cast_copies(exec, {{&x.rowwise, false}}, x.high, x.tensor_id, x.producer_amax);
  else if (x.columnwise)
    cast_copies(exec, {{&x.columnwise, true}}, x.high, x.tensor_id, x.producer_amax);
}

void quantize_form(Exec& exec, Quantized& q, bool columnwise, ConstTensor x, uint32_t tensor_id,
                   const float* producer_amax) {
  const OpScope scope(exec, "quantize");
  cast_copies(exec, {{&q, columnwise}}, x, tensor_id, producer_amax);
}

}  // namespace mantissa::cuda
