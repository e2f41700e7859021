// Byte-level BPE ("gpt2" in GGUF): pre-tokenizer, then merges within each piece.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe_merges.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_base.h"

namespace bellhop::text {

class BpeTokenizer final : public TokenizerBase {
 public:
  static Result<std::unique_ptr<Tokenizer>> Create(const manifest::Vocabulary& vocabulary);

 protected:
  Result<std::unique_ptr<EncodeState>> NewState() const override;
  Status EncodeFragment(std::string_view text, bool starts_text, EncodeState* state,
                        std::vector<TokenId>* ids) const override;
  void AppendNormal(std::string_view token_text, std::string* out) const override;

 private:
  struct State;

  BpeTokenizer(TokenTable table, PreTokenizer pre_tokenizer, BpeMerges merges, bool ignore_merges);

  Status EncodeValid(std::string_view text, State* state, std::vector<TokenId>* ids) const;
  Status EncodeStray(std::string_view bytes, std::vector<TokenId>* ids) const;

  PreTokenizer pre_tokenizer_;
  BpeMerges merges_;
  bool ignore_merges_;
};

}  // namespace bellhop::text
