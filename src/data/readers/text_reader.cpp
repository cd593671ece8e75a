#include "base/error.h"
#include "base/text.h"
#include "data/readers/lines.h"
#include "data/readers/readers.h"
#include "data/tokenizer/utf8.h"

namespace mantissa {
namespace {

class TextRecords final : public FileRecords {
 public:
  TextRecords(const std::string& path, const DataConfig& config)
      : lines_(path, kMaxLineBytes, "; is this text?"),
        by_line_(config.document_separator == "line"),
        whole_(config.document_separator == "none"),
        bytes_(config.tokenizer == "bytes") {}

  bool next(Record& record) override {
    record.texts.resize(1);
    record.turns.clear();
    std::string& document = record.texts[0];
    document.clear();
    int64_t first_line = lines_.number() + 1;
    std::string_view line;
    while (lines_.next(line)) {
      if (line.empty() && document.empty() && !whole_) {
        first_line = lines_.number() + 1;
        continue;
      }
      if (!bytes_) check_line(line);
      if (line.ends_with('\r')) line.remove_suffix(1);
      const bool parts = by_line_ || (!whole_ && trim(line).empty());
      if (!parts || by_line_) {
        if (document.size() + line.size() >= kMaxDocumentBytes)
          fail(Exit::kInput, "{}:{}: a document of more than {} MiB (data.document_separator: {})",
               lines_.input().path(), first_line, kMaxDocumentBytes >> 20,
               whole_ ? "none; blank-line and line part it" : "blank-line; line parts it at every line");
        document += line;
        document += '\n';
      }
      if (!parts) continue;
      if (close(record, first_line)) return true;
      first_line = lines_.number() + 1;
    }
    return close(record, first_line);
  }

  double share() const override { return lines_.input().share(); }
  void finish(std::vector<SourceFile>& files) override { files.push_back(lines_.input().source()); }

 private:
  void check_line(std::string_view line) {
    const size_t good = tokenizer::find_ill_formed(line);
    if (good == line.size()) return;
    fail(Exit::kInput, "{}:{}: not UTF-8 at byte {} of the {}: {}", lines_.input().path(), lines_.number(),
         lines_.offset() + good, lines_.input().packed() ? "unpacked text" : "file", printable(line.substr(good, 4)));
  }

  // Takes the spaces around the document off; false when nothing is left of it.
  bool close(Record& record, int64_t first_line) {
    std::string& document = record.texts[0];
    const std::string_view text = trim(document);
    if (text.empty()) {
      document.clear();
      return false;
    }
    const size_t begin = static_cast<size_t>(text.data() - document.data());
    document.resize(begin + text.size());
    document.erase(0, begin);
    set_where(record.where, lines_.input().path(), first_line);
    check_no_zero(document, record.where);
    return true;
  }

  LineReader lines_;
  bool by_line_, whole_, bytes_;
};

}  // namespace

std::unique_ptr<FileRecords> open_text(const std::string& path, const DataConfig& config) {
  return std::make_unique<TextRecords>(path, config);
}

}  // namespace mantissa
