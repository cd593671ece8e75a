#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/file.h"
#include "data/packed_rows.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

constexpr int64_t kVocabulary = 1 << 20;
constexpr int32_t kPadding = 7;

// Documents of the given lengths; token i of document d is d * 1000 + i + 10, so that every token tells its place.
std::vector<EncodedDocument> documents_of(const std::vector<int64_t>& lengths) {
  std::vector<EncodedDocument> documents(lengths.size());
  for (size_t d = 0; d < lengths.size(); ++d)
    for (int64_t i = 0; i < lengths[d]; ++i)
      documents[d].ids.push_back(static_cast<int32_t>(static_cast<int64_t>(d) * 1000 + i + 10));
  return documents;
}

std::shared_ptr<const Corpus> corpus_of(const std::vector<EncodedDocument>& documents, const std::string& folder = "") {
  auto corpus = std::make_shared<Corpus>(kVocabulary, folder);
  for (const EncodedDocument& document : documents) corpus->append(document);
  corpus->finish();
  return corpus;
}

PackedRows pack(const std::shared_ptr<const Corpus>& corpus, Packing packing, int64_t sequence_length,
                uint64_t seed = 1) {
  const DocumentOrder order(corpus->documents(), seed, OrderStream::kTrainDocuments, 0, corpus->documents());
  return {corpus, RowPlan(*corpus, order, packing, sequence_length, seed), kPadding};
}

Batch whole(const RowSource& rows) {
  Batch batch;
  batch.sequence_length = rows.sequence_length();
  for (int64_t row = 0; row < rows.rows(); ++row) rows.append_row(row, batch);
  return batch;
}

std::vector<int64_t> random_lengths(std::mt19937& random, size_t count, int64_t longest) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest)));
  return lengths;
}

// Every rule of a batch, and that statistics count what stands in it.
void expect_rules(const PackedRows& rows, const Batch& batch) {
  const int64_t s = rows.sequence_length();
  ASSERT_EQ(static_cast<int64_t>(batch.ids.size()), rows.rows() * s);
  ASSERT_EQ(batch.labels.size(), batch.ids.size());
  ASSERT_EQ(batch.positions.size(), batch.ids.size());
  ASSERT_EQ(batch.segments.front(), 0);
  ASSERT_EQ(batch.segments.back(), static_cast<int32_t>(batch.ids.size()));
  int64_t labels = 0, padding = 0;
  double squared = 0;
  for (size_t i = 0; i + 1 < batch.segments.size(); ++i) {
    const int32_t begin = batch.segments[i], end = batch.segments[i + 1];
    ASSERT_LT(begin, end);
    ASSERT_EQ(begin / s, (end - 1) / s) << "a segment crosses a row's end";
    squared += std::pow(end - begin, 2);
    const bool filler = batch.ids[static_cast<size_t>(begin)] == kPadding;
    padding += filler ? end - begin : 0;
    for (int32_t at = begin; at < end; ++at) {
      const auto k = static_cast<size_t>(at);
      ASSERT_EQ(batch.positions[k], at - begin);
      if (at + 1 == end || filler)
        ASSERT_EQ(batch.labels[k], kIgnoredLabel);
      else
        ASSERT_EQ(batch.labels[k], batch.ids[k + 1]);
      if (filler) {
        ASSERT_EQ(batch.ids[k], kPadding);
      }
      labels += batch.labels[k] != kIgnoredLabel;
    }
  }
  EXPECT_EQ(batch.valid_tokens, labels);
  EXPECT_EQ(rows.statistics().labels, labels);
  EXPECT_EQ(rows.statistics().padding, padding);
  EXPECT_EQ(rows.statistics().squared_lengths, squared);
  EXPECT_EQ(rows.statistics().segments, static_cast<int64_t>(batch.segments.size()) - 1);
}

TEST(Corpus, GivesBackWhatWasAppended) {
  const TempFolder folder;
  for (const int64_t vocab : {int64_t{256}, int64_t{50257}, int64_t{65536}, int64_t{65537}, int64_t{151936}}) {
    for (const std::string& spill : {std::string(), folder.path()}) {
      SCOPED_TRACE(fmt::format("{} {}", vocab, spill));
      std::mt19937 random(3);
      Corpus corpus(vocab, spill);
      std::vector<int32_t> all = {0, static_cast<int32_t>(vocab - 1)};
      corpus.append({all, {}});
      std::vector<int64_t> begins = {0, 2};
      for (int d = 0; d < 40; ++d) {
        EncodedDocument document;
        for (size_t i = random() % 90; i > 0; --i)
          document.ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
        corpus.append(document);
        all.insert(all.end(), document.ids.begin(), document.ids.end());
        begins.push_back(static_cast<int64_t>(all.size()));
      }
      corpus.finish();
      ASSERT_EQ(corpus.tokens(), static_cast<int64_t>(all.size()));
      ASSERT_EQ(corpus.documents(), 41);
      EXPECT_FALSE(corpus.masked());
      for (int64_t d = 0; d <= 41; ++d) ASSERT_EQ(corpus.begin(d), begins[static_cast<size_t>(d)]);
      std::vector<int32_t> read(all.size());
      corpus.read(0, read);
      EXPECT_EQ(read, all);
      std::vector<int32_t> part(17);
      corpus.read(5, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 5));
      error_of(Exit::kInternal, [&] { corpus.read(corpus.tokens() - 16, part); });
    }
    Corpus corpus(vocab);
    error_of(Exit::kInternal, [&] { corpus.append({{static_cast<int32_t>(vocab)}, {}}); });
    error_of(Exit::kInternal, [&] { corpus.append({{-1}, {}}); });
    error_of(Exit::kInternal, [&] { corpus.append({{1, 2}, {1}}); });
  }
}

TEST(Corpus, KeepsWhichTokensAreLearned) {
  const TempFolder folder;
  for (const std::string& spill : {std::string(), folder.path()}) {
    std::mt19937 random(5);
    Corpus corpus(kVocabulary, spill);
    std::vector<uint8_t> expected;
    for (int d = 0; d < 60; ++d) {
      EncodedDocument document;
      const bool masked = d >= 5 && random() % 3 != 0;  // the first ones are learned whole, without flags
      for (size_t i = 1 + random() % 30; i > 0; --i) {
        document.ids.push_back(static_cast<int32_t>(i));
        if (masked) document.learned.push_back(random() % 2 != 0);
        expected.push_back(masked ? document.learned.back() : 1);
      }
      corpus.append(document);
    }
    corpus.finish();
    EXPECT_TRUE(corpus.masked());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(corpus.learned(static_cast<int64_t>(i)), expected[i] != 0);
  }
}

TEST(Corpus, ASpillLeavesNoFile) {
  const TempFolder folder;
  Corpus corpus(kVocabulary, folder.path());
  corpus.append({std::vector<int32_t>(3'000'000, 65'999), {}});  // past the write buffer
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  corpus.finish();
  std::vector<int32_t> read(3'000'000);
  corpus.read(0, read);
  EXPECT_EQ(std::count(read.begin(), read.end(), 65'999), 3'000'000);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  error_of(Exit::kStorage, [&] { Corpus(kVocabulary, folder / "none"); });
}

TEST(Truncate, CutsTheStreamEverySTokens) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t s = 2 + static_cast<int64_t>(random() % 40);
    const auto documents = documents_of(random_lengths(random, 1 + random() % 30, 1 + random() % 90));
    const auto corpus = corpus_of(documents);
    const PackedRows rows = pack(corpus, Packing::kTruncate, s, random());
    ASSERT_EQ(rows.rows(), corpus->tokens() / s);
    ASSERT_EQ(rows.plan().dropped_tokens(), corpus->tokens() % s);
    if (rows.rows() == 0) continue;
    const Batch batch = whole(rows);
    expect_rules(rows, batch);
    EXPECT_EQ(rows.statistics().padding, 0);
    // The stream is the documents end to end, in some order; a segment ends with its document or its row.
    std::set<int32_t> met;
    for (size_t i = 0; i < batch.ids.size();) {
      const auto d = static_cast<size_t>((batch.ids[i] - 10) / 1000);
      ASSERT_TRUE(met.insert(static_cast<int32_t>(d)).second);
      for (const int32_t id : documents[d].ids) {
        if (i == batch.ids.size()) break;
        const bool begins = id == documents[d].ids.front() || i % static_cast<size_t>(s) == 0;
        ASSERT_EQ(std::binary_search(batch.segments.begin(), batch.segments.end(), static_cast<int32_t>(i)), begins);
        ASSERT_EQ(batch.ids[i++], id);
      }
    }
  }
}

TEST(Truncate, AWorkedExample) {
  auto corpus = std::make_shared<Corpus>(256);
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>{'a', 'b', 0}, {'c', 'd', 'e', 'f', 'g', 0}, {'h', 0}})
    corpus->append({ids, {}});
  corpus->finish();
  uint64_t seed = 0;  // one that keeps the order
  for (;; ++seed) {
    const DocumentOrder order(3, seed, OrderStream::kTrainDocuments, 0, 3);
    if (order[0] == 0 && order[1] == 1) break;
  }
  // a b 0 c | d e f g | 0 h 0: the last row is not full
  const PackedRows rows = pack(corpus, Packing::kTruncate, 4, seed);
  EXPECT_EQ(rows.rows(), 2);
  EXPECT_EQ(rows.plan().dropped_tokens(), 3);
  EXPECT_EQ(rows.plan().cut_documents(), 1);
  EXPECT_EQ(rows.statistics().most_segments, 2);
  const Batch batch = whole(rows);
  EXPECT_EQ(batch.ids, (std::vector<int32_t>{'a', 'b', 0, 'c', 'd', 'e', 'f', 'g'}));
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{'b', 0, -100, -100, 'e', 'f', 'g', -100}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(batch.segments, (std::vector<int32_t>{0, 3, 4, 8}));
  EXPECT_EQ(batch.valid_tokens, 5);
}

// Segments that are not padding, as (document, first token, length).
std::multiset<std::tuple<int32_t, int32_t, int32_t>> pieces_in(const Batch& batch) {
  std::multiset<std::tuple<int32_t, int32_t, int32_t>> pieces;
  for (size_t i = 0; i + 1 < batch.segments.size(); ++i) {
    const int32_t id = batch.ids[static_cast<size_t>(batch.segments[i])];
    if (id != kPadding) pieces.insert({(id - 10) / 1000, (id - 10) % 1000, batch.segments[i + 1] - batch.segments[i]});
  }
  return pieces;
}

TEST(BestFit, KeepsEveryPieceWhole) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t s = 4 + static_cast<int64_t>(random() % 60);
    const std::vector<int64_t> lengths = random_lengths(random, 1 + random() % 60, 1 + random() % 150);
    const auto corpus = corpus_of(documents_of(lengths));
    std::multiset<std::tuple<int32_t, int32_t, int32_t>> expected;
    int64_t dropped = 0, cut = 0;
    for (size_t d = 0; d < lengths.size(); ++d) {
      cut += lengths[d] > s;
      for (int64_t at = 0; at < lengths[d]; at += s) {
        const int64_t length = std::min(s, lengths[d] - at);
        if (length == 1)
          ++dropped;
        else
          expected.insert({static_cast<int32_t>(d), static_cast<int32_t>(at), static_cast<int32_t>(length)});
      }
    }
    for (const Packing packing : {Packing::kBestFit, Packing::kNone}) {
      const PackedRows rows = pack(corpus, packing, s, random());
      EXPECT_EQ(rows.plan().dropped_tokens(), dropped);
      EXPECT_EQ(rows.plan().cut_documents(), cut);
      ASSERT_EQ(rows.rows() == 0, expected.empty());
      if (expected.empty()) continue;
      const Batch batch = whole(rows);
      expect_rules(rows, batch);
      EXPECT_EQ(pieces_in(batch), expected);
      if (packing == Packing::kNone) {
        EXPECT_EQ(rows.rows(), static_cast<int64_t>(expected.size()));
      }
    }
  }
}

// Best-fit decreasing by its definition, one row after the other: O(n rows).
int64_t rows_by_definition(std::vector<int64_t> lengths, int64_t s) {
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<int64_t> rooms;
  for (const int64_t length : lengths) {
    auto best = rooms.end();
    for (auto room = rooms.begin(); room != rooms.end(); ++room)
      if (*room >= length && (best == rooms.end() || *room < *best)) best = room;
    if (best == rooms.end()) best = rooms.insert(rooms.end(), s);
    *best -= length;
  }
  return static_cast<int64_t>(rooms.size());
}

TEST(BestFit, TakesTheRowsOfItsDefinition) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 100; ++trial) {
    const int64_t s = 8 + static_cast<int64_t>(random() % 100);
    std::vector<int64_t> lengths = random_lengths(random, 1 + random() % 200, s);
    for (int64_t& length : lengths) length = std::max<int64_t>(length, 2);
    EXPECT_EQ(pack(corpus_of(documents_of(lengths)), Packing::kBestFit, s).rows(), rows_by_definition(lengths, s));
  }
}

TEST(BestFit, AWorkedExample) {
  // Of 10 tokens: 9 | 7 3 | 6 2 | 5, and 12 is cut into 10 and 2: the 2 of each kind fill the 6 up.
  const auto corpus = corpus_of(documents_of({3, 7, 12, 2, 6, 5, 9}));
  const PackedRows rows = pack(corpus, Packing::kBestFit, 10);
  EXPECT_EQ(rows.rows(), 5);
  EXPECT_EQ(rows.plan().cut_documents(), 1);
  EXPECT_EQ(rows.statistics().padding, 50 - 44);
  std::multiset<std::vector<int32_t>> found;
  for (int64_t row = 0; row < 5; ++row) {
    std::vector<int32_t> lengths;
    for (const Piece& piece : rows.plan().row(row)) lengths.push_back(piece.length);
    found.insert(lengths);
  }
  EXPECT_EQ(found, (std::multiset<std::vector<int32_t>>{{9}, {7, 3}, {6, 2, 2}, {5}, {10}}));
}

// Row order is drawn: without it the longest documents would open the epoch and every evaluation of a few rows.
TEST(BestFit, RowsStandInADrawnOrder) {
  std::mt19937 random(13);
  const auto corpus = corpus_of(documents_of(random_lengths(random, 400, 64)));
  const auto longest = [&](uint64_t seed) {
    const PackedRows rows = pack(corpus, Packing::kBestFit, 64, seed);
    std::vector<int32_t> firsts;
    for (int64_t row = 0; row < rows.rows(); ++row) firsts.push_back(rows.plan().row(row)[0].length);
    return firsts;
  };
  const std::vector<int32_t> one = longest(1);
  EXPECT_FALSE(std::is_sorted(one.rbegin(), one.rend()));
  EXPECT_EQ(one, longest(1));
  EXPECT_NE(one, longest(2));
}

// Many documents; the quadratic definition would take minutes.
TEST(BestFit, IsFastAndFillsRows) {
  std::mt19937 random(15);
  auto corpus = std::make_shared<Corpus>(256);
  EncodedDocument document;
  for (int i = 0; i < 300'000; ++i) {
    document.ids.assign(2 + random() % 200, 5);
    corpus->append(document);
  }
  corpus->finish();
  const PackedRows rows = pack(corpus, Packing::kBestFit, 512);
  const auto full = static_cast<double>(rows.rows()) * 512;
  EXPECT_LT(static_cast<double>(rows.statistics().padding) / full, 1e-3);
}

TEST(Masked, LabelsStandWhereTheNextTokenIsLearned) {
  std::mt19937 random(17);
  std::vector<EncodedDocument> documents = documents_of(random_lengths(random, 50, 40));
  std::map<int32_t, bool> learned;
  for (EncodedDocument& document : documents)
    for (const int32_t id : document.ids) {
      document.learned.push_back(random() % 2 != 0);
      learned[id] = document.learned.back() != 0;
    }
  for (const Packing packing : {Packing::kTruncate, Packing::kBestFit, Packing::kNone}) {
    const PackedRows rows = pack(corpus_of(documents), packing, 48);
    const Batch batch = whole(rows);
    int64_t labels = 0;
    for (size_t i = 0; i + 1 < batch.segments.size(); ++i)
      for (int32_t at = batch.segments[i]; at < batch.segments[i + 1]; ++at) {
        const auto k = static_cast<size_t>(at);
        const bool last = at + 1 == batch.segments[i + 1];
        const bool wanted = !last && batch.ids[k] != kPadding && learned[batch.ids[k + 1]];
        ASSERT_EQ(batch.labels[k], wanted ? batch.ids[k + 1] : kIgnoredLabel);
        labels += wanted;
      }
    EXPECT_EQ(batch.valid_tokens, labels);
    EXPECT_EQ(rows.statistics().labels, labels);
  }
}

}  // namespace
}  // namespace mantissa
