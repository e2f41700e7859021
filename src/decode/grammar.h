// Grammars that restrict sampling: GBNF (the BNF dialect of llama.cpp), compiled once, matched byte by byte against the
// tokens of a vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace bellhop::decode {

// A compiled grammar; immutable, shared between sequences and threads.
class Grammar {
 public:
  // kInvalidArgument: "grammar:<line>:<column>: <what>", for syntax, undefined rules, a missing root, left recursion.
  static Result<std::shared_ptr<const Grammar>> Parse(std::string_view gbnf);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

 private:
  friend class GrammarMatcher;
  struct Rules;
  explicit Grammar(std::unique_ptr<Rules> rules);
  std::unique_ptr<Rules> rules_;
};

// The byte strings of a vocabulary as a trie, made once per model. Control tokens match no grammar.
class TokenIndex {
 public:
  static std::shared_ptr<const TokenIndex> Build(const text::Tokenizer& tokenizer);
  ~TokenIndex();
  int32_t vocab_size() const;

 private:
  friend class GrammarMatcher;
  struct Trie;
  explicit TokenIndex(std::unique_ptr<Trie> trie);
  std::unique_ptr<Trie> trie_;
};

// One sequence's position in a grammar. Not thread-safe.
class GrammarMatcher {
 public:
  GrammarMatcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenIndex> index);
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  // Sets bit t % 64 of word t / 64 for every token t that may come next; end-of-generation tokens exactly when the text
  // so far is complete. At least ceil(vocab / 64) words.
  void AllowedTokens(HostSpan<uint64_t> mask);
  // kInvalidArgument when the token may not come next; the state is then unchanged.
  Status Accept(TokenId token);
  // The same for raw text.
  Status AcceptText(std::string_view bytes);
  bool complete() const;  // the text so far is a sentence of the grammar

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bellhop::decode
