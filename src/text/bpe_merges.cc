#include "text/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <unordered_map>

#include "text/unicode.h"

namespace bellhop::text {
namespace {

// Up to this length a scan for the lowest rank beats the heap; most words are shorter.
constexpr size_t kShortPiece = 32;

// Bytes that no valid UTF-8 contains. Vocabularies trained on text may lack tokens for them.
constexpr bool OccursInUtf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

constexpr uint64_t PairKey(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

// Ids of the strings that merges produce or need: tokens first, others as they come.
class SymbolTable {
 public:
  SymbolTable(const TokenTable& tokens, std::vector<TokenId>* token_of_symbol)
      : tokens_(tokens), token_of_symbol_(*token_of_symbol) {
    for (TokenId id = 0; id < tokens.size(); ++id) token_of_symbol_.push_back(id);
  }

  uint32_t Intern(std::string_view text) {
    if (const auto id = tokens_.FindMergeable(text)) return static_cast<uint32_t>(*id);
    const auto next = static_cast<uint32_t>(token_of_symbol_.size());
    const auto [it, inserted] = others_.emplace(std::string(text), next);
    if (inserted) token_of_symbol_.push_back(-1);
    return it->second;
  }

 private:
  const TokenTable& tokens_;
  std::vector<TokenId>& token_of_symbol_;
  std::unordered_map<std::string, uint32_t> others_;
};

}  // namespace

Result<BpeMerges> BpeMerges::Create(const TokenTable& table) {
  BpeMerges out;
  BELLHOP_TRY(out.FindByteTokens(table));
  BELLHOP_TRY(out.AddMerges(table));
  out.IndexMerges();
  return out;
}

Status BpeMerges::FindByteTokens(const TokenTable& table) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    std::optional<TokenId> id = table.FindMergeable(ByteToVisible(b));
    if (!id) id = table.FindByte(b);
    if (!id) id = table.unknown();
    if (!id && OccursInUtf8(byte)) {
      return Corrupt("tokenizer.ggml.tokens has no token \"{}\" for byte 0x{:02X}; byte-level BPE needs one per byte",
                     ByteToVisible(b), byte);
    }
    byte_tokens_[b] = id.value_or(-1);
  }
  return {};
}

Status BpeMerges::AddMerges(const TokenTable& table) {
  const std::vector<std::string>& texts = table.vocabulary().merges;
  // A merge splits a token in two, so there are no more of them than places to split.
  uint64_t places = 0;
  for (TokenId id = 0; id < table.size(); ++id) places += table.text(id).size();
  if (texts.size() > places) {
    return Corrupt("tokenizer.ggml.merges has {} entries, but the {} tokens can only be split in {} places",
                   texts.size(), table.size(), places);
  }
  SymbolTable symbols(table, &token_of_symbol_);
  for (int byte = 0; byte < 256; ++byte) {
    byte_symbols_[static_cast<size_t>(byte)] = symbols.Intern(ByteToVisible(static_cast<uint8_t>(byte)));
  }
  merges_.reserve(texts.size());
  std::string joined;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string_view text = texts[rank];
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size()) {
      return Corrupt("tokenizer.ggml.merges[{}] is \"{}\"; a merge is two strings with a space between them", rank,
                     text);
    }
    const std::string_view left = text.substr(0, space);
    const std::string_view right = text.substr(space + 1);
    joined.assign(left).append(right);
    merges_.push_back({symbols.Intern(left), symbols.Intern(right), symbols.Intern(joined)});
  }
  return {};
}

void BpeMerges::IndexMerges() {
  const size_t size = std::bit_ceil(std::max<size_t>(16, 2 * merges_.size()));
  slots_.assign(size, {});
  slot_shift_ = 64 - std::countr_zero(size);
  for (uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    const uint64_t pair = PairKey(merge.left, merge.right);
    size_t slot = pair * 0x9E3779B97F4A7C15u >> slot_shift_;
    while (slots_[slot].rank != kNone && slots_[slot].pair != pair) slot = (slot + 1) & (size - 1);
    if (slots_[slot].rank == kNone) slots_[slot] = {pair, rank};
  }
}

uint32_t BpeMerges::RankOf(uint32_t left, uint32_t right) const {
  const uint64_t pair = PairKey(left, right);
  size_t slot = pair * 0x9E3779B97F4A7C15u >> slot_shift_;
  while (slots_[slot].rank != kNone) {
    if (slots_[slot].pair == pair) return slots_[slot].rank;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return kNone;
}

void BpeMerges::Emit(uint32_t symbol, std::string_view bytes, std::vector<TokenId>* ids) const {
  if (const TokenId token = token_of_symbol_[symbol]; token >= 0) {
    ids->push_back(token);
    return;
  }
  for (const char byte : bytes) ids->push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
}

void BpeMerges::Encode(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* ids) const {
  if (piece.size() <= kShortPiece) {
    EncodeShort(piece, ids);
  } else {
    EncodeLong(piece, scratch, ids);
  }
}

void BpeMerges::EncodeShort(std::string_view piece, std::vector<TokenId>* ids) const {
  std::array<uint32_t, kShortPiece> symbols;
  std::array<uint32_t, kShortPiece> ranks;  // of the pair (i, i + 1)
  std::array<uint8_t, kShortPiece + 1> begins;
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) {
    symbols[i] = byte_symbols_[static_cast<uint8_t>(piece[i])];
    begins[i] = static_cast<uint8_t>(i);
  }
  begins[count] = static_cast<uint8_t>(count);
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = RankOf(symbols[i], symbols[i + 1]);

  while (count > 1) {
    const auto ranks_end = ranks.begin() + static_cast<ptrdiff_t>(count - 1);
    const auto lowest = std::min_element(ranks.begin(), ranks_end);
    if (*lowest == kNone) break;
    const auto at = static_cast<size_t>(lowest - ranks.begin());
    symbols[at] = merges_[*lowest].result;
    std::copy(symbols.begin() + at + 2, symbols.begin() + count, symbols.begin() + at + 1);
    std::copy(begins.begin() + at + 2, begins.begin() + count + 1, begins.begin() + at + 1);
    std::copy(lowest + 1, ranks_end, lowest);
    --count;
    if (at + 1 < count) ranks[at] = RankOf(symbols[at], symbols[at + 1]);
    if (at > 0) ranks[at - 1] = RankOf(symbols[at - 1], symbols[at]);
  }
  for (size_t i = 0; i < count; ++i) {
    Emit(symbols[i], piece.substr(begins[i], static_cast<size_t>(begins[i + 1] - begins[i])), ids);
  }
}

// A linked list of symbols and a heap of (rank, position): n log n. A heap entry whose pair has changed meanwhile is
// recognised by comparing the symbols with those of its merge.
void BpeMerges::EncodeLong(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* ids) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch->symbols;
  std::vector<uint64_t>& heap = scratch->heap;
  const auto count = static_cast<uint32_t>(piece.size());
  symbols.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = {byte_symbols_[static_cast<uint8_t>(piece[i])], i, i - 1, i + 1};  // first prev wraps to kNone
  }
  symbols[count - 1].next = kNone;
  for (uint32_t i = 0; i + 1 < count; ++i) {
    const uint32_t rank = RankOf(symbols[i].id, symbols[i + 1].id);
    if (rank != kNone) heap.push_back(uint64_t{rank} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push_pair = [&](uint32_t left) {
    const uint32_t rank = RankOf(symbols[left].id, symbols[symbols[left].next].id);
    if (rank == kNone) return;
    heap.push_back(uint64_t{rank} << 32 | left);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Merge& merge = merges_[heap.back() >> 32];
    const auto at = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[at];
    if (left.id != merge.left || left.next == kNone || symbols[left.next].id != merge.right) continue;
    symbols[left.next].id = kNone;  // so that no stale entry matches it
    left.id = merge.result;
    left.next = symbols[left.next].next;
    if (left.next != kNone) {
      symbols[left.next].prev = at;
      push_pair(at);
    }
    if (left.prev != kNone) push_pair(left.prev);
  }
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) {
    const uint32_t end = symbols[i].next == kNone ? count : symbols[symbols[i].next].begin;
    Emit(symbols[i].id, piece.substr(symbols[i].begin, end - symbols[i].begin), ids);
  }
}

}  // namespace bellhop::text
