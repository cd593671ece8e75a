#include "data/documents.h"

namespace mantissa {

Documents read_documents(const std::string& path, const DataConfig& config) {
  Documents documents;
  const Source source = find_source(path, "", config);
  documents.format = source.format;
  const std::unique_ptr<RecordReader> reader =
      open_records(source, {.columns = {config.text_key}, .messages = ""}, config);
  Record record;
  while (!documents.full(config) && reader->next(record)) {
    const std::string& document = record.texts[0];
    if (document.empty()) {
      ++documents.empty;
    } else if (document.size() < static_cast<size_t>(config.min_document_bytes)) {
      ++documents.short_ones;
    } else {
      documents.text += document;
      documents.ends.push_back(documents.text.size());
    }
  }
  reader->finish();
  documents.files = reader->files();
  documents.name = reader->package().name;
  documents.version = reader->package().version;
  return documents;
}

}  // namespace mantissa
