#include "text/tokenizer_specials.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>

namespace bellhop::text {

using manifest::TokenType;

SpecialTokens::SpecialTokens(const TokenTable& table) {
  for (TokenId id = 0; id < table.size(); ++id) {
    const TokenType type = table.type(id);
    const bool always = type == TokenType::kUserDefined;
    if (!always && type != TokenType::kControl && type != TokenType::kUnknown) continue;
    if (!table.text(id).empty()) entries_.push_back({table.text(id), id, always});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& entry : entries_) ++first_byte_[static_cast<uint8_t>(entry.text[0]) + size_t{1}];
  for (size_t b = 1; b < first_byte_.size(); ++b) first_byte_[b] += first_byte_[b - 1];
}

SpecialTokens::Match SpecialTokens::Longest(std::string_view text, size_t begin, size_t end, bool parse_special) const {
  Match best{begin, 0, -1};
  const auto first = static_cast<uint8_t>(text[begin]);
  auto low = entries_.begin() + static_cast<ptrdiff_t>(first_byte_[first]);
  auto high = entries_.begin() + static_cast<ptrdiff_t>(first_byte_[first + size_t{1}]);
  // Entries in [low, high) begin with the `matched` bytes at `begin`; those that end there sort first.
  for (size_t matched = 1; low != high; ++matched) {
    for (; low != high && low->text.size() == matched; ++low) {
      if (low->always || parse_special) best = {begin, matched, low->token};
    }
    if (begin + matched >= end) break;
    const auto byte = static_cast<uint8_t>(text[begin + matched]);
    low = std::partition_point(low, high, [&](const Entry& e) { return static_cast<uint8_t>(e.text[matched]) < byte; });
    high =
        std::partition_point(low, high, [&](const Entry& e) { return static_cast<uint8_t>(e.text[matched]) == byte; });
  }
  return best;
}

std::vector<SpecialTokens::Match> SpecialTokens::Claim(std::string_view text, bool parse_special) const {
  const auto later = [](const Match& a, const Match& b) {
    if (a.length != b.length) return a.length < b.length;
    if (a.token != b.token) return a.token > b.token;
    return a.begin > b.begin;
  };
  std::vector<Match> found;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto first = static_cast<uint8_t>(text[at]);
    if (first_byte_[first] == first_byte_[first + size_t{1}]) continue;
    const Match match = Longest(text, at, text.size(), parse_special);
    if (match.length > 0) found.push_back(match);
  }
  if (found.empty()) return {};

  std::priority_queue<Match, std::vector<Match>, decltype(later)> queue(later, std::move(found));
  std::vector<bool> taken(text.size(), false);
  std::vector<Match> claimed;
  while (!queue.empty()) {
    const Match match = queue.top();
    queue.pop();
    if (taken[match.begin]) continue;
    size_t free_end = match.begin;
    while (free_end < match.begin + match.length && !taken[free_end]) ++free_end;
    if (free_end == match.begin + match.length) {
      std::fill(taken.begin() + static_cast<ptrdiff_t>(match.begin), taken.begin() + static_cast<ptrdiff_t>(free_end),
                true);
      claimed.push_back(match);
      continue;
    }
    // Something longer took the tail; a shorter token may still fit in front of it.
    const Match shorter = Longest(text, match.begin, free_end, parse_special);
    if (shorter.length > 0) queue.push(shorter);
  }
  std::sort(claimed.begin(), claimed.end(), [](const Match& a, const Match& b) { return a.begin < b.begin; });
  return claimed;
}

std::vector<TextFragment> SpecialTokens::Split(std::string_view text, bool parse_special) const {
  std::vector<TextFragment> fragments;
  size_t at = 0;
  for (const Match& match : Claim(text, parse_special)) {
    if (match.begin > at) fragments.push_back({text.substr(at, match.begin - at), -1});
    fragments.push_back({text.substr(match.begin, match.length), match.token});
    at = match.begin + match.length;
  }
  if (at < text.size()) fragments.push_back({text.substr(at), -1});
  return fragments;
}

}  // namespace bellhop::text
