// Perplexity of the shipped model against the reference of its model card.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/model_files.h"

namespace bellhop::test {
namespace {

TEST(PerplexityTest, WindowsOfTheReferenceSample) {
  const nlohmann::json golden = ReadJson("tests/golden/tiny-moe/perplexity.json");
  const auto ids = golden["sample_ids"].get<std::vector<TokenId>>();
  const auto sums = golden["sample_window_nll_sums"].get<std::vector<double>>();
  const auto window = golden["window"].get<int32_t>();
  for (const config::ActMode act : {config::ActMode::kF32, config::ActMode::kAuto}) {
    auto engine = OpenEngine(ShippedModel(), [&](auto& c) { c.context.act = act; });
    const double tolerance = act == config::ActMode::kF32 ? 1e-5 : 2e-3;
    double total = 0;
    for (size_t w = 0; w < sums.size(); ++w) {
      const HostSpan<const TokenId> part(ids.data() + w * static_cast<size_t>(window), static_cast<size_t>(window));
      const auto result = engine->Perplexity(part, window, {});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      EXPECT_EQ(result->scored, window - 1);
      EXPECT_NEAR(result->nll_sum / sums[w], 1, tolerance);
      total += result->nll_sum;
    }
    const auto all = engine->Perplexity(ids, window, {});
    ASSERT_TRUE(all.ok());
    EXPECT_NEAR(all->nll_sum / total, 1, 1e-13);  // the same terms, added in another order
    EXPECT_EQ(all->windows, 4);
  }
}

// Whole sources of the held-out text; the others are the same rule over more tokens.
TEST(PerplexityTest, HeldOutSourcesWithinHalfAPercentOfTheModelCard) {
  const nlohmann::json sources = ReadJson("tests/golden/tiny-moe/perplexity_sources.json")["sources"];
  auto engine = OpenEngine(ShippedModel());
  for (const std::string name : {"jargon", "chat-story"}) {
    const std::string text = ReadText("tests/golden/tiny-moe/heldout-" + name + ".txt");
    const auto ids = engine->Tokenize(text, false, true);
    ASSERT_TRUE(ids.ok());
    const auto result = engine->Perplexity(*ids, 512, {});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->scored, sources[name]["scored_tokens"].get<int64_t>());
    EXPECT_NEAR(result->perplexity() / sources[name]["perplexity"].get<double>(), 1, 5e-3) << name;
  }
}

TEST(PerplexityTest, BadWindowsAreErrors) {
  auto engine = OpenEngine(ShippedModel());
  const std::vector<TokenId> ids(600, 5);
  EXPECT_EQ(engine->Perplexity(ids, 1, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Perplexity(ids, 1 << 20, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Perplexity(HostSpan<const TokenId>(ids.data(), 1), 512, {}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace bellhop::test
