#include "data/ingest.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "base/signal.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChunkBytes = size_t{256} << 10;           // of text, after which a chunk is closed
constexpr size_t kChunkRecords = 1024;                      // likewise
constexpr size_t kWaitingBytes = size_t{64} << 20;          // of text in chunks that are not yet appended
constexpr auto kPatience = std::chrono::milliseconds(100);  // between looks at the stop signal

// Neighbouring records on their way from the reader to the corpus. Buffers are reused.
struct Chunk {
  std::vector<Record> records;
  std::vector<EncodedDocument> documents;  // of records, those left out missing
  size_t count = 0, kept = 0, bytes = 0;
  double share = 0;  // of the source, behind this chunk
  EncodeCounts counts;
  std::exception_ptr error;  // of the record behind `kept`, or of the reader behind the last record
  bool encoded = false;
};

class Pipeline {
 public:
  Pipeline(RecordReader& reader, const DocumentEncoder& encoder, const Tokenizer& tokenizer)
      : reader_(reader), encoder_(encoder), tokenizer_(tokenizer), ring_(2 * static_cast<size_t>(max_threads()) + 2) {
    threads_.emplace_back([this] { read(); });
    for (int t = 0; t < max_threads(); ++t) threads_.emplace_back([this] { encode(); });
  }
  ~Pipeline() { stop(); }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

  // The next chunk in order, or null behind the last one, or when nothing came for a while (`late`).
  const Chunk* next(bool& late) {
    std::unique_lock lock(mutex_);
    late = !changed_.wait_for(lock, kPatience,
                              [&] { return (taken_ < read_ && slot(taken_).encoded) || (ended_ && taken_ == read_); });
    return late || taken_ == read_ ? nullptr : &slot(taken_);
  }
  // To be called when the chunk of next() is done with.
  void release() {
    {
      const std::lock_guard lock(mutex_);
      waiting_ -= slot(taken_++).bytes;
    }
    changed_.notify_all();
  }

 private:
  Chunk& slot(uint64_t number) { return ring_[number % ring_.size()]; }

  void read() {
    bool more = true;
    while (more) {
      Chunk* chunk = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return stop_ || (read_ - taken_ < ring_.size() && (waiting_ < kWaitingBytes || read_ == taken_));
        });
        if (stop_) return;
        chunk = &slot(read_);
      }
      chunk->count = chunk->bytes = 0;
      chunk->error = nullptr;
      chunk->encoded = false;
      try {
        while (more && chunk->count < kChunkRecords && chunk->bytes < kChunkBytes) {
          if (chunk->records.size() == chunk->count) chunk->records.emplace_back();
          Record& record = chunk->records[chunk->count];
          more = reader_.next(record);
          if (!more) break;
          chunk->bytes += record.where.size() + record.text_bytes();
          ++chunk->count;
        }
        chunk->share = reader_.progress();
      } catch (...) {
        chunk->error = std::current_exception();
        more = false;
      }
      {
        const std::lock_guard lock(mutex_);
        waiting_ += chunk->bytes;
        ++read_;
        ended_ = !more;
      }
      changed_.notify_all();
    }
  }

  void encode() {
    Tokenizer::Encoder encoder(tokenizer_);
    for (;;) {
      Chunk* chunk = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || begun_ < read_ || ended_; });
        if (stop_ || begun_ == read_) return;
        chunk = &slot(begun_++);
      }
      chunk->kept = 0;
      chunk->counts = {};
      try {
        for (size_t i = 0; i < chunk->count; ++i) {
          if (chunk->documents.size() == chunk->kept) chunk->documents.emplace_back();
          if (encoder_.encode(encoder, chunk->records[i], chunk->documents[chunk->kept], chunk->counts)) ++chunk->kept;
        }
      } catch (...) {
        chunk->error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        chunk->encoded = true;
      }
      changed_.notify_all();
    }
  }

  RecordReader& reader_;
  const DocumentEncoder& encoder_;
  const Tokenizer& tokenizer_;
  std::vector<Chunk> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t read_ = 0, begun_ = 0, taken_ = 0;  // chunks: read, taken by an encoder, appended
  size_t waiting_ = 0;                         // bytes of text between read_ and taken_
  bool ended_ = false, stop_ = false;
  std::vector<std::thread> threads_;
};

// The records of a chunk up to the last one that is wanted, counted as if no more had been read.
void append_first(const Chunk& chunk, const DocumentEncoder& encoder, const Tokenizer& tokenizer, int64_t wanted,
                  Corpus& corpus, EncodeCounts& counts) {
  Tokenizer::Encoder own(tokenizer);
  EncodedDocument document;
  for (size_t i = 0; i < chunk.count && corpus.documents() < wanted; ++i)
    if (encoder.encode(own, chunk.records[i], document, counts)) corpus.append(document);
}

}  // namespace

EncodeCounts ingest(RecordReader& reader, const DocumentEncoder& encoder, const Tokenizer& tokenizer,
                    const IngestOptions& options, Corpus& corpus) {
  EncodeCounts counts;
  const int64_t before = corpus.documents();
  const int64_t wanted = options.max_documents > 0 ? before + options.max_documents : INT64_MAX;
  auto told = Clock::now();
  double share = 0;  // of the source that was read; a record may take long (a file of empty lines)
  {
    Pipeline pipeline(reader, encoder, tokenizer);
    for (bool late = false; corpus.documents() < wanted;) {
      const Chunk* chunk = pipeline.next(late);
      throw_if_stopped("reading " + options.what);
      if (chunk == nullptr && !late) break;
      share = std::max(share, late ? reader.progress() : chunk->share);
      if (options.progress && Clock::now() - told > kProgressInterval) {
        told = Clock::now();
        options.progress({options.what, share, counts.documents, counts.text_bytes});
      }
      if (chunk == nullptr) continue;
      if (corpus.documents() + static_cast<int64_t>(chunk->kept) >= wanted) {
        append_first(*chunk, encoder, tokenizer, wanted, corpus, counts);
      } else {
        for (size_t i = 0; i < chunk->kept; ++i) corpus.append(chunk->documents[i]);
        counts += chunk->counts;
        if (chunk->error) std::rethrow_exception(chunk->error);
      }
      pipeline.release();
    }
  }
  return counts;
}

}  // namespace mantissa
