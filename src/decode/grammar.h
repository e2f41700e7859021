// Grammars that restrict sampling: GBNF (the BNF dialect of llama.cpp), compiled once, matched byte by byte against the
// tokens of a vocabulary.
//
//   # comment                        to the end of the line
//   root ::= item ("," ws item)*     generation starts at root; a name is of letters, digits, - and _
//   ws   ::= [ \t\n]{0,4}            a rule ends with its line, but within parentheses and before a line that begins
//   with | item ::= "text" | [^a-z\x22] | . | <|control|> | | (item ";")
//
// Literals and classes are Unicode text; escapes: \n \r \t \\ \" \[ \] \- \^ \xNN \uNNNN \UNNNNNNNN, the number being a
// code point. `.` is any character. Repetition: * + ? {n} {n,} {n,m}. <...> is the one token whose text that is,
// brackets included. An alternative may be empty.
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
  // kInvalidArgument: "grammar:<line>:<column>: <what>", for syntax, undefined rules, a missing root, rules that are
  // defined twice, left recursion, too large a grammar.
  static Result<std::shared_ptr<const Grammar>> Parse(std::string_view gbnf);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

 private:
  friend class GrammarMatcher;
  struct Rules;  // grammar_program.h
  explicit Grammar(std::unique_ptr<Rules> rules);
  std::unique_ptr<Rules> rules_;
};

// The byte strings of a vocabulary as a trie, made once per model; the tokenizer is not needed afterwards. Control
// tokens match only where a grammar names them, as <text>; unused and unknown tokens nowhere.
class TokenIndex {
 public:
  static std::shared_ptr<const TokenIndex> Build(const text::Tokenizer& tokenizer);
  ~TokenIndex();
  int32_t vocab_size() const;
  // The token's bytes, of a control token its text; empty outside the vocabulary.
  std::string_view TokenText(TokenId token) const;

 private:
  friend class GrammarMatcher;
  struct Trie;  // token_trie.h
  explicit TokenIndex(std::unique_ptr<Trie> trie);
  std::unique_ptr<Trie> trie_;
};

// One sequence's position in a grammar. Not thread-safe. Memory is bounded, and so is the time of a call: where a
// grammar can be read in thousands of ways at once, matching fails for good, and status() says so.
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
  // Not ok once the grammar proved too ambiguous; nothing is allowed from then on.
  const Status& status() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bellhop::decode
