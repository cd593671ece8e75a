#include "data/row_plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace mantissa {
namespace {

constexpr int32_t kShortest = 2;  // tokens of a piece in which something is predicted

// Positions of `pieces`, longest first, equals in their order: a counting sort.
std::vector<int64_t> longest_first(const std::vector<Piece>& pieces, int64_t longest) {
  std::vector<int64_t> place(static_cast<size_t>(longest) + 2), order(pieces.size());
  const auto slot = [longest](const Piece& p) { return static_cast<size_t>(longest - p.length); };
  for (const Piece& p : pieces) ++place[slot(p) + 1];
  for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
  for (size_t i = 0; i < pieces.size(); ++i)
    order[static_cast<size_t>(place[slot(pieces[i])]++)] = static_cast<int64_t>(i);
  return order;
}

// Rows by the room that is left in them.
class OpenRows {
 public:
  explicit OpenRows(int64_t sequence_length)
      : sequence_length_(sequence_length), by_room_(static_cast<size_t>(sequence_length) + 1) {}

  // The row with the least room for `length`, else a new one.
  int64_t take(int32_t length) {
    const auto found = rooms_.lower_bound(length);
    if (found == rooms_.end()) {
      put(rows_, static_cast<int32_t>(sequence_length_) - length);
      return rows_++;
    }
    const int32_t room = *found;
    std::vector<int64_t>& rows = by_room_[static_cast<size_t>(room)];
    const int64_t row = rows.back();
    rows.pop_back();
    if (rows.empty()) rooms_.erase(found);
    put(row, room - length);
    return row;
  }
  int64_t rows() const { return rows_; }

 private:
  void put(int64_t row, int32_t room) {
    if (room < kShortest) return;
    std::vector<int64_t>& rows = by_room_[static_cast<size_t>(room)];
    if (rows.empty()) rooms_.insert(room);
    rows.push_back(row);
  }

  int64_t sequence_length_, rows_ = 0;
  std::vector<std::vector<int64_t>> by_room_;
  std::set<int32_t> rooms_;  // that some row has
};

}  // namespace

Packing parse_packing(const std::string& name) {
  if (name == "truncate") return Packing::kTruncate;
  if (name == "best_fit") return Packing::kBestFit;
  check(name == "none", "packing {}", name);
  return Packing::kNone;
}

DocumentOrder::DocumentOrder(int64_t all, uint64_t seed, OrderStream stream, int64_t first, int64_t count)
    : order_(static_cast<uint64_t>(std::max<int64_t>(all, 1)), seed, static_cast<uint32_t>(stream), 0),
      first_(first),
      count_(count) {
  check(first >= 0 && count >= 0 && first + count <= all, "DocumentOrder: {} documents from {} of {}", count, first,
        all);
}

RowPlan::RowPlan(const Corpus& corpus, const DocumentOrder& order, Packing packing, int64_t sequence_length,
                 uint64_t seed)
    : sequence_length_(sequence_length), documents_(order.size()) {
  if (packing == Packing::kTruncate)
    truncate(corpus, order);
  else if (packing == Packing::kBestFit)
    best_fit(cut_pieces(corpus, order), seed);
  else
    one_a_row(cut_pieces(corpus, order));
}

void RowPlan::one_a_row(std::vector<Piece> pieces) {
  pieces_ = std::move(pieces);
  row_begin_.resize(pieces_.size() + 1);
  std::iota(row_begin_.begin(), row_begin_.end(), 0);
}

std::span<const Piece> RowPlan::row(int64_t row) const {
  check(row >= 0 && row < rows(), "row {} of {}", row, rows());
  const auto begin = static_cast<size_t>(row_begin_[static_cast<size_t>(row)]);
  return std::span(pieces_).subspan(begin, static_cast<size_t>(row_begin_[static_cast<size_t>(row) + 1]) - begin);
}

size_t RowPlan::most_pieces(const Corpus& corpus, const DocumentOrder& order) const {
  return static_cast<size_t>(order.size() + corpus.tokens() / sequence_length_ + 1);
}

void RowPlan::truncate(const Corpus& corpus, const DocumentOrder& order) {
  int64_t room = sequence_length_;
  pieces_.reserve(most_pieces(corpus, order));
  row_begin_.reserve(static_cast<size_t>(corpus.tokens() / sequence_length_) + 2);
  for (int64_t i = 0; i < order.size(); ++i) {
    int64_t begin = corpus.begin(order[i]);
    const int64_t end = corpus.begin(order[i] + 1);
    if (end - begin > room) ++cut_;
    while (begin < end) {
      const int64_t length = std::min(room, end - begin);
      pieces_.push_back({begin, static_cast<int32_t>(length)});
      begin += length;
      room -= length;
      if (room > 0) continue;
      row_begin_.push_back(static_cast<int64_t>(pieces_.size()));
      room = sequence_length_;
    }
  }
  for (; static_cast<int64_t>(pieces_.size()) > row_begin_.back(); pieces_.pop_back())
    dropped_ += pieces_.back().length;
}

std::vector<Piece> RowPlan::cut_pieces(const Corpus& corpus, const DocumentOrder& order) {
  std::vector<Piece> pieces;
  pieces.reserve(most_pieces(corpus, order));
  for (int64_t i = 0; i < order.size(); ++i) {
    const int64_t end = corpus.begin(order[i] + 1);
    int64_t begin = corpus.begin(order[i]);
    if (end - begin > sequence_length_) ++cut_;
    while (begin < end) {
      const int64_t length = std::min(sequence_length_, end - begin);
      if (length >= kShortest)
        pieces.push_back({begin, static_cast<int32_t>(length)});
      else
        dropped_ += length;
      begin += length;
    }
  }
  return pieces;
}

void RowPlan::best_fit(const std::vector<Piece>& pieces, uint64_t seed) {
  const std::vector<int64_t> order = longest_first(pieces, sequence_length_);
  std::vector<int64_t> row_of(pieces.size());
  OpenRows open(sequence_length_);
  for (const int64_t i : order) row_of[static_cast<size_t>(i)] = open.take(pieces[static_cast<size_t>(i)].length);
  if (open.rows() == 0) return;

  // Rows go to drawn places, so that no split's beginning holds the longest documents alone.
  const Permutation place(static_cast<uint64_t>(open.rows()), seed, static_cast<uint32_t>(OrderStream::kPackedRows), 0);
  std::vector<int64_t> places(static_cast<size_t>(open.rows()));
  for (size_t row = 0; row < places.size(); ++row) places[row] = static_cast<int64_t>(place(row));
  row_begin_.assign(places.size() + 1, 0);
  for (int64_t& row : row_of) {
    row = places[static_cast<size_t>(row)];
    ++row_begin_[static_cast<size_t>(row) + 1];
  }
  for (size_t row = 1; row < row_begin_.size(); ++row) row_begin_[row] += row_begin_[row - 1];
  std::vector<int64_t> next(row_begin_.begin(), row_begin_.end() - 1);
  pieces_.resize(pieces.size());
  for (const int64_t i : order) {
    const auto row = static_cast<size_t>(row_of[static_cast<size_t>(i)]);
    pieces_[static_cast<size_t>(next[row]++)] = pieces[static_cast<size_t>(i)];
  }
}

}  // namespace mantissa
