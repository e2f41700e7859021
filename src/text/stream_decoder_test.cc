#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_test_vocab.h"

namespace bellhop::text {
namespace {

std::unique_ptr<Tokenizer> Make(const manifest::Vocabulary& vocabulary) {
  auto made = Tokenizer::Create(vocabulary);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(made).value() : nullptr;
}

TEST(StreamDecoderTest, CharactersWaitForTheirLastToken) {
  const manifest::Vocabulary v = ByteVocabulary("qwen2");
  const auto tokenizer = Make(v);
  for (const std::string text : {"\u0436", "\u65E5", "\U0001F600"}) {  // 2, 3 and 4 tokens
    StreamDecoder decoder(*tokenizer, false);
    for (size_t i = 0; i < text.size(); ++i) {
      EXPECT_EQ(decoder.Push(static_cast<uint8_t>(text[i])), i + 1 < text.size() ? "" : text);
    }
    EXPECT_EQ(decoder.Flush(), "");
  }
}

TEST(StreamDecoderTest, EndInsideACharacterGivesOneReplacement) {
  const manifest::Vocabulary v = ByteVocabulary("qwen2");
  const auto tokenizer = Make(v);
  StreamDecoder decoder(*tokenizer, false);
  EXPECT_EQ(decoder.Push('a'), "a");
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Push(0x98), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoderTest, BytesThatCannotBecomeValidComeOutAtOnce) {
  const manifest::Vocabulary v = ByteVocabulary("qwen2");
  const auto tokenizer = Make(v);
  StreamDecoder decoder(*tokenizer, false);
  EXPECT_EQ(decoder.Push(0xFF), "\uFFFD");
  EXPECT_EQ(decoder.Push(0xE6), "");
  EXPECT_EQ(decoder.Push('b'), "\uFFFDb");
  EXPECT_EQ(decoder.Push(0xE0), "");
  EXPECT_EQ(decoder.Push(0x80), "\uFFFD\uFFFD");
}

TEST(StreamDecoderTest, LeadingSpaceIsStrippedOnce) {
  const manifest::Vocabulary v = SmallSpmVocabulary();
  const auto tokenizer = Make(v);
  const auto id = [&](const char* text) { return *tokenizer->TokenFromText(text); };
  StreamDecoder decoder(*tokenizer, false);
  EXPECT_EQ(decoder.Push(1), "");  // control: still at the start
  EXPECT_EQ(decoder.Push(id("\u2581\u2581")), " ");
  EXPECT_EQ(decoder.Push(id("\u2581the")), " the");
}

TEST(StreamDecoderTest, JoinedStreamEqualsSanitizedDecode) {
  std::mt19937 random(41);
  const manifest::Vocabulary vocabularies[] = {SmallBpeVocabulary("qwen2"), SmallSpmVocabulary()};
  for (const manifest::Vocabulary& v : vocabularies) {
    const auto tokenizer = Make(v);
    for (int round = 0; round < 2000; ++round) {
      const bool special = random() % 2 == 0;
      std::vector<TokenId> ids;
      const size_t length = random() % 24;
      for (size_t i = 0; i < length; ++i) {
        // High bytes often, so that characters are cut and mixed up; some ids out of range.
        const auto high = static_cast<TokenId>(v.model == "gpt2" ? 0x80 : 3 + 0x80);
        ids.push_back(random() % 2 == 0 ? high + static_cast<TokenId>(random() % 128)
                                        : static_cast<TokenId>(random() % (v.tokens.size() + 5)) - 2);
      }
      StreamDecoder decoder(*tokenizer, special);
      std::string streamed;
      for (const TokenId id : ids) {
        const std::string part = decoder.Push(id);
        ASSERT_EQ(SanitizeUtf8(part), part);
        streamed += part;
      }
      streamed += decoder.Flush();
      ASSERT_EQ(streamed, SanitizeUtf8(tokenizer->Decode(ids, special)));
    }
  }
}

}  // namespace
}  // namespace bellhop::text
