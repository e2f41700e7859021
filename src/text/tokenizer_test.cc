#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "text/pretokenizer.h"
#include "text/tokenizer_specials.h"
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

void ExpectCorrupt(const manifest::Vocabulary& vocabulary, std::string_view named) {
  const auto made = Tokenizer::Create(vocabulary);
  ASSERT_FALSE(made.ok()) << named;
  EXPECT_EQ(made.status().code(), StatusCode::kCorrupt) << made.status().ToString();
  EXPECT_NE(made.status().message().find(named), std::string::npos) << made.status().ToString();
}

TEST(TokenizerTest, UnknownModelAndPreTokenizerNameWhatIsSupported) {
  manifest::Vocabulary v = SmallBpeVocabulary("qwen2");
  v.model = "t5";
  auto made = Tokenizer::Create(v);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(made.status().message().find("\"t5\""), std::string::npos);
  EXPECT_NE(made.status().message().find("gpt2"), std::string::npos);
  v.model = "";
  made = Tokenizer::Create(v);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  v.model = "gpt2";
  v.pre = "nonesuch";
  made = Tokenizer::Create(v);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(made.status().message().find("nonesuch"), std::string::npos);
  EXPECT_NE(made.status().message().find("llama-bpe"), std::string::npos);
}

TEST(TokenizerTest, CorruptVocabulariesNameTheEntry) {
  const manifest::Vocabulary good = SmallBpeVocabulary("qwen2");
  manifest::Vocabulary v = good;
  v.tokens.clear();
  ExpectCorrupt(v, "tokenizer.ggml.tokens");
  v = good;
  v.types.pop_back();
  ExpectCorrupt(v, "tokenizer.ggml.token_type");
  v = good;
  v.types[7] = static_cast<TokenType>(9);
  ExpectCorrupt(v, "token_type[7]");
  v = good;
  v.tokens[260] = v.tokens[65];
  ExpectCorrupt(v, "[65] and [260]");
  v = good;
  v.eos = static_cast<TokenId>(v.tokens.size());
  ExpectCorrupt(v, "eos_token_id");
  v = good;
  v.bos = -1;
  ExpectCorrupt(v, "bos_token_id is -1");
  v = good;
  v.fim_pad = 1 << 30;
  ExpectCorrupt(v, "fim_pad_token_id");
  v = good;
  v.merges.push_back("nospace");
  ExpectCorrupt(v, "merges[");
  v = good;
  v.tokens['A'] = "gone";
  ExpectCorrupt(v, "0x41");
}

TEST(TokenizerTest, HarmlessOdditiesAreAccepted) {
  manifest::Vocabulary v = SmallBpeVocabulary("qwen2");
  AddToken(&v, "", TokenType::kNormal);
  AddToken(&v, "", TokenType::kNormal);
  AddToken(&v, "[PAD]", TokenType::kUnused);
  AddToken(&v, "[PAD]", TokenType::kUnused);
  v.padding = 1 << 20;
  const auto tokenizer = Make(v);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "the [PAD]"), false), "the [PAD]");
  v.types.clear();  // all normal, and copies of a normal token are ambiguous
  ExpectCorrupt(v, "same text \"[PAD]\"");
}

TEST(TokenizerTest, SpecialTokensArePartitionedByOption) {
  const manifest::Vocabulary v = SmallBpeVocabulary("qwen2");
  const auto tokenizer = Make(v);
  const TokenId end = *tokenizer->TokenFromText("<|end|>");
  const TokenId tool = *tokenizer->TokenFromText("<tool>");
  const TokenId tools = *tokenizer->TokenFromText("<tool>s");
  EXPECT_EQ(Encode(*tokenizer, "a<|end|>b<tool>c<tool>s"), (std::vector<TokenId>{'a', end, 'b', tool, 'c', tools}));
  // Control tokens stay text unless asked for; user-defined ones never do.
  const std::vector<TokenId> plain = Encode(*tokenizer, "<|end|><tool>", {.add_special = true, .parse_special = false});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
  EXPECT_EQ(plain.back(), tool);
  EXPECT_EQ(tokenizer->Decode(plain, false), "<|end|><tool>");
  EXPECT_EQ(Encode(*tokenizer, "<|end|><|end|>"), (std::vector<TokenId>{end, end}));
  EXPECT_TRUE(Encode(*tokenizer, "").empty());
}

TEST(TokenizerTest, DecodingShowsControlTokensOnRequest) {
  manifest::Vocabulary v = SmallBpeVocabulary("qwen2");
  const TokenId unused = AddToken(&v, "[PAD0]", TokenType::kUnused);
  const auto tokenizer = Make(v);
  const TokenId end = *tokenizer->eos();
  const TokenId tool = *tokenizer->TokenFromText("<tool>");
  EXPECT_EQ(tokenizer->TokenBytes(end, true), "<|end|>");
  EXPECT_EQ(tokenizer->TokenBytes(end, false), "");
  EXPECT_EQ(tokenizer->TokenBytes(tool, false), "<tool>");
  EXPECT_EQ(tokenizer->TokenBytes(unused, true), "[PAD0]");
  EXPECT_EQ(tokenizer->TokenBytes(unused, false), "");
  EXPECT_EQ(tokenizer->TokenBytes(-1, true), "");
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->size(), true), "");
  EXPECT_EQ(tokenizer->TokenBytes(0xE9, true), "\xE9");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{'a', end, -5, 'b'}, false), "ab");
  EXPECT_FALSE(tokenizer->IsControl(-1));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(-1));
}

// The definition: tokens by decreasing length, each taking its occurrences in what is left.
std::vector<std::string> ReferenceSplit(std::vector<std::string> specials, const std::string& text) {
  std::stable_sort(specials.begin(), specials.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  std::vector<std::pair<std::string, bool>> parts = {{text, false}};
  for (const std::string& special : specials) {
    std::vector<std::pair<std::string, bool>> next;
    for (const auto& [part, done] : parts) {
      size_t at = 0;
      for (size_t hit = done ? std::string::npos : part.find(special); hit != std::string::npos;
           hit = part.find(special, at)) {
        next.emplace_back(part.substr(at, hit - at), false);
        next.emplace_back(special, true);
        at = hit + special.size();
      }
      next.emplace_back(part.substr(at), done);
    }
    parts = next;
  }
  std::vector<std::string> out;
  for (const auto& [part, done] : parts) {
    if (!part.empty()) out.push_back((done ? "!" : "") + part);
  }
  return out;
}

TEST(SpecialTokensTest, OverlapsGoToTheLongerToken) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    manifest::Vocabulary v;
    std::vector<std::string> specials;
    for (int i = 0; i < 6; ++i) {
      std::string special;
      const size_t length = 1 + random() % 5;
      for (size_t k = 0; k < length; ++k) special += static_cast<char>('a' + random() % 2);
      if (std::find(specials.begin(), specials.end(), special) == specials.end()) specials.push_back(special);
    }
    for (const std::string& special : specials) AddToken(&v, special, TokenType::kControl);
    const auto table = TokenTable::Create(v, {});
    ASSERT_TRUE(table.ok());
    std::string text;
    for (int k = 0; k < 40; ++k) text += static_cast<char>('a' + random() % 3);
    std::vector<std::string> got;
    for (const TextFragment& fragment : SpecialTokens(*table).Split(text, true)) {
      got.push_back((fragment.token >= 0 ? "!" : "") + std::string(fragment.text));
    }
    ASSERT_EQ(got, ReferenceSplit(specials, text)) << text;
    const auto plain = SpecialTokens(*table).Split(text, false);
    ASSERT_EQ(plain.size(), 1u);
    EXPECT_EQ(plain[0].text, text);
  }
}

TEST(TokenizerTest, BosAndEosFollowTheFileThenTheModel) {
  manifest::Vocabulary v = SmallBpeVocabulary("qwen2");
  const auto begin = *v.bos;
  const auto end = *v.eos;
  EXPECT_FALSE(Make(v)->adds_bos());
  EXPECT_EQ(Encode(*Make(v), "a"), (std::vector<TokenId>{'a'}));
  v.add_bos = true;
  v.add_eos = true;
  EXPECT_EQ(Encode(*Make(v), "a"), (std::vector<TokenId>{begin, 'a', end}));
  EXPECT_EQ(Encode(*Make(v), ""), (std::vector<TokenId>{begin, end}));
  EXPECT_EQ(Encode(*Make(v), "a", {.add_special = false, .parse_special = true}), (std::vector<TokenId>{'a'}));
  v.add_bos.reset();
  v.add_eos.reset();
  for (const char* pre : {"llama-bpe", "llama3", "tekken"}) {
    v.pre = pre;
    EXPECT_TRUE(Make(v)->adds_bos()) << pre;
  }
  v.add_bos = false;
  EXPECT_FALSE(Make(v)->adds_bos());
  v.add_bos = true;
  v.bos.reset();  // nothing to add
  EXPECT_FALSE(Make(v)->adds_bos());
  EXPECT_EQ(Make(v)->bos(), std::nullopt);
}

TEST(TokenizerTest, IgnoreMergesTakesWholePieces) {
  manifest::Vocabulary v = SmallBpeVocabulary("llama-bpe");
  const TokenId word = AddToken(&v, Visible(" zebra"), TokenType::kNormal);
  v.add_bos = false;
  EXPECT_EQ(Encode(*Make(v), "a zebra"), (std::vector<TokenId>{'a', word}));
  v.pre = "dbrx";
  EXPECT_EQ(Encode(*Make(v), "a zebra"), (std::vector<TokenId>{'a', ' ', 'z', 'e', 'b', 'r', 'a'}));
}

TEST(TokenizerTest, EndOfGenerationSet) {
  manifest::Vocabulary v = ByteVocabulary("qwen2");
  v.eos = AddToken(&v, "<stop>", TokenType::kControl);
  v.eot = 65;
  v.eom = 66;
  v.fim_pad = 67;
  const TokenId text_end = AddToken(&v, "<|endoftext|>", TokenType::kControl);
  const TokenId turn_end = AddToken(&v, "<|im_end|>", TokenType::kNormal);
  const TokenId deepseek = AddToken(&v, "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", TokenType::kControl);
  AddToken(&v, "<|fim_pad|>", TokenType::kControl);  // the stated id wins
  const TokenId repo = AddToken(&v, "<|repo_name|>", TokenType::kControl);
  const TokenId file = AddToken(&v, "<|file_sep|>", TokenType::kControl);
  AddToken(&v, "<|im_start|>", TokenType::kControl);
  const auto tokenizer = Make(v);
  EXPECT_EQ(tokenizer->EndOfGenerationSet(),
            (std::vector<TokenId>{65, 66, 67, *v.eos, text_end, turn_end, deepseek, repo, file}));
  for (const TokenId id : tokenizer->EndOfGenerationSet()) EXPECT_TRUE(tokenizer->IsEndOfGeneration(id));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(68));
}

TEST(TokenizerTest, GptOssMessagesGoOnAfterEnd) {
  manifest::Vocabulary v = ByteVocabulary("gpt-4o");
  const TokenId end = AddToken(&v, "<|end|>", TokenType::kControl);
  const TokenId channel = AddToken(&v, "<|channel|>", TokenType::kControl);
  const TokenId start = AddToken(&v, "<|start|>", TokenType::kControl);
  const TokenId returned = AddToken(&v, "<|return|>", TokenType::kControl);
  v.eos = returned;
  // Without <|call|> it is another model.
  EXPECT_TRUE(Make(v)->IsEndOfGeneration(end));
  EXPECT_TRUE(Make(v)->IsControl(channel));
  const TokenId call = AddToken(&v, "<|call|>", TokenType::kControl);
  const auto tokenizer = Make(v);
  EXPECT_EQ(tokenizer->EndOfGenerationSet(), (std::vector<TokenId>{returned, call}));
  EXPECT_FALSE(tokenizer->IsControl(channel));
  EXPECT_FALSE(tokenizer->IsControl(start));
  EXPECT_TRUE(tokenizer->IsControl(end));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{channel, 'a', end}, false), "<|channel|>a");
}

TEST(TokenizerTest, StrayBytesRoundTripInEveryModel) {
  std::mt19937 random(17);
  for (const std::string& pre : PreTokenizerNames()) {
    const manifest::Vocabulary v = SmallBpeVocabulary(pre);
    const auto tokenizer = Make(v);
    for (int round = 0; round < 60; ++round) {
      std::string text;
      const size_t length = random() % 50;
      for (size_t i = 0; i < length; ++i) {
        constexpr std::string_view kLikely = "ab  \n\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80'1";
        text += random() % 2 == 0 ? static_cast<char>(random()) : kLikely[random() % kLikely.size()];
      }
      const auto ids = Encode(*tokenizer, text, {.add_special = false, .parse_special = true});
      ASSERT_EQ(tokenizer->Decode(ids, true), text) << pre << testing::PrintToString(text);
    }
  }
  const manifest::Vocabulary v = SmallBpeVocabulary("qwen2");
  const auto tokenizer = Make(v);
  EXPECT_EQ(Encode(*tokenizer, "a\xFF\xE6\x97z"), (std::vector<TokenId>{'a', 0xFF, 0xE6, 0x97, 'z'}));
  EXPECT_EQ(Encode(*tokenizer, std::string_view("\0\0", 2)), (std::vector<TokenId>{0, 0}));
}

TEST(TokenizerTest, StrayByteWithoutTokenIsAnError) {
  manifest::Vocabulary v = ByteVocabulary("qwen2");
  v.tokens[0xFF] = "other";
  const auto tokenizer = Make(v);
  const auto ids = tokenizer->Encode("a\xFF", {});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(ids.status().message().find("0xFF"), std::string::npos);
}

TEST(TokenizerTest, LargeTextsOfOneKind) {
  const manifest::Vocabulary v = SmallBpeVocabulary("qwen2");
  const auto tokenizer = Make(v);
  for (const char* unit : {"a", "the ", "\xE6\x97\xA5", "<|end|>", "<", "<tool>", "\xFF", " "}) {
    std::string text;
    while (text.size() < 1 << 18) text += unit;
    EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text), true), text) << testing::PrintToString(unit);
  }
}

TEST(TokenizerTest, EncodesFromManyThreads) {
  const manifest::Vocabulary v = SmallBpeVocabulary("gpt-4o");
  const auto tokenizer = Make(v);
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the thing in " + std::to_string(i) + " \xE6\x97\xA5\xE6\x9C\xAC<tool>\n";
  const std::vector<TokenId> expected = Encode(*tokenizer, text);
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round) {
        const auto ids = tokenizer->Encode(text, {});
        equal[t] += ids.ok() && *ids == expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, (std::vector<int>{10, 10, 10, 10}));
}

}  // namespace
}  // namespace bellhop::text
