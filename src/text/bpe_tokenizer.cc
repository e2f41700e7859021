#include "text/bpe_tokenizer.h"

#include <utility>

#include "text/unicode.h"

namespace bellhop::text {

struct BpeTokenizer::State final : EncodeState {
  explicit State(RegexScratch scratch) : regex(std::move(scratch)) {}

  RegexScratch regex;
  BpeScratch merge;
  std::vector<TextPiece> pieces;
  std::string visible;
};

BpeTokenizer::BpeTokenizer(TokenTable table, PreTokenizer pre_tokenizer, BpeMerges merges, bool ignore_merges)
    : TokenizerBase(std::move(table)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      merges_(std::move(merges)),
      ignore_merges_(ignore_merges) {}

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(const manifest::Vocabulary& vocabulary) {
  BELLHOP_TRY_ASSIGN(const PreTokenizerSpec spec, FindPreTokenizer(vocabulary.pre));
  BELLHOP_TRY_ASSIGN(TokenTable table, TokenTable::Create(vocabulary, {.add_bos = spec.adds_bos}));
  BELLHOP_TRY_ASSIGN(BpeMerges merges, BpeMerges::Create(table));
  BELLHOP_TRY_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec));
  return std::unique_ptr<Tokenizer>(
      new BpeTokenizer(std::move(table), std::move(pre_tokenizer), std::move(merges), spec.ignore_merges));
}

Result<std::unique_ptr<TokenizerBase::EncodeState>> BpeTokenizer::NewState() const {
  BELLHOP_TRY_ASSIGN(RegexScratch scratch, RegexScratch::Create());
  return std::unique_ptr<EncodeState>(std::make_unique<State>(std::move(scratch)));
}

// Alternates between runs of valid UTF-8 and runs of stray bytes. The regexes see each valid run as a text of its own.
Status BpeTokenizer::EncodeFragment(std::string_view text, bool /*starts_text*/, EncodeState* state,
                                    std::vector<TokenId>* ids) const {
  auto* own_state = static_cast<State*>(state);
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = at;
    const bool valid = NextUtf8(text, at).kind == Utf8Kind::kCharacter;
    while (at < text.size()) {
      const Utf8Step step = NextUtf8(text, at);
      if ((step.kind == Utf8Kind::kCharacter) != valid) break;
      at += step.length;
    }
    const std::string_view run = text.substr(begin, at - begin);
    BELLHOP_TRY(valid ? EncodeValid(run, own_state, ids) : EncodeStray(run, ids));
  }
  return {};
}

Status BpeTokenizer::EncodeValid(std::string_view text, State* state, std::vector<TokenId>* ids) const {
  BELLHOP_TRY(pre_tokenizer_.Split(text, &state->regex, &state->pieces));
  for (const TextPiece& range : state->pieces) {
    const std::string_view piece = text.substr(range.begin, range.end - range.begin);
    if (ignore_merges_) {
      state->visible.clear();
      AppendVisible(piece, &state->visible);
      if (const auto whole = table().FindMergeable(state->visible)) {
        ids->push_back(*whole);
        continue;
      }
    }
    merges_.Encode(piece, &state->merge, ids);
  }
  return {};
}

Status BpeTokenizer::EncodeStray(std::string_view bytes, std::vector<TokenId>* ids) const {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    const TokenId token = merges_.byte_token(byte);
    if (token < 0) {
      return InvalidArgument(
          "the text contains byte 0x{:02X}, which is not UTF-8 and has no token; convert it to UTF-8", byte);
    }
    ids->push_back(token);
  }
  return {};
}

void BpeTokenizer::AppendNormal(std::string_view token_text, std::string* out) const {
  for (size_t at = 0; at < token_text.size();) {
    const Utf8Step step = NextUtf8(token_text, at);
    const int byte = step.kind == Utf8Kind::kCharacter ? VisibleToByte(step.code_point) : -1;
    if (byte >= 0) {
      out->push_back(static_cast<char>(byte));
    } else {
      out->append(token_text.substr(at, step.length));
    }
    at += step.length;
  }
}

}  // namespace bellhop::text
