#include "text/spm_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/unicode.h"

namespace bellhop::text {
namespace {

using manifest::TokenType;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr uint32_t kNone = UINT32_MAX;

struct Symbol {
  uint32_t begin = 0;
  uint32_t length = 0;  // 0: merged into its left neighbour
  uint32_t prev = 0;
  uint32_t next = 0;
};

struct Pair {
  float score = 0;
  uint32_t left = 0;
  uint32_t length = 0;  // of both; differs once either has grown
};

// Heap order: the highest score on top, leftmost on ties.
bool Below(const Pair& a, const Pair& b) { return a.score != b.score ? a.score < b.score : a.left > b.left; }

}  // namespace

struct SpmTokenizer::State final : EncodeState {
  std::string text;
  std::vector<Symbol> symbols;
  std::vector<Pair> heap;
};

SpmTokenizer::SpmTokenizer(TokenTable table)
    : TokenizerBase(std::move(table)), add_space_prefix_(this->table().vocabulary().add_space_prefix.value_or(true)) {}

Result<std::unique_ptr<Tokenizer>> SpmTokenizer::Create(const manifest::Vocabulary& vocabulary) {
  const TokenTableDefaults defaults{.bos = 1, .eos = 2, .unknown = 0, .add_bos = true};
  BELLHOP_TRY_ASSIGN(TokenTable table, TokenTable::Create(vocabulary, defaults));
  auto out = std::unique_ptr<SpmTokenizer>(new SpmTokenizer(std::move(table)));
  BELLHOP_TRY(out->CheckScores());
  BELLHOP_TRY(out->FindByteTokens());
  return std::unique_ptr<Tokenizer>(std::move(out));
}

Status SpmTokenizer::CheckScores() {
  const std::vector<float>& scores = table().vocabulary().scores;
  if (scores.size() != static_cast<size_t>(table().size())) {
    return Corrupt("tokenizer.ggml.scores has {} entries for {} tokens; tokenizer model \"llama\" merges by score",
                   scores.size(), table().size());
  }
  for (TokenId id = 0; id < table().size(); ++id) {
    if (std::isnan(scores[static_cast<size_t>(id)])) {
      return Corrupt("tokenizer.ggml.scores[{}] (token \"{}\") is not a number; convert the file again", id,
                     table().text(id));
    }
    longest_token_bytes_ = std::max(longest_token_bytes_, table().text(id).size());
  }
  return {};
}

Status SpmTokenizer::FindByteTokens() {
  for (TokenId id = 0; id < table().size(); ++id) {
    if (table().type(id) == TokenType::kByte && ByteTokenValue(table().text(id)) < 0) {
      return Corrupt("tokenizer.ggml.tokens[{}] is \"{}\" with the type of a byte, whose text is <0x00> to <0xFF>", id,
                     table().text(id));
    }
  }
  int found = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = table().FindByte(static_cast<uint8_t>(byte));
    byte_tokens_[static_cast<size_t>(byte)] = id.value_or(-1);
    if (id) ++found;
  }
  if (found == 256) return {};
  if (found > 0) {
    const auto missing = std::find(byte_tokens_.begin(), byte_tokens_.end(), -1) - byte_tokens_.begin();
    return Corrupt("tokenizer.ggml.tokens has {} of the 256 byte tokens; <0x{:02X}> is missing; convert the file again",
                   found, missing);
  }
  if (!table().unknown()) {
    return Corrupt("tokenizer.ggml.tokens has neither byte tokens (<0x00> to <0xFF>) nor an unknown token");
  }
  return {};
}

Result<std::unique_ptr<TokenizerBase::EncodeState>> SpmTokenizer::NewState() const {
  return std::unique_ptr<EncodeState>(std::make_unique<State>());
}

Status SpmTokenizer::EncodeFragment(std::string_view text, bool starts_text, EncodeState* state,
                                    std::vector<TokenId>* ids) const {
  auto* work = static_cast<State*>(state);
  work->text.clear();
  if (add_space_prefix_ && starts_text) work->text.append(kSpaceMark);
  for (const char c : text) {
    if (c == ' ') {
      work->text.append(kSpaceMark);
    } else {
      work->text.push_back(c);
    }
  }
  // One symbol per character; a stray byte is a symbol of its own.
  work->symbols.clear();
  for (uint32_t at = 0; at < work->text.size();) {
    const Utf8Step step = NextUtf8(work->text, at);
    const uint32_t length = step.kind == Utf8Kind::kCharacter ? step.length : 1;
    const auto index = static_cast<uint32_t>(work->symbols.size());
    work->symbols.push_back({at, length, index - 1, index + 1});  // the first prev wraps to kNone
    at += length;
  }
  work->symbols.back().next = kNone;
  Merge(work);
  for (uint32_t i = 0; i != kNone; i = work->symbols[i].next) {
    Emit(std::string_view(work->text).substr(work->symbols[i].begin, work->symbols[i].length), ids);
  }
  return {};
}

void SpmTokenizer::QueuePair(uint32_t left, State* state) const {
  const Symbol& symbol = state->symbols[left];
  if (symbol.next == kNone) return;
  const uint32_t length = symbol.length + state->symbols[symbol.next].length;
  if (length > longest_token_bytes_) return;
  const auto id = table().FindMergeable(std::string_view(state->text).substr(symbol.begin, length));
  if (!id) return;
  state->heap.push_back({table().vocabulary().scores[static_cast<size_t>(*id)], left, length});
  std::push_heap(state->heap.begin(), state->heap.end(), Below);
}

void SpmTokenizer::Merge(State* state) const {
  std::vector<Symbol>& symbols = state->symbols;
  state->heap.clear();
  for (uint32_t i = 0; i < symbols.size(); ++i) QueuePair(i, state);
  while (!state->heap.empty()) {
    std::pop_heap(state->heap.begin(), state->heap.end(), Below);
    const Pair pair = state->heap.back();
    state->heap.pop_back();
    Symbol& left = symbols[pair.left];
    if (left.length == 0 || left.next == kNone || left.length + symbols[left.next].length != pair.length) continue;
    Symbol& right = symbols[left.next];
    left.length = pair.length;
    right.length = 0;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].prev = pair.left;
    QueuePair(pair.left, state);
    if (left.prev != kNone) QueuePair(left.prev, state);
  }
}

void SpmTokenizer::Emit(std::string_view symbol, std::vector<TokenId>* ids) const {
  if (const auto id = table().FindMergeable(symbol)) {
    ids->push_back(*id);
  } else if (byte_tokens_[0] >= 0) {
    for (const char byte : symbol) ids->push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
  } else {
    ids->push_back(*table().unknown());
  }
}

void SpmTokenizer::AppendNormal(std::string_view token_text, std::string* out) const {
  size_t at = 0;
  for (size_t mark = token_text.find(kSpaceMark); mark != std::string_view::npos;
       mark = token_text.find(kSpaceMark, at)) {
    out->append(token_text.substr(at, mark - at)).push_back(' ');
    at = mark + kSpaceMark.size();
  }
  out->append(token_text.substr(at));
}

}  // namespace bellhop::text
