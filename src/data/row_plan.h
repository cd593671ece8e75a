// Which tokens of a corpus make which row of S tokens: the packings of data.packing (docs/data.md).
//
// truncate: documents end to end in the drawn order, cut every S tokens. Every row is full; the tail that fills no row
// is
//   dropped. A document cut by a row's end goes on in the next row as a piece of its own.
// best_fit: documents longer than S are cut into pieces of S; what remains and the shorter ones go, longest first, each
//   into the row with the least room that still takes it (Ding et al., "Fewer Truncations Improve Language Modeling",
//   ICML 2024: best-fit decreasing). Rows stand in a drawn order.
// none: a piece a row, cut as for best_fit.
// Under best_fit and none a remainder of one token is left out: it has nothing to predict.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/permutation.h"

namespace mantissa {

enum class Packing : uint8_t { kTruncate, kBestFit, kNone };
Packing parse_packing(const std::string& name);  // as data.packing names them

// Uses of the seed for orders.
enum class OrderStream : uint32_t { kTrainDocuments, kValidationDocuments, kTrainRows, kPackedRows, kSplitRows };

// Documents first, first + 1, ... of a permutation of [0, all).
class DocumentOrder {
 public:
  DocumentOrder(int64_t all, uint64_t seed, OrderStream stream, int64_t first, int64_t count);
  int64_t size() const { return count_; }
  int64_t operator[](int64_t i) const { return static_cast<int64_t>(order_(static_cast<uint64_t>(first_ + i))); }

 private:
  Permutation order_;
  int64_t first_, count_;
};

// Tokens [begin, begin + length) of the corpus, a segment of a row.
struct Piece {
  int64_t begin = 0;
  int32_t length = 0;
};

class RowPlan {
 public:
  // `seed` draws the order of best_fit's rows.
  RowPlan(const Corpus& corpus, const DocumentOrder& order, Packing packing, int64_t sequence_length, uint64_t seed);

  int64_t sequence_length() const { return sequence_length_; }
  int64_t rows() const { return static_cast<int64_t>(row_begin_.size()) - 1; }
  std::span<const Piece> row(int64_t row) const;

  int64_t documents() const { return documents_; }
  int64_t cut_documents() const { return cut_; }       // that lie in more than one row, or not whole
  int64_t dropped_tokens() const { return dropped_; }  // of the tail, or of remainders of one token

 private:
  size_t most_pieces(const Corpus& corpus, const DocumentOrder& order) const;
  void truncate(const Corpus& corpus, const DocumentOrder& order);
  void one_a_row(std::vector<Piece> pieces);
  void best_fit(const std::vector<Piece>& pieces, uint64_t seed);
  // Documents in pieces of at most S tokens.
  std::vector<Piece> cut_pieces(const Corpus& corpus, const DocumentOrder& order);

  int64_t sequence_length_, documents_ = 0, cut_ = 0, dropped_ = 0;
  std::vector<Piece> pieces_;
  std::vector<int64_t> row_begin_ = {0};  // [rows + 1] into pieces_
};

}  // namespace mantissa
