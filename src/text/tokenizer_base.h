// What both tokenizer models share: special tokens around text, token bytes by type, decoding, end of generation.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_specials.h"
#include "text/tokenizer_table.h"

namespace bellhop::text {

class TokenizerBase : public Tokenizer {
 public:
  Result<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const final;
  std::string TokenBytes(TokenId id, bool special) const final;
  std::string Decode(HostSpan<const TokenId> ids, bool special) const final;

  int32_t size() const final { return table_.size(); }
  std::optional<TokenId> bos() const final { return table_.bos(); }
  std::optional<TokenId> eos() const final { return table_.eos(); }
  bool adds_bos() const final { return table_.adds_bos(); }
  bool strips_leading_space() const override { return false; }
  bool IsControl(TokenId id) const final;
  bool IsEndOfGeneration(TokenId id) const final;
  std::vector<TokenId> EndOfGenerationSet() const final { return table_.end_of_generation(); }
  std::optional<TokenId> TokenFromText(std::string_view text) const final { return table_.Find(text); }

 protected:
  explicit TokenizerBase(TokenTable table);

  // Working memory of one Encode call.
  struct EncodeState {
    virtual ~EncodeState() = default;
  };
  virtual Result<std::unique_ptr<EncodeState>> NewState() const = 0;
  // Appends the tokens of text without special tokens (never empty). `starts_text`: nothing or a special token
  // precedes.
  virtual Status EncodeFragment(std::string_view text, bool starts_text, EncodeState* state,
                                std::vector<TokenId>* ids) const = 0;
  // Appends the bytes of a normal token's text.
  virtual void AppendNormal(std::string_view token_text, std::string* out) const = 0;

  const TokenTable& table() const { return table_; }

 private:
  void AppendTokenBytes(TokenId id, bool special, std::string* out) const;

  TokenTable table_;
  SpecialTokens specials_;
};

}  // namespace bellhop::text
