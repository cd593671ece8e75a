// The elementwise part of attention on a block of scores [keys, lanes], 16 lanes at a time; results go straight into
// the panels of the next products.
#pragma once

#include "ops/cpu/attention_panels.h"
#include "ops/cpu/vec16.h"

namespace mantissa::MANTISSA_ISA_NS {

// x = e^x to 2 ulp; 0 below -87 (e^-87 is about the least normal number), NaN stays NaN, x at most 88.
// Range reduction by Cody and Waite, x = k ln 2 + r; polynomial of the Cephes library on |r| <= ln(2)/2.
MANTISSA_HD void exp_in_place(Vec& x) {
  const Vec zero = {}, one = zero + 1.0f, round = zero + 12582912.0f;  // 1.5 2^23: adding it rounds to an integer
  Vec shifted = round;
  multiply_add(shifted, x, zero + 1.44269504f);
  const Vec k = shifted - round;
  Vec r = x;
  multiply_add(r, k, zero - 0.693359375f);
  multiply_add(r, k, zero + 2.12194440e-4f);
  Vec p = zero + 1.39819994e-3f, q = zero + 4.16657962e-2f;
  multiply_add(p, r, zero + 1.98756912e-4f);
  multiply_add(q, r, zero + 8.33345205e-3f);
  const Vec square = r * r;
  Vec low = zero + 0.5f;
  multiply_add(low, r, zero + 1.66666657e-1f);
  multiply_add(q, p, square);    // r^4 and above, over r^4
  multiply_add(low, q, square);  // (e^r - 1 - r) / r^2
  r += one;
  multiply_add(r, low, square);
  const VecInt power = ((VecInt)shifted - (VecInt)round + 127) << 23;
  r *= (Vec)power;
  x = x < zero - 87.0f ? zero : r;
}

// The bits of x rounded to BF16, in the upper half of each lane.
MANTISSA_HD void round_bits(VecBits& bits, const Vec& x) {
  bits = (VecBits)x;
  bits += 0x7fffu + ((bits >> 16) & 1u);
}

// Rows c and c + 1 of 16 lanes, as K of a right panel: keys are units.
template <class Cell>
MANTISSA_HD void put_right(std::byte* panel, int64_t c, const Vec& a, const Vec& b) {
  if constexpr (sizeof(Cell) == 4) {
    *reinterpret_cast<Vec*>(panel + c * 64) = a;
    *reinterpret_cast<Vec*>(panel + (c + 1) * 64) = b;
  } else {
    VecBits low, high;
    round_bits(low, a);
    round_bits(high, b);
    *reinterpret_cast<VecBits*>(panel + c * 32) = (low >> 16) | (high & 0xffff0000u);
  }
}

// Row c of 16 lanes, as an outer row of a left panel: lanes run along K. `tile` holds these lanes and c's panel.
template <class Cell>
MANTISSA_HD void put_left(std::byte* tile, int64_t half, int64_t c, const Vec& a) {
  if constexpr (sizeof(Cell) == 4) {
    *reinterpret_cast<Vec*>(tile + c % 16 * 64) = a;
  } else {
    VecBits bits;
    round_bits(bits, a);
    *reinterpret_cast<VecHalf*>(tile + c % 16 * 64 + half * 32) = __builtin_convertvector(bits >> 16, VecHalf);
  }
}

// Online softmax (Milakov and Gimelshein 2018) over `keys` more keys: raises max[lanes] (of the unscaled scores),
// updates sum[lanes], alpha = what earlier sums are multiplied by, weights (right panels) = e^(scale (score - max)).
template <class Cell>
void softmax_block(const Panels& weights, float* alpha, float* max, float* sum, const float* scores, int64_t lanes,
                   int64_t keys, float scale) {
  for (int64_t n = 0; n < lanes; n += 16) {
    std::byte* panel = weights.tile(n / 16, 0);
    const Vec before = lanes_at(max + n);
    Vec top = before;
    for (int64_t c = 0; c < keys; ++c) {
      const Vec s = lanes_at(scores + c * lanes + n);
      top = s > top ? s : top;
    }
    Vec shrink = (before - top) * scale;
    exp_in_place(shrink);
    Vec total = {};
    for (int64_t c = 0; c < keys; c += 2) {
      Vec a = (lanes_at(scores + c * lanes + n) - top) * scale,
          b = (lanes_at(scores + (c + 1) * lanes + n) - top) * scale;
      exp_in_place(a);
      exp_in_place(b);
      total += a + b;
      put_right<Cell>(panel, c, a, b);
    }
    multiply_add(total, lanes_at(sum + n), shrink);
    lanes_at(max + n) = top;
    lanes_at(sum + n) = total;
    lanes_at(alpha + n) = shrink;
  }
}

// weights = e^(scale score - lse), dscores = weights (dweights - delta): both as left panels, dscores as right panels
// too.
template <class Cell>
void gradient_block(const Panels& weights, const Panels& dscores, const Panels& dscores_right, const float* scores,
                    const float* dweights, const float* lse, const float* delta, int64_t lanes, int64_t keys,
                    float scale) {
  for (int64_t n = 0; n < lanes; n += 16) {
    const int64_t tile = n / kSpan<Cell>, half = n % kSpan<Cell> / 16;
    std::byte* right = dscores_right.tile(n / 16, 0);
    const Vec l = lanes_at(lse + n), mean = lanes_at(delta + n);
    for (int64_t c = 0; c < keys; c += 2) {
      const int64_t at = c * lanes + n;
      Vec a = lanes_at(scores + at) * scale - l, b = lanes_at(scores + at + lanes) * scale - l;
      exp_in_place(a);
      exp_in_place(b);
      put_left<Cell>(weights.tile(c / 16, tile), half, c, a);
      put_left<Cell>(weights.tile(c / 16, tile), half, c + 1, b);
      a *= lanes_at(dweights + at) - mean;
      b *= lanes_at(dweights + at + lanes) - mean;
      put_left<Cell>(dscores.tile(c / 16, tile), half, c, a);
      put_left<Cell>(dscores.tile(c / 16, tile), half, c + 1, b);
      put_right<Cell>(right, c, a, b);
    }
  }
}

// x[rows, lanes] *= alpha[lanes].
inline void scale_lanes(float* x, int64_t lanes, int64_t rows, const float* alpha) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < lanes; n += 16) lanes_at(x + r * lanes + n) *= lanes_at(alpha + n);
}

}  // namespace mantissa::MANTISSA_ISA_NS
