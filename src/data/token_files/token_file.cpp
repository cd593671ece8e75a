#include "data/token_files/token_file.h"

#include <cstring>

#include "base/error.h"
#include "base/foreign.h"
#include "base/mapped_range.h"
#include "base/text.h"

namespace mantissa {
namespace {

constexpr size_t kLlmcHeader = 256 * 4;
constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr size_t kMegatronHeader = 9 + 8 + 1 + 8 + 8;

struct LlmcRow {
  int32_t magic, version;
  Element element;
  std::string_view what;  // of files without a stream of tokens
};
// https://github.com/karpathy/llm.c: dev/data/data_common.py, dev/data/hellaswag.py, train_gpt2.py.
constexpr LlmcRow kLlmc[] = {
    {20240520, 1, Element::kU16, ""},
    {20240801, 7, Element::kU32, ""},
    {20240522, 1, Element::kU16, "an evaluation set (multiple choice)"},
    {20240328, 1, Element::kU16, "a tokenizer"},
    {20240328, 2, Element::kU16, "a tokenizer"},
    {20240326, 0, Element::kU16, "a checkpoint"},
};

// Codes of Megatron-LM, megatron/core/datasets/indexed_dataset.py.
constexpr struct {
  uint8_t code;
  Element element;
} kMegatronTypes[] = {{1, Element::kU8},  {2, Element::kI8},  {3, Element::kI16}, {4, Element::kI32},
                      {5, Element::kI64}, {6, Element::kF64}, {7, Element::kF32}, {8, Element::kU16}};

// What a headerless file seems to be instead; "" when nothing is recognised.
std::string_view recognise(std::string_view head) {
  if (head.size() >= 4)
    for (const LlmcRow& row : kLlmc)
      if (load_as<int32_t>(reinterpret_cast<const std::byte*>(head.data())) == row.magic)
        return row.what.empty() ? "a file of llm.c (data.format: llmc)" : row.what;
  if (head.starts_with(kMegatronMagic)) return "a Megatron index (data.format: megatron)";
  const Foreign kind = recognise_foreign(head);
  // Two bytes do not tell a pickle or a gzip file from ids; the four of a gzip header do.
  const bool gzip = head.size() > 3 && head[2] == 8 && static_cast<uint8_t>(head[3]) < 32;
  if (kind != Foreign::kPickle && (kind != Foreign::kGzip || gzip)) return foreign_name(kind);
  return {};
}

void set_tokens(TokenFile& file, Element element, size_t header) {
  const std::span<const std::byte> body = file.data.bytes().subspan(header);
  const auto width = static_cast<size_t>(bytes_of(element));
  if (body.size() % width != 0)
    fail(Exit::kInput, "{}: {} bytes of ids are no whole number of {} (data.token_dtype)", file.name, body.size(),
         name_of(element));
  if (body.empty()) fail(Exit::kInput, "{}: holds no tokens", file.name);
  file.tokens = {body.data(), static_cast<int64_t>(body.size() / width), element};
}

void agree(const TokenFile& file, const TokenOptions& options) {
  const Element found = file.tokens.type;
  if (const Element asked = token_element(options.token_dtype, found); asked != found)
    fail(Exit::kUsage, "data.token_dtype: {}, but {} holds {} by its header; leave it at auto", options.token_dtype,
         file.name, name_of(found));
}

void open_nanogpt(TokenFile& file, const TokenOptions& options) {
  const std::string_view text = file.data.text();
  if (const std::string_view kind = recognise(text); !kind.empty())
    fail(Exit::kInput, "{}: expected ids without a header (data.format: nanogpt), found {}", file.name, kind);
  set_tokens(file, token_element(options.token_dtype, Element::kU16), 0);
}

void open_llmc(TokenFile& file, const TokenOptions& options) {
  const std::span<const std::byte> bytes = file.data.bytes();
  if (bytes.size() < kLlmcHeader)
    fail(Exit::kInput, "{}: has {} bytes, the header of llm.c takes {}", file.name, bytes.size(), kLlmcHeader);
  const auto magic = load_as<int32_t>(bytes.data()), version = load_as<int32_t>(bytes.data() + 4);
  const LlmcRow* found = nullptr;
  for (const LlmcRow& row : kLlmc) {
    if (row.magic != magic) continue;
    if (!row.what.empty()) fail(Exit::kInput, "{}: is {} of llm.c, expected a stream of tokens", file.name, row.what);
    if (row.version != version)
      fail(Exit::kInput, "{}: version {} behind magic {}, expected {}", file.name, version, magic, row.version);
    found = &row;
  }
  if (found == nullptr) fail(Exit::kInput, "{}: magic {}, expected 20240520 or 20240801 (llm.c)", file.name, magic);
  const int64_t tokens = load_as<int32_t>(bytes.data() + 8);
  set_tokens(file, found->element, kLlmcHeader);
  if (tokens != file.tokens.count)
    fail(Exit::kInput, "{}: the header says {} tokens, the file holds {}", file.name, tokens, file.tokens.count);
  agree(file, options);
}

// The lists of the index: lengths, offsets and documents agree with each other and with the .bin.
void check_megatron_lists(const TokenFile& file, const std::byte* lengths) {
  const std::string& name = file.index.path();
  const int64_t width = bytes_of(file.tokens.type);
  int64_t expected = 0;
  for (int64_t i = 0; i < file.sequences; ++i) {
    const auto length = load_as<int32_t>(lengths + 4 * i);
    const auto pointer = load_as<int64_t>(file.pointers + 8 * i);
    if (length < 0) fail(Exit::kInput, "{}: sequence {} has a length of {}", name, i, length);
    if (pointer != expected)
      fail(Exit::kInput, "{}: sequence {} begins at byte {}, expected {}: sequences lie end to end", name, i, pointer,
           expected);
    expected += length * width;
    if (expected > file.tokens.count * width)
      fail(Exit::kInput, "{}: sequence {} ends at byte {}, {} at {}", name, i, expected, file.name,
           file.tokens.count * width);
  }
  if (expected != file.tokens.count * width)
    fail(Exit::kInput, "{}: the sequences end at byte {}, {} at {}", name, expected, file.name,
         file.tokens.count * width);
  int64_t last = 0;
  for (int64_t i = 0; i <= file.documents; ++i) {
    const auto sequence = load_as<int64_t>(file.document_indices + 8 * i);
    const bool ok = i == 0 ? sequence == 0 : sequence >= last && sequence <= file.sequences;
    if (!ok)
      fail(Exit::kInput, "{}: document {} begins at sequence {}, expected {}", name, i, sequence,
           i == 0 ? "0" : fmt::format("{} to {}", last, file.sequences));
    last = sequence;
  }
  if (last != file.sequences)
    fail(Exit::kInput, "{}: the documents end at sequence {} of {}", name, last, file.sequences);
}

void open_megatron(TokenFile& file, const TokenOptions& options) {
  const std::span<const std::byte> bytes = file.index.bytes();
  const std::string& name = file.index.path();
  if (!file.index.text().starts_with(kMegatronMagic))
    fail(Exit::kInput, "{}: does not begin with MMIDIDX, expected an index of Megatron-LM", name);
  if (bytes.size() < kMegatronHeader)
    fail(Exit::kInput, "{}: has {} bytes, its header takes {}", name, bytes.size(), kMegatronHeader);
  if (const auto version = load_as<uint64_t>(bytes.data() + 9); version != 1)
    fail(Exit::kInput, "{}: version {}, expected 1", name, version);
  const auto code = static_cast<uint8_t>(bytes[17]);
  Element element = Element::kF64;
  bool known = false;
  for (const auto& row : kMegatronTypes)
    if (row.code == code) element = row.element, known = true;
  if (!known || is_float(element))
    fail(Exit::kInput, "{}: dtype code {}, expected whole numbers (1 to 5, 8)", name, code);
  const auto sequences = load_as<uint64_t>(bytes.data() + 18), documents = load_as<uint64_t>(bytes.data() + 26);
  // 12 bytes a sequence, 8 a document and perhaps a mode byte a sequence fill the file.
  const uint64_t rest = bytes.size() - kMegatronHeader;
  if (sequences > rest / 12 || documents > rest / 8)
    fail(Exit::kInput, "{}: {} sequences and {} documents do not fit into {} bytes", name, sequences, documents,
         bytes.size());
  const uint64_t lists = 12 * sequences + 8 * documents;
  if (lists != rest && lists + sequences != rest)
    fail(Exit::kInput, "{}: {} sequences and {} documents take {} bytes, the file has {}", name, sequences, documents,
         kMegatronHeader + lists, bytes.size());
  if (sequences == 0 || documents < 2)
    fail(Exit::kInput, "{}: {} sequences and {} document offsets, expected at least 1 and 2", name, sequences,
         documents);
  set_tokens(file, element, 0);
  file.sequences = static_cast<int64_t>(sequences);
  file.documents = static_cast<int64_t>(documents) - 1;
  const std::byte* lengths = bytes.data() + kMegatronHeader;
  file.pointers = lengths + 4 * sequences;
  file.document_indices = file.pointers + 8 * sequences;
  check_megatron_lists(file, lengths);
  agree(file, options);
}

}  // namespace

int64_t TokenFile::document_begin(int64_t document) const {
  const auto sequence = load_as<int64_t>(document_indices + 8 * document);
  return sequence == sequences ? tokens.count : load_as<int64_t>(pointers + 8 * sequence) / bytes_of(tokens.type);
}

Element token_element(const std::string& token_dtype, Element automatic) {
  if (token_dtype == "auto") return automatic;
  Element element;
  if (!find_element(token_dtype, element) || is_float(element))
    fail(Exit::kUsage, "data.token_dtype: \"{}\", expected auto, uint16, int32, uint32 or int64",
         printable(token_dtype));
  return element;
}

TokenFile open_token_file(const std::string& path, const std::string& format, const TokenOptions& options) {
  TokenFile file;
  const bool megatron = format == "megatron";
  const bool bare = path.ends_with(".bin") || path.ends_with(".idx");
  const std::string stem = bare ? path.substr(0, path.size() - 4) : path;
  file.name = megatron ? stem + ".bin" : path;
  file.data = MappedFile::open(file.name);
  file.paths = {file.name};
  const auto header = [] { return "its header"; };
  if (megatron) {
    file.paths.push_back(stem + ".idx");
    file.index = MappedFile::open(stem + ".idx");
    read_mapped(
        file.index, [&] { open_megatron(file, options); }, header);
  } else if (format == "llmc") {
    read_mapped(
        file.data, [&] { open_llmc(file, options); }, header);
  } else {
    check(format == "nanogpt", "format {} of token files", format);
    read_mapped(
        file.data, [&] { open_nanogpt(file, options); }, header);
  }
  return file;
}

}  // namespace mantissa
