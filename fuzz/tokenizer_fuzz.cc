// First byte: the tokenizer; second: options; the rest: text, token ids, or edits of the vocabulary.
// Holds for any input: nothing crashes, byte-level BPE gives every text back, SPM every text that its space rules do
// not touch, and the joined stream equals the sanitized decoding.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_test_vocab.h"

namespace {

using bellhop::TokenId;
using bellhop::manifest::TokenType;
using bellhop::manifest::Vocabulary;
using bellhop::text::EncodeOptions;
using bellhop::text::Tokenizer;

struct Fixture {
  Vocabulary vocabulary;
  std::unique_ptr<Tokenizer> tokenizer;
};

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

// One per pre-tokenizer name, then SPM with and without byte tokens.
const std::vector<std::unique_ptr<Fixture>>& Fixtures() {
  static const auto* fixtures = [] {
    std::vector<Vocabulary> vocabularies;
    for (const std::string& name : bellhop::text::PreTokenizerNames()) {
      vocabularies.push_back(bellhop::text::SmallBpeVocabulary(name));
    }
    vocabularies.push_back(bellhop::text::SmallSpmVocabulary());
    vocabularies.push_back(bellhop::text::SmallSpmVocabulary(false));
    auto* out = new std::vector<std::unique_ptr<Fixture>>();
    for (Vocabulary& vocabulary : vocabularies) {
      auto fixture = std::make_unique<Fixture>();
      fixture->vocabulary = std::move(vocabulary);
      auto made = Tokenizer::Create(fixture->vocabulary);
      Require(made.ok());
      fixture->tokenizer = std::move(made).value();
      out->push_back(std::move(fixture));
    }
    return out;
  }();
  return *fixtures;
}

void CheckStream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool special) {
  bellhop::text::StreamDecoder decoder(tokenizer, special);
  std::string streamed;
  for (const TokenId id : ids) {
    const std::string part = decoder.Push(id);
    Require(bellhop::text::SanitizeUtf8(part) == part);
    streamed += part;
  }
  streamed += decoder.Flush();
  Require(streamed == bellhop::text::SanitizeUtf8(tokenizer.Decode(ids, special)));
}

void CheckText(const Fixture& fixture, std::string_view text, uint8_t flags) {
  const EncodeOptions options{.add_special = false, .parse_special = (flags & 1) != 0};
  const auto ids = fixture.tokenizer->Encode(text, options);
  Require(ids.ok());
  const std::string decoded = fixture.tokenizer->Decode(*ids, true);
  const bool bpe = fixture.vocabulary.model == "gpt2";
  const bool has_bytes = fixture.tokenizer->TokenFromText("<0x00>").has_value();
  const bool plain = text.find('<') == std::string_view::npos && text.find("\xE2\x96\x81") == std::string_view::npos;
  if (bpe || (has_bytes && plain)) Require(decoded == text);
  CheckStream(*fixture.tokenizer, *ids, (flags & 2) != 0);
}

void CheckIds(const Tokenizer& tokenizer, std::string_view bytes, uint8_t flags) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ids.push_back((static_cast<uint8_t>(bytes[i]) | (bytes[i + 1] & 3) << 8) - 2);
  }
  CheckStream(tokenizer, ids, (flags & 2) != 0);
}

// Edits: position (two bytes), what, text up to a newline.
void CheckEditedVocabulary(Vocabulary vocabulary, std::string_view bytes) {
  while (bytes.size() > 3) {
    const size_t at = static_cast<uint8_t>(bytes[0]) | static_cast<size_t>(static_cast<uint8_t>(bytes[1])) << 8;
    const int what = static_cast<uint8_t>(bytes[2]) % 8;
    bytes.remove_prefix(3);
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string text(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    switch (what) {
      case 0: vocabulary.tokens[at % vocabulary.tokens.size()] = text; break;
      case 1: vocabulary.types[at % vocabulary.types.size()] = static_cast<TokenType>(text.size() % 8); break;
      case 2: vocabulary.merges.push_back(text); break;
      case 3: vocabulary.eos = static_cast<TokenId>(at) - 100; break;
      case 4: vocabulary.unknown = static_cast<TokenId>(at) - 100; break;
      case 5:
        if (!vocabulary.scores.empty()) vocabulary.scores.resize(at % 512);
        break;
      case 6: vocabulary.add_bos = vocabulary.add_eos = true; break;
      case 7: vocabulary.add_space_prefix = at % 2 == 0; break;
    }
  }
  const auto made = Tokenizer::Create(vocabulary);
  if (!made.ok()) {
    Require(!made.status().message().empty());
    return;
  }
  const auto ids = (*made)->Encode("the thing <tool>\xFF in \xE6\x97\xA5\xE6\x9C\xAC 123<|end|>", {});
  if (ids.ok()) CheckStream(**made, *ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto& fixtures = Fixtures();
  const Fixture& fixture = *fixtures[data[0] % fixtures.size()];
  const uint8_t flags = data[1];
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  switch (flags >> 6) {
    case 0:
    case 1: CheckText(fixture, rest, flags); break;
    case 2: CheckIds(*fixture.tokenizer, rest, flags); break;
    case 3: CheckEditedVocabulary(fixture.vocabulary, rest); break;
  }
  return 0;
}
