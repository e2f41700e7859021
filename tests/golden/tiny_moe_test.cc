// The shipped model against outputs of transformers 5.17 in float32 (tests/golden/tiny-moe, made by
// tools/tiny_moe/make_golden.py).
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/model_files.h"
#include "support/npy.h"

namespace bellhop::test {
namespace {

using Json = nlohmann::json;

struct Prompt {
  std::string name;
  Json golden;
  std::vector<TokenId> ids;
};

std::vector<Prompt> Prompts() {
  std::vector<Prompt> prompts;
  for (const Json& entry : ReadJson("tests/golden/tiny-moe/prompts.json")) {
    Prompt p{entry["name"], ReadJson("tests/golden/tiny-moe/" + entry["name"].get<std::string>() + ".json"), {}};
    p.ids = p.golden["ids"].get<std::vector<TokenId>>();
    prompts.push_back(std::move(p));
  }
  return prompts;
}

struct Bounds {
  double relative_l2, absolute, gap;
};

// Routes equal to the reference as sets (two near-equal weights may swap places) wherever the reference's gap between
// the last chosen and the first rejected expert exceeds the bound.
void ExpectRoutesEqual(const engine::LogitsResult& result, const Prompt& prompt, double gap) {
  const Json& experts = prompt.golden["experts"];
  const Json& gaps = prompt.golden["router_gap"];
  ASSERT_EQ(result.routes.size(), experts.size());
  size_t compared = 0;
  for (const engine::LogitsResult::Routes& routes : result.routes) {
    const auto layer = static_cast<size_t>(routes.layer);
    for (size_t t = 0; t < prompt.ids.size(); ++t) {
      if (gaps[layer][t].get<double>() <= gap) continue;
      ++compared;
      const auto used = static_cast<size_t>(routes.used);
      const std::set<int32_t> ours(routes.ids.begin() + static_cast<int64_t>(t * used),
                                   routes.ids.begin() + static_cast<int64_t>((t + 1) * used));
      EXPECT_EQ(ours, experts[layer][t].get<std::set<int32_t>>())
          << prompt.name << " layer " << layer << " token " << t;
    }
  }
  EXPECT_GT(compared, prompt.ids.size() * result.routes.size() / 2);  // the gap filter leaves most of them
}

// Returns how many prompts continue greedily as the reference does for all of its tokens.
int CheckPrompts(engine::TextEngine* engine, const Bounds& bounds) {
  const Npy last = ReadNpy(RepoPath("tests/golden/tiny-moe/last_logits.npy"));
  int equal = 0;
  size_t index = 0;
  for (const Prompt& prompt : Prompts()) {
    const auto result = engine->Logits(prompt.ids, false, true);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    if (!result.ok()) return 0;
    const float* expected = last.values.data() + static_cast<int64_t>(index++) * last.RowSize(1);
    const auto vocab = static_cast<size_t>(result->vocab);
    EXPECT_LE(RelativeL2(result->values.data(), expected, vocab), bounds.relative_l2) << prompt.name;
    EXPECT_LE(MaxAbsolute(result->values.data(), expected, vocab), bounds.absolute) << prompt.name;
    ExpectRoutesEqual(*result, prompt, bounds.gap);

    const auto greedy = prompt.golden["greedy_ids"].get<std::vector<TokenId>>();
    engine::GenerateRequest request;
    request.prompt = prompt.ids;
    request.sampling.greedy = true;
    request.ignore_eos = true;
    request.max_tokens = static_cast<int32_t>(greedy.size());
    const auto generated = engine->Generate(request);
    EXPECT_TRUE(generated.ok()) << generated.status().ToString();
    if (generated.ok()) equal += generated->ids == greedy;
  }
  EXPECT_EQ(index, 6u);
  return equal;
}

TEST(TinyMoeGoldenTest, ExactModeMatchesTheReference) {
  auto engine = OpenEngine(ShippedModel(), [](auto& c) { c.context.act = config::ActMode::kF32; });
  EXPECT_EQ(CheckPrompts(engine.get(), {.relative_l2 = 1e-4, .absolute = 1e-3, .gap = 1e-4}), 6);
}

TEST(TinyMoeGoldenTest, DefaultModeStaysWithinItsBounds) {
  auto engine = OpenEngine(ShippedModel());
  EXPECT_GE(CheckPrompts(engine.get(), {.relative_l2 = 4e-3, .absolute = 6e-2, .gap = 1e-3}), 5);
}

TEST(TinyMoeGoldenTest, EveryPositionOfTheShortPrompt) {
  auto engine = OpenEngine(ShippedModel(), [](auto& c) { c.context.act = config::ActMode::kF32; });
  const auto ids = ReadJson("tests/golden/tiny-moe/short.json")["ids"].get<std::vector<TokenId>>();
  const Npy expected = ReadNpy(RepoPath("tests/golden/tiny-moe/short_logits.npy"));
  const auto result = engine->Logits(ids, true, false);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->values.size(), expected.values.size());
  EXPECT_LE(RelativeL2(result->values.data(), expected.values.data(), expected.values.size()), 1e-5);
}

TEST(TinyMoeGoldenTest, TokenizesTheReferenceStrings) {
  auto engine = OpenEngine(ShippedModel());
  size_t cases = 0;
  for (const Json& c : ReadJson("tests/golden/tiny-moe/tokenizer_cases.json")) {
    const auto text = c["text"].get<std::string>();
    const auto ids = engine->Tokenize(text, true, true);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, c["ids"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(engine->Detokenize(*ids, true), text);
    ++cases;
  }
  EXPECT_EQ(cases, 300u);
  for (const Prompt& prompt : Prompts()) {
    EXPECT_EQ(*engine->Tokenize(prompt.golden["text"].get<std::string>(), true, true), prompt.ids) << prompt.name;
  }
}

TEST(TinyMoeGoldenTest, RendersTheReferenceChats) {
  auto engine = OpenEngine(ShippedModel());
  for (const auto& c : ReadJson("tests/golden/tiny-moe/chat_template_cases.json")) {
    const auto messages = nlohmann::ordered_json::parse(c["messages"].dump());
    const auto text = engine->RenderChat(messages, c["add_generation_prompt"].get<bool>(), {});
    ASSERT_TRUE(text.ok()) << text.status().ToString();
    EXPECT_EQ(*text, c["text"].get<std::string>());
    EXPECT_EQ(*engine->TokenizeChat(*text), c["ids"].get<std::vector<TokenId>>());
  }
}

}  // namespace
}  // namespace bellhop::test
