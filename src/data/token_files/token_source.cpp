#include "data/token_files/token_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/mapped_range.h"
#include "base/sha256.h"

namespace mantissa {
namespace {

constexpr uint64_t kWholeBytes = uint64_t{256} << 20;
constexpr uint64_t kBlocks = 16, kBlockBytes = uint64_t{256} << 10;

std::string sampled_hash(const MappedFile& file) {
  const uint64_t size = file.bytes().size();
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&size, 1)));
  const uint64_t last = size > kBlockBytes ? size - kBlockBytes : 0;
  for (uint64_t i = 0; i < kBlocks; ++i)
    hash.update(file.bytes().subspan(last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1),
                                     std::min(size, kBlockBytes)));
  return "sampled:" + hash.hex();
}

}  // namespace

void check_eos(int32_t eos, int64_t vocab_size) {
  if (eos >= vocab_size) fail(Exit::kUsage, "data.eos_token: id {} is outside the vocabulary of {}", eos, vocab_size);
}

std::string missing_eos(int32_t eos, const RowSource& rows) {
  const RowStatistics& statistics = rows.statistics();
  if (statistics.segments > rows.rows()) return "";
  return fmt::format("no EOS {} in {} rows{}: each is one segment", eos, rows.rows(),
                     statistics.sampled ? ", by a sample" : "");
}

std::vector<SourceFile> fingerprint(const std::vector<std::string>& paths) {
  uint64_t total = 0;
  for (const std::string& path : paths) total += file_size(path);
  std::vector<SourceFile> files;
  for (const std::string& path : paths) {
    const MappedFile file = MappedFile::open(path);
    const std::string hash = read_mapped(
        file, [&] { return total > kWholeBytes ? sampled_hash(file) : sha256(file.text()); },
        [] { return "its hash"; });
    files.push_back({path, file.bytes().size(), hash});
  }
  return files;
}

}  // namespace mantissa
