// Small vocabularies for tests and fuzzing. Header-only; no part of the library.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "manifest/vocabulary.h"
#include "text/unicode.h"

namespace bellhop::text {

inline std::string Visible(std::string_view bytes) {
  std::string out;
  AppendVisible(bytes, &out);
  return out;
}

// 256 byte tokens (id = byte) and no merges.
inline manifest::Vocabulary ByteVocabulary(std::string pre) {
  manifest::Vocabulary v;
  v.model = "gpt2";
  v.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) v.tokens.emplace_back(ByteToVisible(static_cast<uint8_t>(byte)));
  v.types.assign(256, manifest::TokenType::kNormal);
  return v;
}

inline TokenId AddToken(manifest::Vocabulary* v, std::string text, manifest::TokenType type, float score = 0) {
  v->tokens.push_back(std::move(text));
  v->types.push_back(type);
  if (!v->scores.empty()) v->scores.push_back(score);
  return static_cast<TokenId>(v->tokens.size() - 1);
}

// Adds the merge and, unless it is there, the token that it makes.
inline void AddMerge(manifest::Vocabulary* v, std::string_view left, std::string_view right) {
  v->merges.push_back(Visible(left) + " " + Visible(right));
  const std::string made = Visible(left) + Visible(right);
  for (const std::string& token : v->tokens) {
    if (token == made) return;
  }
  AddToken(v, made, manifest::TokenType::kNormal);
}

// Merges that build each word from the left, byte by byte.
inline void AddWord(manifest::Vocabulary* v, std::string_view word) {
  for (size_t i = 1; i < word.size(); ++i) AddMerge(v, word.substr(0, i), word.substr(i, 1));
}

// Byte tokens, a few words in several scripts, control and user-defined tokens.
inline manifest::Vocabulary SmallBpeVocabulary(std::string pre) {
  manifest::Vocabulary v = ByteVocabulary(std::move(pre));
  for (const std::string_view word :
       {"the", " the", "in", "ing", " in", "123", "\r\n", "    ", "'s", "\xC3\xA9", "\xE6\x97\xA5\xE6\x9C\xAC",
        " \xD0\xB4\xD0\xB0", "\xF0\x9F\x98\x80", "!!", "aaaa"}) {
    AddWord(&v, word);
  }
  v.eos = AddToken(&v, "<|end|>", manifest::TokenType::kControl);
  v.bos = AddToken(&v, "<|begin|>", manifest::TokenType::kControl);
  AddToken(&v, "<tool>", manifest::TokenType::kUserDefined);
  AddToken(&v, "<tool>s", manifest::TokenType::kUserDefined);
  return v;
}

// unk, bos, eos, 256 byte tokens, letters and words with scores (earlier is better).
inline manifest::Vocabulary SmallSpmVocabulary(bool byte_tokens = true) {
  manifest::Vocabulary v;
  v.model = "llama";
  v.scores = {0};
  v.tokens = {"<unk>"};
  v.types = {manifest::TokenType::kUnknown};
  AddToken(&v, "<s>", manifest::TokenType::kControl);
  AddToken(&v, "</s>", manifest::TokenType::kControl);
  for (int byte = 0; byte_tokens && byte < 256; ++byte) {
    AddToken(&v, fmt::format("<0x{:02X}>", byte), manifest::TokenType::kByte);
  }
  float score = 0;
  for (const std::string_view piece : {"\u2581t",
                                       "he",
                                       "\u2581the",
                                       "in",
                                       "\u2581a",
                                       "ing",
                                       "\u2581\u2581",
                                       "\u00E9",
                                       "\u65E5\u672C",
                                       "\u2581",
                                       "a",
                                       "b",
                                       "e",
                                       "g",
                                       "h",
                                       "i",
                                       "n",
                                       "s",
                                       "t",
                                       "\u65E5",
                                       "\u672C",
                                       "\U0001F600"}) {
    AddToken(&v, std::string(piece), manifest::TokenType::kNormal, score);
    score -= 1;
  }
  AddToken(&v, "<tool>", manifest::TokenType::kUserDefined);
  return v;
}

}  // namespace bellhop::text
