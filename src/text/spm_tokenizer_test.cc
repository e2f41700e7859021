#include "text/spm_tokenizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/tokenizer_test_vocab.h"

namespace bellhop::text {
namespace {

using manifest::TokenType;

std::unique_ptr<Tokenizer> Make(const manifest::Vocabulary& vocabulary) {
  auto made = Tokenizer::Create(vocabulary);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(made).value() : nullptr;
}

std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return ids.ok() ? std::move(ids).value() : std::vector<TokenId>();
}

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = true};

TEST(SpmTokenizerTest, DefaultsOfTheModel) {
  const manifest::Vocabulary v = SmallSpmVocabulary();
  const auto tokenizer = Make(v);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_TRUE(tokenizer->strips_leading_space());
  EXPECT_TRUE(tokenizer->IsControl(0));
  EXPECT_TRUE(tokenizer->IsControl(1));
  EXPECT_EQ(tokenizer->EndOfGenerationSet(), (std::vector<TokenId>{2}));
  EXPECT_EQ(Encode(*tokenizer, ""), (std::vector<TokenId>{1}));
}

TEST(SpmTokenizerTest, ScoreDecidesAndMissingCharactersBecomeBytes) {
  const manifest::Vocabulary v = SmallSpmVocabulary();
  const auto tokenizer = Make(v);
  const auto id = [&](const char* text) { return *tokenizer->TokenFromText(text); };
  // "▁t" and "he" score above "in"; together they make "▁the".
  EXPECT_EQ(Encode(*tokenizer, "the thin"),
            (std::vector<TokenId>{1, id("\u2581the"), id("\u2581t"), id("h"), id("in")}));
  EXPECT_EQ(Encode(*tokenizer, "\u00E9z\u65E5", kPlain),
            (std::vector<TokenId>{id("\u2581"), id("\u00E9"), id("<0x7A>"), id("\u65E5")}));
  EXPECT_EQ(Encode(*tokenizer, "\u6771", kPlain),
            (std::vector<TokenId>{id("\u2581"), id("<0xE6>"), id("<0x9D>"), id("<0xB1>")}));
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "the \u6771 \U0001F600"), false), "the \u6771 \U0001F600");
}

TEST(SpmTokenizerTest, SpacePrefixComesFirstAndAfterSpecialTokens) {
  manifest::Vocabulary v = SmallSpmVocabulary();
  const auto tokenizer = Make(v);
  const auto id = [&](const char* text) { return *tokenizer->TokenFromText(text); };
  EXPECT_EQ(Encode(*tokenizer, "a<tool>a</s>b", kPlain),
            (std::vector<TokenId>{id("\u2581a"), id("<tool>"), id("\u2581a"), 2, id("\u2581"), id("b")}));
  v.add_space_prefix = false;
  const auto bare = Make(v);
  EXPECT_FALSE(bare->strips_leading_space());
  EXPECT_EQ(Encode(*bare, "a<tool>a", kPlain), (std::vector<TokenId>{id("a"), id("<tool>"), id("a")}));
  EXPECT_EQ(bare->Decode(Encode(*bare, " a"), false), " a");
}

TEST(SpmTokenizerTest, ControlAndByteTextsAreNotMergedFromText) {
  manifest::Vocabulary v = SmallSpmVocabulary();
  for (const char* piece : {"<", "/", ">", "</", "</s", "0", "x", "<0", "<0x", "4", "1", "<0x4", "<0x41"}) {
    AddToken(&v, piece, TokenType::kNormal, 10);
  }
  const auto tokenizer = Make(v);
  const EncodeOptions text_only{.add_special = false, .parse_special = false};
  for (const char* text : {"</s>", "<0x41>"}) {
    const std::vector<TokenId> ids = Encode(*tokenizer, text, text_only);
    for (const TokenId id : ids) EXPECT_NE(id, *tokenizer->TokenFromText(text)) << text;
    EXPECT_EQ(tokenizer->Decode(ids, false), text);
  }
}

TEST(SpmTokenizerTest, WithoutByteTokensUnknownStandsIn) {
  const manifest::Vocabulary v = SmallSpmVocabulary(false);
  const auto tokenizer = Make(v);
  EXPECT_EQ(Encode(*tokenizer, "z\u6771", kPlain), (std::vector<TokenId>{*tokenizer->TokenFromText("\u2581"), 0, 0}));
}

TEST(SpmTokenizerTest, AnyBytesRoundTrip) {
  const manifest::Vocabulary v = SmallSpmVocabulary();
  const auto tokenizer = Make(v);
  std::mt19937 random(23);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    const size_t length = random() % 40;
    for (size_t i = 0; i < length; ++i) {
      constexpr std::string_view kLikely = "thein gab  \xC3\xA9\xE6\x97\xA5";
      text += random() % 3 == 0 ? static_cast<char>(random()) : kLikely[random() % kLikely.size()];
    }
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;
    ASSERT_EQ(tokenizer->Decode(Encode(*tokenizer, text, {.add_special = false, .parse_special = false}), true), text)
        << testing::PrintToString(text);
  }
}

// The definition: a full scan per merge.
std::vector<TokenId> ReferenceEncode(const manifest::Vocabulary& v, std::vector<std::string> symbols) {
  std::map<std::string, TokenId> id_of;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (v.types[id] == TokenType::kNormal) id_of[v.tokens[id]] = static_cast<TokenId>(id);
  }
  while (true) {
    float best = -std::numeric_limits<float>::infinity();
    size_t best_at = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = id_of.find(symbols[i] + symbols[i + 1]);
      if (found == id_of.end() || v.scores[static_cast<size_t>(found->second)] <= best) continue;
      best = v.scores[static_cast<size_t>(found->second)];
      best_at = i;
    }
    if (best_at == symbols.size()) break;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) ids.push_back(id_of.at(symbol));
  return ids;
}

TEST(SpmTokenizerTest, EqualsTheReferenceOnRandomVocabularies) {
  std::mt19937 random(29);
  for (int round = 0; round < 60; ++round) {
    manifest::Vocabulary v = SmallSpmVocabulary();
    v.tokens.resize(259);
    v.types.resize(259);
    v.scores.resize(259);
    v.add_space_prefix = false;
    std::vector<std::string> made = {"a", "b", "\u65E5"};
    for (const std::string& letter : made) AddToken(&v, letter, TokenType::kNormal, -100);
    for (int i = 0; i < 30; ++i) {
      const std::string piece = made[random() % made.size()] + made[random() % made.size()];
      if (piece.size() > 16 || std::find(made.begin(), made.end(), piece) != made.end()) continue;
      AddToken(&v, piece, TokenType::kNormal, static_cast<float>(random() % 6));  // ties are frequent
      made.push_back(piece);
    }
    const auto tokenizer = Make(v);
    for (int text_round = 0; text_round < 20; ++text_round) {
      std::vector<std::string> symbols;
      std::string text;
      const size_t length = 1 + random() % 60;
      for (size_t i = 0; i < length; ++i) {
        symbols.push_back(made[random() % 3]);
        text += symbols.back();
      }
      ASSERT_EQ(Encode(*tokenizer, text, kPlain), ReferenceEncode(v, symbols)) << text;
    }
  }
}

TEST(SpmTokenizerTest, LargeTexts) {
  const manifest::Vocabulary v = SmallSpmVocabulary();
  const auto tokenizer = Make(v);
  for (const char* unit : {"a", " ", "the ", "\u65E5\u672C", "\xFF"}) {
    std::string text;
    while (text.size() < 1 << 17) text += unit;
    EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text), false), text) << testing::PrintToString(unit);
  }
}

TEST(SpmTokenizerTest, CorruptVocabulariesNameTheEntry) {
  const auto expect_corrupt = [](const manifest::Vocabulary& v, std::string_view named) {
    const auto made = Tokenizer::Create(v);
    ASSERT_FALSE(made.ok()) << named;
    EXPECT_EQ(made.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(made.status().message().find(named), std::string::npos) << made.status().ToString();
  };
  manifest::Vocabulary v = SmallSpmVocabulary();
  v.scores.clear();
  expect_corrupt(v, "tokenizer.ggml.scores has 0 entries");
  v = SmallSpmVocabulary();
  v.scores[20] = std::numeric_limits<float>::quiet_NaN();
  expect_corrupt(v, "tokenizer.ggml.scores[20]");
  v = SmallSpmVocabulary();
  v.tokens[3 + 0x41] = "<0x1234>";
  expect_corrupt(v, "<0x1234>");
  v = SmallSpmVocabulary();
  v.tokens[3 + 0x41] = "gone";
  v.types[3 + 0x41] = TokenType::kNormal;
  expect_corrupt(v, "<0x41> is missing");
}

}  // namespace
}  // namespace bellhop::text
