// Text to tokens and back: byte-level BPE and SPM, made from a model file's vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "manifest/vocabulary.h"

namespace bellhop::text {

struct EncodeOptions {
  bool add_special = true;    // add BOS/EOS where the vocabulary says so
  bool parse_special = true;  // recognise control tokens in the text
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // kUnsupported names the tokenizer model or pre-tokenizer and what is supported; kCorrupt names the bad entry.
  // The vocabulary must outlive the tokenizer.
  static Result<std::unique_ptr<Tokenizer>> Create(const manifest::Vocabulary& vocabulary);

  // Thread-safe. Input need not be valid UTF-8: stray bytes become byte tokens.
  virtual Result<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const = 0;

  // The bytes that a token stands for inside running text (not necessarily valid UTF-8). Out of range: empty.
  // Control, unknown and unused tokens give their text when `special` is true, nothing otherwise.
  virtual std::string TokenBytes(TokenId id, bool special) const = 0;

  // Concatenation with the vocabulary's rules (SPM strips the one leading space).
  virtual std::string Decode(HostSpan<const TokenId> ids, bool special) const = 0;

  virtual int32_t size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool strips_leading_space() const = 0;  // SPM: the first piece of a decoded text loses one space
  virtual bool IsControl(TokenId id) const = 0;
  virtual bool IsEndOfGeneration(TokenId id) const = 0;
  virtual std::vector<TokenId> EndOfGenerationSet() const = 0;
  virtual std::optional<TokenId> TokenFromText(std::string_view text) const = 0;
};

// Turns a stream of tokens into a stream of valid UTF-8: bytes of an unfinished character wait for their rest; bytes
// that can never become valid come out as U+FFFD. The joined stream equals the non-streamed text.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool special);
  // Text that is complete after this token (may be empty).
  std::string Push(TokenId id);
  // What is left at the end of generation.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  bool special_;
  bool at_start_ = true;
  std::string pending_;
};

// Replaces every maximal invalid UTF-8 subsequence with U+FFFD.
std::string SanitizeUtf8(std::string_view bytes);

}  // namespace bellhop::text
