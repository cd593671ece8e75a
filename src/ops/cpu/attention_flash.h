// Blocked attention, Dao 2023 (FlashAttention-2), with the scores transposed: keys are rows, queries of all heads that
// share a kv head are lanes. Softmax then runs down the rows without sums across lanes, and in backward the
// probabilities and their gradients come out along the queries, as the products for dK and dV contract them.
#pragma once

#include "ops/cpu/attention_softmax.h"

namespace mantissa::MANTISSA_ISA_NS {

// One segment seen from one kv head; pointers to its first token.
template <class E>
struct SegmentView {
  int64_t token, length, cols, out_cols, dim, group;
  int64_t k, v;  // offsets in a row of qkv
  const E* rows;

  SegmentView(const AttentionJob<E>& job, int64_t index, int64_t kv_head)
      : token(job.segments[index]),
        length(job.segments[index + 1] - token),
        cols(job.layout.qkv_cols()),
        out_cols(job.layout.heads * job.layout.head_dim),
        dim(job.layout.head_dim),
        group(job.layout.heads / job.layout.kv_heads),
        k((job.layout.heads + kv_head) * dim),
        v(k + job.layout.kv_heads * dim),
        rows(job.qkv + token * cols) {}
};

// c[16 m, 16 n] (+)= left · rightᵀ over k_tiles tiles; left starts at panel (and tile) given, right at its first.
struct Multiplier {
  const TileKernel& kernel;

  void operator()(float* c, int64_t c_stride, const Panels& left, int64_t panel, int64_t tile, const Panels& right,
                  int64_t m, int64_t n, int64_t k_tiles, bool accumulate) const {
    multiply(kernel, {.left = left.tile(panel, tile),
                      .left_stride = left.k_tiles * kTileBytes,
                      .right = right.tile(0, 0),
                      .right_stride = right.k_tiles * kTileBytes,
                      .c = c,
                      .c_stride = c_stride,
                      .left_panels = static_cast<int>(m / 16),
                      .right_panels = static_cast<int>(n / 16),
                      .k_tiles = k_tiles,
                      .accumulate = accumulate});
  }
};

// Stages the queries (or what has their shape) of all heads of a block: x is at query 0 of head 0 of the segment.
template <class Cell, class E>
void stage_lanes(Cell* rows, int64_t depth, const Lanes& q, const E* x, int64_t stride, int64_t dim) {
  for (int64_t h = 0; h < q.heads; ++h) {
    const int64_t lane = h * q.width, width = h + 1 < q.heads ? q.width : q.lanes - lane;
    stage_rows(rows + lane * depth, depth, x + q.begin * stride + (q.first_head + h) * dim, stride, q.count, width,
               dim);
  }
}

// Queries [part * chunk, ...) of the query heads from unit.head on that share a kv head, at most kMaxLaneHeads of them.
template <class Cell, class E>
void forward_unit(std::byte* memory, const AttentionJob<E>& job, const Unit& unit) {
  constexpr int64_t kPad = kSpan<Cell>;
  const Multiplier multiply{*job.kernel};
  const int64_t group = job.layout.heads / job.layout.kv_heads;
  const SegmentView<E> s(job, unit.segment, unit.head / group);
  const int64_t heads = min_of(kMaxLaneHeads, group - unit.head % group);
  const int64_t depth = round_up(s.dim, kPad), block = query_block(heads), chunk = chunk_queries(heads, depth);
  const int64_t first = unit.part * chunk, last = min_of(first + chunk, s.length);
  const int64_t blocks = (last - first + block - 1) / block, lanes = round_up(heads * block, kPad);

  Scratch scratch(memory);
  Cell* rows = scratch.take<Cell>(kMaxLanes * depth);
  const Panels keys = take_panels<Cell>(scratch, kPanelKeys, depth);    // left, outer keys
  const Panels values = take_panels<Cell>(scratch, depth, kPanelKeys);  // left, outer D
  const Panels queries = take_panels<Cell>(scratch, lanes, depth);      // right, outer lanes
  const Panels weights = take_panels<Cell>(scratch, lanes, kKeyBlock);  // right, outer lanes
  float* scores = scratch.take<float>(kKeyBlock * lanes);               // [keys, lanes]
  float* alpha = scratch.take<float>(lanes);
  float* max = scratch.take<float>(blocks * lanes);
  float* sum = scratch.take<float>(blocks * lanes);
  float* output = scratch.take<float>(blocks * depth * lanes);  // [D, lanes] of each block

  for (int64_t panel = 0; panel < last; panel += kPanelKeys) {
    const int64_t panel_end = min_of(panel + kPanelKeys, last);
    for (int64_t key = panel; key < panel_end; key += kKeyBlock) {
      const int64_t count = min_of(kKeyBlock, panel_end - key), padded = round_up(count, kPad);
      stage_rows(rows, depth, s.rows + key * s.cols + s.k, s.cols, count, padded, s.dim);
      pack_left_rows(keys, (key - panel) / 16, rows, depth, padded);
      stage_rows(rows, depth, s.rows + key * s.cols + s.v, s.cols, count, padded, s.dim);
      pack_left_columns(values, (key - panel) / kPad, rows, depth, padded);
    }
    for (int64_t b = 0; b < blocks; ++b) {
      const Lanes q(unit.head, heads, first + b * block, last, kPad);
      if (q.begin + q.count <= panel) continue;
      float *m = max + b * lanes, *l = sum + b * lanes, *o = output + b * depth * lanes;
      stage_lanes(rows, depth, q, s.rows, s.cols, s.dim);
      pack_right_rows(queries, rows, depth, q.lanes);
      if (panel == 0)
        for (int64_t i = 0; i < q.lanes; ++i) m[i] = -__builtin_inff(), l[i] = 0;
      const int64_t end = min_of(panel_end, q.begin + q.count);
      for (int64_t key = panel; key < end; key += kKeyBlock) {
        const int64_t count = round_up(min_of(kKeyBlock, end - key), kPad);
        multiply(scores, q.lanes, keys, (key - panel) / 16, 0, queries, count, q.lanes, depth / kPad, false);
        if (key + count > q.begin) mask_future(scores, q, key, count);
        softmax_block<Cell>(weights, alpha, m, l, scores, q.lanes, count, job.scale);
        if (key > 0) scale_lanes(o, q.lanes, depth, alpha);
        multiply(o, q.lanes, values, 0, (key - panel) / kPad, weights, depth, q.lanes, count / kPad, key > 0);
      }
      if (end < q.begin + q.count) continue;
      for (int64_t i = 0; i < q.lanes; ++i) alpha[i] = 1.0f / l[i];
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t head = unit.head + h, token = s.token + q.begin, lane = h * q.width;
        store_lanes(job.out + token * s.out_cols + head * s.dim, s.out_cols, o + lane, q.lanes, q.count, s.dim,
                    alpha + lane);
        for (int64_t i = 0; i < q.count; ++i)
          job.lse[head * job.tokens + token + i] = m[lane + i] * job.scale + __builtin_logf(l[lane + i]);
      }
    }
  }
}

// Backward of one kv head in one segment.
template <class Cell, class E>
class Backward {
  static constexpr int64_t kPad = kSpan<Cell>, kCell = sizeof(Cell);

 public:
  // Keys whose operands and gradients fit beside the buffers of one block.
  static int64_t panel_keys(int64_t depth) {
    const int64_t block =
        5 * depth * kMaxLanes * kCell + kKeyBlock * kMaxLanes * (8 + 3 * kCell) + depth * kMaxLanes * 4;
    return (Exec::kThreadScratch - block - 16384) / (3 * depth * kCell + 2 * depth * 4) / kKeyBlock * kKeyBlock;
  }

  Backward(std::byte* memory, const AttentionJob<E>& job, const Unit& unit)
      : job_(job),
        s_(job, unit.segment, unit.head),
        multiply_{*job.kernel},
        first_head_(unit.head * s_.group),
        depth_(round_up(s_.dim, kPad)),
        panel_(min_of(panel_keys(depth_), round_up(s_.length, kKeyBlock))) {
    Scratch scratch(memory);
    rows_ = scratch.take<Cell>(kMaxLanes * depth_);
    queries_ = take_panels<Cell>(scratch, kMaxLanes, depth_);
    douts_ = take_panels<Cell>(scratch, kMaxLanes, depth_);
    query_columns_ = take_panels<Cell>(scratch, depth_, kMaxLanes);
    dout_columns_ = take_panels<Cell>(scratch, depth_, kMaxLanes);
    weights_ = take_panels<Cell>(scratch, kKeyBlock, kMaxLanes);
    dscores_ = take_panels<Cell>(scratch, kKeyBlock, kMaxLanes);
    dscores_right_ = take_panels<Cell>(scratch, kMaxLanes, kKeyBlock);
    scores_ = scratch.take<float>(kKeyBlock * kMaxLanes);
    dweights_ = scratch.take<float>(kKeyBlock * kMaxLanes);
    dquery_ = scratch.take<float>(depth_ * kMaxLanes);
    lse_ = scratch.take<float>(kMaxLanes);
    delta_ = scratch.take<float>(kMaxLanes);
    factor_ = scratch.take<float>(kMaxLanes);
    for (int64_t i = 0; i < kMaxLanes; ++i) factor_[i] = job.scale;
    keys_ = take_panels<Cell>(scratch, panel_, depth_);
    values_ = take_panels<Cell>(scratch, panel_, depth_);
    key_columns_ = take_panels<Cell>(scratch, depth_, panel_);
    dkeys_ = scratch.take<float>(2 * panel_ * depth_);
    dvalues_ = dkeys_ + panel_ * depth_;
  }

  // dK and dV of keys [first, last), at most a panel; dQ too if these are all keys of the segment.
  void key_gradients(int64_t first, int64_t last) {
    pack_keys(first, last);
    const bool whole = first == 0 && last == s_.length;
    for (int64_t i = 0; i < 2 * panel_ * depth_; ++i) dkeys_[i] = 0;
    for (int64_t h = 0; h < s_.group; h += kMaxLaneHeads) {
      const int64_t heads = min_of(kMaxLaneHeads, s_.group - h), block = query_block(heads);
      for (int64_t begin = first; begin < s_.length; begin += block) {
        const Lanes q(first_head_ + h, heads, begin, s_.length, kPad);
        pack_queries(q, true);
        multiply_blocks(q, first, last, true, whole ? dquery_ : nullptr, true);
        if (whole) store_dquery(q, dquery_);
      }
    }
    E* rows = job_.dqkv + (s_.token + first) * s_.cols;
    store_rows(rows + s_.k, s_.cols, dkeys_, depth_, last - first, s_.dim, job_.scale);
    store_rows(rows + s_.v, s_.cols, dvalues_, depth_, last - first, s_.dim, 1.0f);
  }

  // dQ of queries [first, last), a chunk: its accumulators stand where key_gradients() has dK and dV.
  void query_gradients(int64_t first, int64_t last) {
    for (int64_t h = 0; h < s_.group; h += kMaxLaneHeads) {
      const int64_t heads = min_of(kMaxLaneHeads, s_.group - h), block = query_block(heads);
      for (int64_t panel = 0; panel < last; panel += panel_) {
        const int64_t panel_end = min_of(panel + panel_, last);
        pack_keys(panel, panel_end);
        for (int64_t begin = first; begin < last; begin += block) {
          const Lanes q(first_head_ + h, heads, begin, last, kPad);
          if (q.begin + q.count <= panel) continue;
          float* dquery = dkeys_ + (begin - first) / block * depth_ * round_up(heads * block, kPad);
          pack_queries(q, false);
          multiply_blocks(q, panel, panel_end, false, dquery, panel == 0);
          if (q.begin + q.count <= panel_end) store_dquery(q, dquery);
        }
      }
    }
  }

 private:
  void pack_keys(int64_t first, int64_t last) {
    for (int64_t key = first; key < last; key += kKeyBlock) {
      const int64_t count = min_of(kKeyBlock, last - key), padded = round_up(count, kPad);
      stage_rows(rows_, depth_, s_.rows + key * s_.cols + s_.v, s_.cols, count, padded, s_.dim);
      pack_left_rows(values_, (key - first) / 16, rows_, depth_, padded);
      stage_rows(rows_, depth_, s_.rows + key * s_.cols + s_.k, s_.cols, count, padded, s_.dim);
      pack_left_rows(keys_, (key - first) / 16, rows_, depth_, padded);
      pack_left_columns(key_columns_, (key - first) / kPad, rows_, depth_, padded);
    }
  }

  // Operands of one block of queries; `columns`: also those that dK and dV contract with.
  void pack_queries(const Lanes& q, bool columns) {
    const E* out = job_.out + s_.token * s_.out_cols;
    const E* dout = job_.dout + s_.token * s_.out_cols;
    stage_lanes(rows_, depth_, q, s_.rows, s_.cols, s_.dim);
    pack_right_rows(queries_, rows_, depth_, q.lanes);
    if (columns) pack_right_columns(query_columns_, rows_, depth_, q.lanes);
    stage_lanes(rows_, depth_, q, dout, s_.out_cols, s_.dim);
    pack_right_rows(douts_, rows_, depth_, q.lanes);
    if (columns) pack_right_columns(dout_columns_, rows_, depth_, q.lanes);
    for (int64_t i = 0; i < q.lanes; ++i) lse_[i] = __builtin_inff(), delta_[i] = 0;  // padding has probability 0
    for (int64_t h = 0; h < q.heads; ++h)
      for (int64_t i = 0; i < q.count; ++i) {
        const int64_t head = q.first_head + h, at = (q.begin + i) * s_.out_cols + head * s_.dim;
        delta_[h * q.width + i] = dot_of(dout + at, out + at, s_.dim);
        lse_[h * q.width + i] = job_.lse[head * job_.tokens + s_.token + q.begin + i];
      }
  }

  // The packed queries against the packed keys [first, last): adds to dK and dV, and to dQ, which starts anew if
  // `fresh`.
  void multiply_blocks(const Lanes& q, int64_t first, int64_t last, bool want_keys, float* dquery, bool fresh) {
    const int64_t end = min_of(last, q.begin + q.count), lanes = q.lanes;
    for (int64_t key = first; key < end; key += kKeyBlock) {
      const int64_t count = round_up(min_of(kKeyBlock, end - key), kPad), row = key - first;
      multiply_(scores_, lanes, keys_, row / 16, 0, queries_, count, lanes, depth_ / kPad, false);
      if (key + count > q.begin) mask_future(scores_, q, key, count);
      multiply_(dweights_, lanes, values_, row / 16, 0, douts_, count, lanes, depth_ / kPad, false);
      gradient_block<Cell>(weights_, dscores_, dscores_right_, scores_, dweights_, lse_, delta_, lanes, count,
                           job_.scale);
      if (want_keys) {
        multiply_(dvalues_ + row * depth_, depth_, weights_, 0, 0, dout_columns_, count, depth_, lanes / kPad, true);
        multiply_(dkeys_ + row * depth_, depth_, dscores_, 0, 0, query_columns_, count, depth_, lanes / kPad, true);
      }
      if (dquery)
        multiply_(dquery, lanes, key_columns_, 0, row / kPad, dscores_right_, depth_, lanes, count / kPad,
                  !fresh || key > first);
    }
  }

  void store_dquery(const Lanes& q, const float* dquery) {
    E* row = job_.dqkv + (s_.token + q.begin) * s_.cols + q.first_head * s_.dim;
    for (int64_t h = 0; h < q.heads; ++h)
      store_lanes(row + h * s_.dim, s_.cols, dquery + h * q.width, q.lanes, q.count, s_.dim, factor_);
  }

  const AttentionJob<E>& job_;
  const SegmentView<E> s_;
  const Multiplier multiply_;
  const int64_t first_head_, depth_, panel_;  // panel_: keys that are packed at once
  Cell* rows_;                                // staging
  Panels queries_, douts_;                    // right, outer lanes, K along D
  Panels query_columns_, dout_columns_;       // right, outer D, K along lanes
  Panels weights_, dscores_;                  // left, outer keys, K along lanes
  Panels dscores_right_;                      // right, outer lanes, K along keys
  Panels keys_, values_;                      // left, outer keys, K along D
  Panels key_columns_;                        // left, outer D, K along keys
  float *scores_, *dweights_;                 // [keys, lanes]
  float* dquery_;                             // [D, lanes]
  float *dkeys_, *dvalues_;                   // [panel, D]
  float *lse_, *delta_, *factor_;             // [lanes]
};

}  // namespace mantissa::MANTISSA_ISA_NS
