// Splits text on special tokens before anything else looks at it.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer_table.h"

namespace bellhop::text {

// A part of the text: one special token, or text between them.
struct TextFragment {
  std::string_view text;
  TokenId token = -1;  // negative: text
};

// The special tokens alone, sorted by text, so the cost of a split does not grow with the vocabulary.
class SpecialTokens {
 public:
  // Refers to the table's vocabulary.
  explicit SpecialTokens(const TokenTable& table);

  // Longer tokens claim their occurrences first, equally long ones in id order, each from left to right. User-defined
  // tokens always count; control and unknown ones when `parse_special` is true. No fragment is empty.
  std::vector<TextFragment> Split(std::string_view text, bool parse_special) const;

 private:
  struct Entry {
    std::string_view text;
    TokenId token = -1;
    bool always = false;
  };
  struct Match {
    size_t begin = 0;
    size_t length = 0;
    TokenId token = -1;
  };

  // The longest special token at `begin` within text[begin, end); length 0: none.
  Match Longest(std::string_view text, size_t begin, size_t end, bool parse_special) const;
  std::vector<Match> Claim(std::string_view text, bool parse_special) const;

  std::vector<Entry> entries_;            // ascending by text
  std::array<size_t, 257> first_byte_{};  // entries that begin with byte b: [first_byte_[b], first_byte_[b + 1])
};

}  // namespace bellhop::text
