// What tests of grammars share: a small vocabulary, and sentences drawn at random under masks. Header-only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "decode/grammar.h"
#include "text/tokenizer_test_vocab.h"

namespace bellhop::decode {

// Byte tokens, words, pieces of JSON, tokens that hold parts of characters, control and user-defined tokens.
struct TestVocabulary {
  TestVocabulary() {
    vocabulary = text::SmallBpeVocabulary("gpt-2");
    for (const std::string_view piece :
         {"{\"",  "\":", "\": ",  "\",",   ", \"",     "\"}",      "}}", "[]",   "{}", "],", "true", "false", "null",
          "name", "0.",  "a\xC3", "\xA9z", "\xA5\xE6", "\x9F\x98", "ab", "abab", "((", "))", "()",   "\"a",   "a\""}) {
      text::AddToken(&vocabulary, text::Visible(piece), manifest::TokenType::kNormal);
    }
    text::AddToken(&vocabulary, "<tool_call>", manifest::TokenType::kUserDefined);
    text::AddToken(&vocabulary, "</tool_call>", manifest::TokenType::kUserDefined);
    for (const std::string_view name : {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|call|>"}) {
      text::AddToken(&vocabulary, std::string(name), manifest::TokenType::kControl);
    }
    text::AddToken(&vocabulary, "unused", manifest::TokenType::kUnused);
    auto made = text::Tokenizer::Create(vocabulary);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    tokenizer = std::move(made).value();
    index = TokenIndex::Build(*tokenizer);
  }

  TokenId Id(std::string_view text) const { return tokenizer->TokenFromText(text).value_or(-1); }
  TokenId Plain(std::string_view bytes) const { return Id(text::Visible(bytes)); }

  manifest::Vocabulary vocabulary;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<const TokenIndex> index;
};

inline const TestVocabulary& Vocabulary() {
  static const TestVocabulary vocabulary;
  return vocabulary;
}

inline std::shared_ptr<const Grammar> MustParse(std::string_view gbnf) {
  auto grammar = Grammar::Parse(gbnf);
  EXPECT_TRUE(grammar.ok()) << grammar.status().ToString() << "\n" << gbnf;
  return grammar.ok() ? *grammar : nullptr;
}

enum class Match { kNo, kPrefix, kWhole };

inline Match MatchText(std::shared_ptr<const Grammar> grammar, std::string_view text) {
  GrammarMatcher matcher(std::move(grammar), Vocabulary().index);
  if (!matcher.AcceptText(text).ok()) return Match::kNo;
  return matcher.complete() ? Match::kWhole : Match::kPrefix;
}

inline bool Matches(std::string_view gbnf, std::string_view text) {
  return MatchText(MustParse(gbnf), text) == Match::kWhole;
}

inline std::vector<TokenId> TokensOf(HostSpan<const uint64_t> mask) {
  std::vector<TokenId> tokens;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (int bit = 0; bit < 64; ++bit) {
      if ((mask[word] >> bit & 1) != 0) tokens.push_back(static_cast<TokenId>(word * 64 + static_cast<size_t>(bit)));
    }
  }
  return tokens;
}

inline std::vector<TokenId> AllowedOf(GrammarMatcher& matcher) {
  std::vector<uint64_t> mask(static_cast<size_t>(Vocabulary().index->vocab_size() + 63) / 64, ~uint64_t{0});
  matcher.AllowedTokens(mask);
  return TokensOf(mask);
}

// Draws tokens that the masks allow until the text is complete and a coin says so. Nothing when it gets too long.
inline std::optional<std::string> RandomSentence(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random,
                                                 size_t max_tokens = 2000) {
  GrammarMatcher matcher(grammar, Vocabulary().index);
  std::string text;
  for (size_t i = 0; i < max_tokens; ++i) {
    std::vector<TokenId> allowed = AllowedOf(matcher);
    EXPECT_FALSE(allowed.empty()) << "stuck after: " << text;
    if (allowed.empty()) return std::nullopt;
    // The longer the text, the likelier are the tokens that close something.
    TokenId token = allowed[random() % allowed.size()];
    for (size_t tries = 0; tries < i / 4; ++tries) {
      const std::string_view bytes = Vocabulary().index->TokenText(token);
      if (Vocabulary().tokenizer->IsEndOfGeneration(token) || bytes.find_first_of("\"]}") != std::string_view::npos)
        break;
      token = allowed[random() % allowed.size()];
    }
    const Status accepted = matcher.Accept(token);
    EXPECT_TRUE(accepted.ok()) << accepted.ToString();
    if (Vocabulary().tokenizer->IsEndOfGeneration(token)) return text;
    text += Vocabulary().index->TokenText(token);
  }
  return std::nullopt;
}

}  // namespace bellhop::decode
