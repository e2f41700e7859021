// Cuts text into the pieces that byte-level BPE merges within. Which cuts is a property of the vocabulary
// ("tokenizer.ggml.pre"); the names and regexes are in pretokenizer_patterns.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/pretokenizer_regex.h"

namespace bellhop::text {

// Half-open byte range of a text.
struct TextPiece {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const TextPiece&, const TextPiece&) = default;
};

// What a pre-tokenizer name stands for.
struct PreTokenizerSpec {
  std::vector<std::string> patterns;  // applied in order, each to every piece that the ones before it left
  bool ignore_merges = false;         // a piece that is a token as a whole is not merged
  bool adds_bos = false;              // when the file does not say
};

// kUnsupported lists the names there are. Empty and "default": the default set.
Result<PreTokenizerSpec> FindPreTokenizer(std::string_view name);

// Every supported name, aliases included, in alphabetical order.
std::vector<std::string> PreTokenizerNames();

// Immutable; Split is thread-safe.
class PreTokenizer {
 public:
  static Result<PreTokenizer> Create(const PreTokenizerSpec& spec, bool allow_jit = true);

  // Cuts `text` (valid UTF-8) into `pieces`, in order, without gaps; none is empty.
  // Replaces the contents of `pieces`. kInvalidArgument: the text needs too many steps.
  Status Split(std::string_view text, RegexScratch* scratch, std::vector<TextPiece>* pieces) const;

 private:
  std::vector<Regex> regexes_;
};

}  // namespace bellhop::text
