// The merge table of byte-level BPE and the merging of one piece. Exact: lowest rank first, leftmost on ties, whatever
// the length of the piece.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/tokenizer_table.h"

namespace bellhop::text {

// Buffers for merging, kept between pieces.
struct BpeScratch {
  struct Symbol {
    uint32_t id = 0;
    uint32_t begin = 0;  // first byte in the piece
    uint32_t prev = 0;
    uint32_t next = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
};

class BpeMerges {
 public:
  // A merge of characters outside the byte alphabet never applies, and of equal pairs the first rank counts. kCorrupt
  // names the merge, or the byte without a token.
  static Result<BpeMerges> Create(const TokenTable& table);

  // Appends the tokens of one piece, which is not empty. A symbol that is no token becomes the tokens of its bytes.
  void Encode(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* ids) const;

  // Negative: no token stands for this byte. Only bytes that valid UTF-8 does not contain can be so.
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Merge {
    uint32_t left = 0;
    uint32_t right = 0;
    uint32_t result = 0;
  };
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = kNone;
  };

  Status FindByteTokens(const TokenTable& table);
  Status AddMerges(const TokenTable& table);
  void IndexMerges();

  uint32_t RankOf(uint32_t left, uint32_t right) const;
  void EncodeShort(std::string_view piece, std::vector<TokenId>* ids) const;
  void EncodeLong(std::string_view piece, BpeScratch* scratch, std::vector<TokenId>* ids) const;
  void Emit(uint32_t symbol, std::string_view bytes, std::vector<TokenId>* ids) const;

  // A symbol is a string that merging can produce: below `tokens` the token id itself, above it strings that are no
  // token of running text.
  std::vector<TokenId> token_of_symbol_;
  std::array<uint32_t, 256> byte_symbols_{};
  std::array<TokenId, 256> byte_tokens_{};
  std::vector<Merge> merges_;  // by rank
  std::vector<Slot> slots_;    // open addressing; the size is a power of two, at least twice the merges
  int slot_shift_ = 0;
};

}  // namespace bellhop::text
