// Text to token ids and back, with the ids of Hugging Face `tokenizers` for byte-level BPE (docs/tokenizers.md).
//
//   const Tokenizer tokenizer = Tokenizer::open("/models/Qwen3-1.7B-Base");
//   Tokenizer::Encoder encoder(tokenizer);                // one a thread
//   encoder.encode(text, SpecialTokens::kAdd, ids);       // appends
//   tokenizer.decode(ids);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

// Whether the tokens of the file's post-processor (Llama's BOS) are put around the text.
enum class SpecialTokens : uint8_t { kAdd, kLeaveOut };

class Tokenizer {
 public:
  static constexpr std::string_view kBytes = "bytes";

  // A token is a byte, the vocabulary 256, byte 0 the separator.
  static Tokenizer bytes();
  // "bytes", a folder with tokenizer.json (and perhaps tokenizer_config.json), or the tokenizer.json itself.
  // Exit::kInput names what is missing, malformed or not supported: only byte-level BPE with the pre-tokenizer patterns
  // of GPT-2, Llama 3 and Qwen, matched in linear time.
  static Tokenizer open(const std::string& spec);
  static Tokenizer from_json(std::string_view json, const std::string& name);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  bool is_bytes() const;
  const std::string& name() const;    // as given to open()
  const std::string& folder() const;  // that holds tokenizer.json; "" for bytes
  const std::string& sha256() const;  // of tokenizer.json; "" for bytes
  int64_t vocab_size() const;         // largest id + 1
  // "" or how many bytes have no token and what stands for them, as in Hugging Face: nothing, or unk_token.
  std::string unspelled() const;

  // Ids, -1 when there is none: of a token by its content (added tokens) or by its byte-level spelling (vocabulary); of
  // bytes by the byte itself.
  int32_t find(std::string_view token) const;
  // What tokenizer_config.json names; bytes: eos 0, the others -1.
  int32_t bos() const;
  int32_t eos() const;
  int32_t pad() const;

  bool known(int32_t id) const;
  bool special(int32_t id) const;               // an added token with special = true
  std::string_view bytes_of(int32_t id) const;  // the bytes a token stands for; Exit::kInput for an unknown id
  // The bytes of `ids` end to end, ill-formed UTF-8 replaced by U+FFFD as Hugging Face does; skip_special leaves
  // special tokens out. Ids that no token has are left out.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // Scratch and a cache of words; not shared between threads.
  class Encoder {
   public:
    explicit Encoder(const Tokenizer& tokenizer);
    ~Encoder();
    Encoder(Encoder&&) noexcept;
    // Appends the ids of `text`; added tokens inside the text are recognised, as in Hugging Face. Exit::kInput for
    // ill-formed UTF-8 (not with bytes), naming the byte.
    void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace mantissa
