#include "data/mds/row_layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/token_files/row_fill.h"
#include "data/token_files/token_file.h"

namespace mantissa::mds {
namespace {

// A raw array, as an encoding of the user's own writes it.
bool raw_uint32(const Folder& folder, int column) {
  if (column < 0) return false;
  const Column& spec = folder.columns()[static_cast<size_t>(column)];
  return spec.kind == Kind::kRawArray && spec.element == Element::kU32;
}

// The column must hold whole numbers; bytes only where a dtype is known for them.
void expect_numbers(const Folder& folder, int column, bool bytes) {
  if (column < 0) return;
  const Column& spec = folder.columns()[static_cast<size_t>(column)];
  const bool array = spec.kind == Kind::kArray || spec.kind == Kind::kRawArray;
  if ((array && !(spec.typed && is_float(spec.element))) || (bytes && spec.kind == Kind::kBytes)) return;
  fail(Exit::kInput, "{}: column \"{}\" is {}, expected an array of whole numbers{}", folder.index().path, spec.name,
       printable(spec.encoding), bytes ? " or bytes" : "");
}

}  // namespace

RowLayout::RowLayout(const Folder& folder, const TokenOptions& options)
    : bytes_element_(token_element(options.token_dtype, Element::kI64)), eos_(options.eos) {
  ids_ = folder.find("tokens");
  if (ids_ < 0) {
    ids_ = folder.find("input_ids");
    hugging_face_ = ids_ >= 0;
  }
  if (ids_ < 0) ids_ = folder.require("tokens");
  const Column& ids = folder.columns()[static_cast<size_t>(ids_)];
  ids_element_ = ids.kind == Kind::kBytes ? bytes_element_ : ids.typed ? ids.element : Element::kI64;
  lengths_ = folder.find("document_lengths");
  labels_ = folder.find("labels");
  const int mask = folder.find("attention_mask"), positions = folder.find("position_ids");
  if (lengths_ < 0 && hugging_face_ && raw_uint32(folder, ids_) && raw_uint32(folder, mask) &&
      raw_uint32(folder, positions))
    lengths_ = mask;
  else
    mask_ = mask;
  for (const int column : {ids_, labels_}) expect_numbers(folder, column, true);
  for (const int column : {lengths_, mask_}) expect_numbers(folder, column, false);
  if (ids.kind != Kind::kBytes && ids.typed && bytes_element_ != ids.element && options.token_dtype != "auto")
    fail(Exit::kUsage, "data.token_dtype: {}, but column \"{}\" of {} is {}; leave it at auto", options.token_dtype,
         ids.name, folder.index().path, printable(ids.encoding));
  if (lengths_ >= 0 && eos_ >= 0)
    notes_.push_back("data.eos_token does not split rows: column document_lengths says where documents end");
  if (positions >= 0) notes_.push_back("column position_ids is not read: positions begin at 0 in each segment");
  if (lengths_ >= 0 && mask_ >= 0) {
    notes_.push_back("column attention_mask is not read: document_lengths says where documents end");
    mask_ = -1;
  }
}

const char* RowLayout::segments_by() const { return lengths_ >= 0 ? "document_lengths" : eos_ >= 0 ? "eos" : "rows"; }

Elements RowLayout::values(const Shard& shard, int64_t sample, int column) const {
  if (shard.columns()[static_cast<size_t>(column)].kind == Kind::kBytes) {
    const std::span<const std::byte> bytes = shard.bytes(sample, column);
    const auto width = static_cast<size_t>(bytes_of(bytes_element_));
    if (bytes.size() % width != 0)
      fail(Exit::kInput, "{}: {} bytes are no whole number of {} (data.token_dtype)", shard.where(sample, column),
           bytes.size(), name_of(bytes_element_));
    return {bytes.data(), static_cast<int64_t>(bytes.size() / width), bytes_element_};
  }
  const Array array = shard.array(sample, column);
  if (array.rank != 1)
    fail(Exit::kInput, "{}: an array of {} dimensions, expected 1", shard.where(sample, column), array.rank);
  if (is_float(array.values.type))
    fail(Exit::kInput, "{}: an array of {}, expected whole numbers", shard.where(sample, column),
         name_of(array.values.type));
  return array.values;
}

Elements RowLayout::values_of(const Shard& shard, int64_t sample, int column, int64_t count) const {
  const Elements found = values(shard, sample, column);
  if (found.count != count)
    fail(Exit::kInput, "{}: {} values, expected {}", shard.where(sample, column), found.count, count);
  return found;
}

int64_t RowLayout::length(const Shard& shard, int64_t sample) const { return values(shard, sample, ids_).count; }

bool RowLayout::learn_labels(const Shard& shard, int32_t most) {
  if (labels_ < 0 || !hugging_face_) return true;
  bool own = true, next = true, seen = false;
  for (int64_t sample = 0; sample < std::min<int64_t>(shard.samples(), most); ++sample) {
    const Elements ids = values(shard, sample, ids_), labels = values_of(shard, sample, labels_, ids.count);
    for (int64_t i = 0; i < ids.count; ++i) {
      const int64_t label = labels.at(i);
      if (label == kIgnoredLabel) continue;
      seen = true;
      own = own && label == ids.at(i);
      next = next && i + 1 < ids.count && label == ids.at(i + 1);
    }
  }
  if (!seen) return false;
  repeated_ = own;
  if (own)
    notes_.push_back("column labels repeats input_ids: a label is predicted from the position before it");
  else if (!next)
    notes_.push_back("column labels holds neither input_ids nor the ids that follow: taken as it stands");
  return true;
}

int64_t RowLayout::append(const Shard& shard, int64_t sample, int64_t sequence_length, int64_t vocab_size,
                          Batch& batch) const {
  const Elements ids = values_of(shard, sample, ids_, sequence_length);
  RowFill fill(batch, sequence_length);
  if (const int64_t bad = copy_ids(ids, 0, fill.ids(), vocab_size); bad >= 0)
    fail(Exit::kInput, "{}: position {} is {}, outside the vocabulary of {}", shard.where(sample, ids_), bad,
         ids.at(bad), vocab_size);

  int64_t padding = 0;
  if (lengths_ >= 0) {
    const Elements lengths = values(shard, sample, lengths_);
    for (int64_t i = 0; i < lengths.count; ++i) {
      const int64_t length = lengths.at(i);
      if (length < 1 || length > sequence_length - fill.filled())
        fail(Exit::kInput, "{}: document {} has a length of {}, expected 1 to {}", shard.where(sample, lengths_), i,
             length, sequence_length - fill.filled());
      fill.segment(fill.filled() + length);
    }
    if (fill.filled() != sequence_length)
      fail(Exit::kInput, "{}: the documents have {} tokens, the row {}", shard.where(sample, lengths_), fill.filled(),
           sequence_length);
  } else {
    int64_t real = sequence_length;
    if (mask_ >= 0) {
      const Elements mask = values_of(shard, sample, mask_, sequence_length);
      real = 0;
      while (real < sequence_length && mask.at(real) == 1) ++real;
      for (int64_t i = real; i < sequence_length; ++i)
        if (mask.at(i) != 0)
          fail(Exit::kInput, "{}: {} at position {}, expected ones, then zeros", shard.where(sample, mask_), mask.at(i),
               i);
    }
    if (real > 0) fill.split(eos_, real);
    padding = sequence_length - real;
    if (padding > 0) {
      fill.segment(sequence_length);
      std::fill_n(fill.labels().end() - padding, padding, kIgnoredLabel);
    }
  }

  if (labels_ >= 0) {
    const Elements labels = values_of(shard, sample, labels_, sequence_length);
    const std::span<int32_t> row = fill.labels();
    const auto kept = row.first(static_cast<size_t>(sequence_length - padding));
    if (const int64_t bad = copy_ids(labels, 0, kept, vocab_size, kIgnoredLabel); bad >= 0)
      fail(Exit::kInput, "{}: position {} is {}, expected -100 or an id below {}", shard.where(sample, labels_), bad,
           labels.at(bad), vocab_size);
    if (repeated_) fill.shift_labels();
  }
  fill.finish();
  return padding;
}

}  // namespace mantissa::mds
