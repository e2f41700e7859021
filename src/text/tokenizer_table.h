// A vocabulary after checking: token texts and types, text to id, special ids with their defaults, end-of-generation
// set. Both tokenizer models are built on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "manifest/vocabulary.h"

namespace bellhop::text {

// What a tokenizer model assumes where the file is silent.
struct TokenTableDefaults {
  std::optional<TokenId> bos = std::nullopt;
  std::optional<TokenId> eos = std::nullopt;
  std::optional<TokenId> unknown = std::nullopt;
  bool add_bos = false;
};

// Text to id by open addressing over the vocabulary's own strings. A vocabulary is looked up a million times while it
// loads, and this takes half the time of std::unordered_map.
class TokenTextIndex {
 public:
  // Refers to `texts`. Precondition: no more than `capacity` insertions.
  TokenTextIndex() = default;
  TokenTextIndex(const std::vector<std::string>& texts, size_t capacity);

  // Adds texts[id], or returns the id that has the same text already.
  std::optional<TokenId> Insert(TokenId id);
  void Replace(TokenId old_id, TokenId new_id);
  std::optional<TokenId> Find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    TokenId id = -1;
  };
  // The slot of the text, or the free one where it belongs.
  size_t Locate(std::string_view text, uint32_t hash) const;

  const std::vector<std::string>* texts_ = nullptr;
  std::vector<Slot> slots_;
};

class TokenTable {
 public:
  // kCorrupt names the bad entry. Refers to `vocabulary`, which must outlive the table.
  static Result<TokenTable> Create(const manifest::Vocabulary& vocabulary, const TokenTableDefaults& defaults);

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size(); }
  // Precondition of both: Contains(id).
  std::string_view text(TokenId id) const { return vocabulary_->tokens[static_cast<size_t>(id)]; }
  manifest::TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }

  std::optional<TokenId> Find(std::string_view text) const;
  // A token that running text may become: not control, unknown or byte.
  std::optional<TokenId> FindMergeable(std::string_view text) const;
  // `<0xHH>`; by its text, whatever its type.
  std::optional<TokenId> FindByte(uint8_t byte) const;

  const manifest::Vocabulary& vocabulary() const { return *vocabulary_; }
  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  std::optional<TokenId> unknown() const { return unknown_; }
  bool adds_bos() const { return adds_bos_; }
  bool adds_eos() const { return adds_eos_; }
  const std::vector<TokenId>& end_of_generation() const { return end_of_generation_; }  // ascending

 private:
  Status CheckTypes();
  Status IndexTexts();
  Status CheckIds(const TokenTableDefaults& defaults);
  void ApplyGptOssRules();
  void CollectEndOfGeneration();

  const manifest::Vocabulary* vocabulary_ = nullptr;
  std::vector<manifest::TokenType> types_;
  TokenTextIndex by_text_;
  std::optional<TokenId> bos_, eos_, unknown_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
  bool gpt_oss_ = false;
  std::vector<TokenId> end_of_generation_;
};

// The byte that `<0xHH>` stands for, or -1.
int ByteTokenValue(std::string_view text);

}  // namespace bellhop::text
