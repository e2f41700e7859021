// What a TokenIndex holds. The trie lies in one array in depth-first order, so that a walk reads memory in order and
// leaves a subtree with one jump.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "decode/grammar.h"

namespace bellhop::decode {

struct TrieNode {
  uint32_t end = 0;          // the node after this one's subtree
  uint32_t first_token = 0;  // into TokenIndex::Trie::tokens, up to that of the next node
  uint16_t depth = 0;        // bytes, this one included: from 1
  uint8_t byte = 0;
};

struct TokenIndex::Trie {
  enum : uint8_t { kPlain = 1, kMarked = 2, kEndOfGeneration = 4 };

  int32_t vocab_size = 0;
  size_t depth = 0;             // of the deepest node
  std::vector<TrieNode> nodes;  // and a last one that ends the token list
  std::vector<TokenId> tokens;
  std::vector<TokenId> end_of_generation;

  // [token]: how it may match, and its bytes; of a control token the text.
  std::vector<uint8_t> flags;
  std::vector<uint32_t> text_begin;  // vocab_size + 1
  std::string texts;

  std::string_view Text(TokenId token) const {
    const size_t i = static_cast<size_t>(token);
    return std::string_view(texts).substr(text_begin[i], text_begin[i + 1] - text_begin[i]);
  }
};

}  // namespace bellhop::decode
