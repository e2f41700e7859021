#include "decode/token_trie.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "decode/grammar_program.h"

namespace bellhop::decode {
namespace {

constexpr size_t kMaxTokenBytes = 4096;  // longer tokens are never allowed

struct Entry {
  std::string bytes;
  TokenId token = -1;
};

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const size_t length = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(length), b.begin()).first -
                             a.begin());
}

}  // namespace

TokenIndex::TokenIndex(std::unique_ptr<Trie> trie) : trie_(std::move(trie)) {}
TokenIndex::~TokenIndex() = default;

int32_t TokenIndex::vocab_size() const { return trie_->vocab_size; }

std::string_view TokenIndex::TokenText(TokenId token) const {
  return token < 0 || token >= trie_->vocab_size ? std::string_view() : trie_->Text(token);
}

std::shared_ptr<const TokenIndex> TokenIndex::Build(const text::Tokenizer& tokenizer) {
  auto trie = std::make_unique<Trie>();
  trie->vocab_size = tokenizer.size();
  std::vector<Entry> entries;
  for (TokenId token = 0; token < trie->vocab_size; ++token) {
    const bool ends = tokenizer.IsEndOfGeneration(token);
    std::string text = tokenizer.TokenBytes(token, true);
    const std::string plain = ends || tokenizer.IsControl(token) ? std::string() : tokenizer.TokenBytes(token, false);
    uint8_t flags = ends ? Trie::kEndOfGeneration : 0;
    if (ends) trie->end_of_generation.push_back(token);
    const bool usable = text.size() <= kMaxTokenBytes && text.find(static_cast<char>(kTokenMark)) == std::string::npos;
    if (usable && !plain.empty()) {
      flags |= Trie::kPlain;
      entries.push_back({plain, token});
      text = plain;
    }
    if (usable && text.size() > 2 && text.front() == '<' && text.back() == '>') {
      flags |= Trie::kMarked;
      entries.push_back({static_cast<char>(kTokenMark) + text + static_cast<char>(kTokenMark), token});
    }
    trie->flags.push_back(flags);
    trie->text_begin.push_back(static_cast<uint32_t>(trie->texts.size()));
    trie->texts += text;
  }
  trie->text_begin.push_back(static_cast<uint32_t>(trie->texts.size()));
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const int order = a.bytes.compare(b.bytes);
    return order != 0 ? order < 0 : a.token < b.token;
  });
  std::vector<uint32_t> path;  // the node at each depth of the entry before
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      trie->nodes[path.back()].end = static_cast<uint32_t>(trie->nodes.size());
  };
  std::string_view before;
  for (const Entry& entry : entries) {
    close(CommonPrefix(before, entry.bytes));
    while (path.size() < entry.bytes.size()) {
      path.push_back(static_cast<uint32_t>(trie->nodes.size()));
      trie->nodes.push_back({.first_token = static_cast<uint32_t>(trie->tokens.size()),
                             .depth = static_cast<uint16_t>(path.size()),
                             .byte = static_cast<uint8_t>(entry.bytes[path.size() - 1])});
    }
    trie->depth = std::max(trie->depth, path.size());
    trie->tokens.push_back(entry.token);
    before = entry.bytes;
  }
  close(0);
  trie->nodes.push_back({.first_token = static_cast<uint32_t>(trie->tokens.size())});
  trie->nodes.shrink_to_fit();
  return std::shared_ptr<const TokenIndex>(new TokenIndex(std::move(trie)));
}

}  // namespace bellhop::decode
