// SentencePiece BPE ("llama" in GGUF): merges by score over whole text, bytes for what the vocabulary lacks.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_base.h"

namespace bellhop::text {

class SpmTokenizer final : public TokenizerBase {
 public:
  static Result<std::unique_ptr<Tokenizer>> Create(const manifest::Vocabulary& vocabulary);

  bool strips_leading_space() const override { return add_space_prefix_; }

 protected:
  Result<std::unique_ptr<EncodeState>> NewState() const override;
  Status EncodeFragment(std::string_view text, bool starts_text, EncodeState* state,
                        std::vector<TokenId>* ids) const override;
  void AppendNormal(std::string_view token_text, std::string* out) const override;

 private:
  struct State;

  explicit SpmTokenizer(TokenTable table);
  Status FindByteTokens();
  Status CheckScores();
  // Queues the pair that begins at symbol `left` when its concatenation is a token.
  void QueuePair(uint32_t left, State* state) const;
  void Merge(State* state) const;
  void Emit(std::string_view symbol, std::vector<TokenId>* ids) const;

  bool add_space_prefix_ = true;
  size_t longest_token_bytes_ = 0;
  std::array<TokenId, 256> byte_tokens_{};  // all negative when the vocabulary has none
};

}  // namespace bellhop::text
