// Tokens recorded from other implementations: the shipped model's own tokenizer, and small vocabularies for every
// pre-tokenizer and for SPM (tools/make_tokenizer_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace bellhop::text {
namespace {

using manifest::TokenType;
using nlohmann::json;

json ReadGolden(const std::string& name) {
  std::ifstream file(std::string(BELLHOP_SOURCE_DIR) + "/tests/golden/" + name);
  EXPECT_TRUE(file.good()) << name;
  return json::parse(file);
}

std::unique_ptr<Tokenizer> MakeTokenizer(const manifest::Vocabulary& vocabulary) {
  auto made = Tokenizer::Create(vocabulary);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(made).value() : nullptr;
}

// The shipped model's vocabulary, as its GGUF file states it.
manifest::Vocabulary ShippedVocabulary() {
  const json file = ReadGolden("tiny-moe/tokenizer.json");
  manifest::Vocabulary v;
  v.model = "gpt2";
  v.pre = "qwen2";
  v.tokens.resize(4096);
  v.types.assign(4096, TokenType::kNormal);
  for (const auto& [text, id] : file["model"]["vocab"].items()) v.tokens.at(id.get<size_t>()) = text;
  for (const json& added : file["added_tokens"]) {
    const size_t id = added["id"].get<size_t>();
    v.tokens.at(id) = added["content"].get<std::string>();
    v.types.at(id) = TokenType::kControl;
  }
  for (const json& merge : file["model"]["merges"]) {
    v.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  v.eos = v.eot = 4095;
  v.bos = v.padding = 4093;
  v.add_bos = false;
  return v;
}

void ExpectStreamEqualsDecode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool special) {
  StreamDecoder decoder(tokenizer, special);
  std::string streamed;
  for (const TokenId id : ids) {
    const std::string part = decoder.Push(id);
    EXPECT_EQ(SanitizeUtf8(part), part);
    streamed += part;
  }
  streamed += decoder.Flush();
  EXPECT_EQ(streamed, SanitizeUtf8(tokenizer.Decode(ids, special)));
}

TEST(ShippedTokenizerTest, RecordedStringsTokenizeIdenticallyAndRoundTrip) {
  const manifest::Vocabulary vocabulary = ShippedVocabulary();
  const auto tokenizer = MakeTokenizer(vocabulary);
  ASSERT_NE(tokenizer, nullptr);
  const json cases = ReadGolden("tiny-moe/tokenizer_cases.json");
  ASSERT_EQ(cases.size(), 300u);
  for (const json& c : cases) {
    const auto text = c["text"].get<std::string>();
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok()) << ids.status().ToString();
    EXPECT_EQ(*ids, c["ids"].get<std::vector<TokenId>>()) << testing::PrintToString(text);
    EXPECT_EQ(tokenizer->Decode(*ids, true), text);
    ExpectStreamEqualsDecode(*tokenizer, *ids, true);
  }
}

TEST(ShippedTokenizerTest, PromptsTokenizeAsRecorded) {
  const manifest::Vocabulary vocabulary = ShippedVocabulary();
  const auto tokenizer = MakeTokenizer(vocabulary);
  ASSERT_NE(tokenizer, nullptr);
  for (const json& prompt : ReadGolden("tiny-moe/prompts.json")) {
    const auto name = prompt["name"].get<std::string>();
    const json golden = ReadGolden("tiny-moe/" + name + ".json");
    const auto text = golden["text"].get<std::string>();
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, golden["ids"].get<std::vector<TokenId>>()) << name;
    EXPECT_EQ(ids->size(), prompt["tokens"].get<size_t>());
    const auto greedy = golden["greedy_ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(SanitizeUtf8(tokenizer->Decode(greedy, true)), golden["greedy_text"].get<std::string>()) << name;
  }
  for (const json& chat : ReadGolden("tiny-moe/chat_template_cases.json")) {
    const auto ids = tokenizer->Encode(chat["text"].get<std::string>(), {});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, chat["ids"].get<std::vector<TokenId>>());
  }
}

TEST(ShippedTokenizerTest, ReportsItsSpecialTokens) {
  const manifest::Vocabulary vocabulary = ShippedVocabulary();
  const auto tokenizer = MakeTokenizer(vocabulary);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->size(), 4096);
  EXPECT_EQ(tokenizer->bos(), 4093);
  EXPECT_EQ(tokenizer->eos(), 4095);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_FALSE(tokenizer->strips_leading_space());
  EXPECT_EQ(tokenizer->EndOfGenerationSet(), (std::vector<TokenId>{4093, 4095}));
  EXPECT_TRUE(tokenizer->IsControl(4094));
  EXPECT_FALSE(tokenizer->IsControl(100));
  EXPECT_EQ(tokenizer->TokenFromText("<|im_start|>"), 4094);
}

manifest::Vocabulary GoldenVocabulary(const json& golden) {
  manifest::Vocabulary v;
  v.model = golden["model"].get<std::string>();
  v.pre = golden["pre"].get<std::string>();
  v.tokens = golden["tokens"].get<std::vector<std::string>>();
  if (golden.contains("merges")) v.merges = golden["merges"].get<std::vector<std::string>>();
  if (golden.contains("scores")) v.scores = golden["scores"].get<std::vector<float>>();
  if (golden.contains("types")) {
    for (const json& type : golden["types"]) v.types.push_back(static_cast<TokenType>(type.get<int32_t>()));
  }
  v.add_bos = false;
  return v;
}

class PreTokenizerGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(PreTokenizerGoldenTest, PiecesAreAsRecorded) {
  const json golden = ReadGolden(std::string("tokenizer/") + GetParam() + ".json");
  const auto spec = FindPreTokenizer(GetParam());
  ASSERT_TRUE(spec.ok());
  ASSERT_GE(golden["cases"].size(), 250u);
  auto scratch = RegexScratch::Create();
  ASSERT_TRUE(scratch.ok());
  for (const bool jit : {true, false}) {
    const auto pre_tokenizer = PreTokenizer::Create(*spec, jit);
    ASSERT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status().ToString();
    for (const json& c : golden["cases"]) {
      const auto text = c["text"].get<std::string>();
      std::vector<TextPiece> pieces;
      ASSERT_TRUE(pre_tokenizer->Split(text, &*scratch, &pieces).ok());
      std::vector<size_t> lengths;
      for (const TextPiece& piece : pieces) lengths.push_back(piece.end - piece.begin);
      EXPECT_EQ(lengths, c["pieces"].get<std::vector<size_t>>()) << c.dump();
    }
  }
}

TEST_P(PreTokenizerGoldenTest, TokensAreAsRecordedAndRoundTrip) {
  const json golden = ReadGolden(std::string("tokenizer/") + GetParam() + ".json");
  const manifest::Vocabulary vocabulary = GoldenVocabulary(golden);
  const auto tokenizer = MakeTokenizer(vocabulary);
  ASSERT_NE(tokenizer, nullptr);
  for (const json& c : golden["cases"]) {
    const auto text = c["text"].get<std::string>();
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok()) << ids.status().ToString();
    EXPECT_EQ(*ids, c["ids"].get<std::vector<TokenId>>()) << c.dump();
    EXPECT_EQ(tokenizer->Decode(*ids, true), text);
    ExpectStreamEqualsDecode(*tokenizer, *ids, false);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PreTokenizerGoldenTest,
                         testing::Values("llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "gpt-2", "refact",
                                         "deepseek-v3", "deepseek-llm", "default"));

TEST(SpmGoldenTest, TokensAreAsRecordedAndRoundTrip) {
  const json golden = ReadGolden("tokenizer/spm.json");
  const manifest::Vocabulary vocabulary = GoldenVocabulary(golden);
  const auto tokenizer = MakeTokenizer(vocabulary);
  ASSERT_NE(tokenizer, nullptr);
  ASSERT_GE(golden["cases"].size(), 250u);
  for (const json& c : golden["cases"]) {
    const auto text = c["text"].get<std::string>();
    const auto ids = tokenizer->Encode(text, {});
    ASSERT_TRUE(ids.ok()) << ids.status().ToString();
    EXPECT_EQ(*ids, c["ids"].get<std::vector<TokenId>>()) << c.dump();
    EXPECT_EQ(tokenizer->Decode(*ids, true), text);
    ExpectStreamEqualsDecode(*tokenizer, *ids, true);
  }
}

}  // namespace
}  // namespace bellhop::text
