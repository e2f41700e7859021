// Context limits, shifts, stop strings and configuration values at their edges.
#include <gtest/gtest.h>

#include <limits>

#include "faults/variant.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();

engine::GenerateRequest Greedy(std::vector<TokenId> prompt, int32_t max_tokens) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.greedy = true;
  request.ignore_eos = true;
  request.max_tokens = max_tokens;
  return request;
}

std::string OddModel() { return RepoPath("tests/golden/arch/qwen3moe-odd.gguf"); }

TEST(ContextLimitTest, PromptAtTheLimit) {
  for (const uint32_t context : {1u, 2u, 63u, 64u, 65u, 128u}) {
    const auto engine = OpenEngine(OddModel(), [&](auto& c) { c.context.context_tokens = context; });
    const auto limit = static_cast<size_t>(context);
    // The last row's logits give one token more than there are rows.
    if (limit > 1) {
      const auto below = engine->Generate(Greedy(MixedIds(limit - 1, 200), -1));
      ASSERT_TRUE(below.ok()) << below.status().ToString();
      EXPECT_EQ(below->ids.size(), 2u);
      EXPECT_EQ(below->reason, engine::FinishReason::kLength);
    }
    const auto full = engine->Generate(Greedy(MixedIds(limit, 200), -1));
    ASSERT_TRUE(full.ok()) << full.status().ToString();
    EXPECT_EQ(full->ids.size(), 1u);
    EXPECT_EQ(full->reason, engine::FinishReason::kLength);
    const auto over = engine->Generate(Greedy(MixedIds(limit + 1, 200), -1));
    EXPECT_EQ(over.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(over.status().message().find(std::to_string(limit + 1)), std::string_view::npos);
    EXPECT_EQ(engine->Logits(MixedIds(limit + 1, 200), true, false).status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(engine->Generate(Greedy(MixedIds(limit, 200), 1)).ok());
  }
}

TEST(ContextShiftTest, EveryKeepAndContextGoesOn) {
  for (const uint32_t context : {1u, 2u, 3u, 17u}) {
    for (const int32_t keep : {-1, 0, 1, 5, 1000}) {
      const auto engine = OpenEngine(OddModel(), [&](auto& c) {
        c.context.context_tokens = context;
        c.context.shift = true;
        c.context.keep_tokens = keep;
        c.runtime.threads = 1;
      });
      for (const size_t prompt : {size_t{1}, static_cast<size_t>(context)}) {
        const auto result = engine->Generate(Greedy(MixedIds(prompt, 200), 24));
        ASSERT_TRUE(result.ok()) << context << " " << keep << ": " << result.status().ToString();
        EXPECT_EQ(result->ids.size(), 24u) << context << " " << keep;
        EXPECT_EQ(result->context_shifts > 0, prompt + 23 > context) << context << " " << keep;
      }
    }
  }
}

// After a shift the engine is where a fresh one is that reads the kept tokens and the newer half.
TEST(ContextShiftTest, EqualsAFreshReadOfWhatIsKept) {
  constexpr int32_t kContext = 40;
  const std::vector<TokenId> prompt = MixedIds(12, 200);
  for (const int32_t keep : {0, 5, -1}) {
    const auto engine = OpenEngine(OddModel(), [&](auto& c) {
      Exact(c);
      c.context.context_tokens = kContext;
      c.context.shift = true;
      c.context.keep_tokens = keep;
    });
    const auto shifted = engine->Generate(Greedy(prompt, kContext));
    ASSERT_TRUE(shifted.ok());
    ASSERT_EQ(shifted->context_shifts, 1);
    std::vector<TokenId> text = prompt;
    text.insert(text.end(), shifted->ids.begin(), shifted->ids.end());
    const int32_t kept = keep < 0 ? static_cast<int32_t>(prompt.size()) : keep;
    const int32_t dropped = (kContext - kept) / 2;
    // Tokens 0 .. kContext - 1 filled the context; the next one was drawn before the shift.
    std::vector<TokenId> read(text.begin(), text.begin() + kept);
    read.insert(read.end(), text.begin() + kept + dropped, text.begin() + kContext + 1);
    const auto fresh = OpenEngine(OddModel(), Exact)->Generate(Greedy(read, 5));
    ASSERT_TRUE(fresh.ok());
    EXPECT_EQ(fresh->ids, std::vector<TokenId>(text.begin() + kContext + 1, text.begin() + kContext + 6)) << keep;
  }
}

TEST(ConfigurationTest, ImpossibleValuesNameTheFlag) {
  struct Case {
    Adjust adjust;
    std::string flag;
  };
  const std::vector<Case> cases = {
      {[](auto& c) { c.context.context_tokens = 257; }, "--ctx-size"},
      {[](auto& c) { c.context.context_tokens = 3000000000u; }, "--ctx-size"},
      {[](auto& c) { c.context.batch_rows = 0; }, "--batch-size"},
      {[](auto& c) { c.context.batch_rows = 65537; }, "--batch-size"},
      {[](auto& c) { c.context.batch_rows = UINT32_MAX; }, "--batch-size"},
      {[](auto& c) { c.runtime.threads = -1; }, "--threads"},
      {[](auto& c) { c.runtime.threads = 1025; }, "--threads"},
      {[](auto& c) { c.runtime.isa = "sse9"; }, "sse9"},
      {[](auto& c) { c.runtime.isa = ""; }, "ISA"},
      {[](auto& c) { c.runtime.ram_bytes = 0; }, "--ram"},
  };
  for (const Case& test : cases) {
    const Status status = LoadStatus(OddModel(), test.adjust);
    ASSERT_FALSE(status.ok()) << test.flag;
    EXPECT_NE(status.message().find(test.flag), std::string_view::npos) << status.ToString();
  }
}

TEST(ConfigurationTest, AContextBeyondItsTypeOnAFileThatStatesNone) {
  const VariantDir dir;
  Variant v = Variant::Arch("qwen3moe-odd");
  const std::string path = dir.Write(v.RemoveKey(".context_length"));
  const auto status = LoadStatus(path, [](auto& c) { c.context.context_tokens = 3000000000u; });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--ctx-size"), std::string_view::npos) << status.ToString();
  // The largest one is a matter of memory: refused by the plan or the allocator with a remedy, never a crash.
  const auto large = LoadStatus(path, [](auto& c) { c.context.context_tokens = kMax; });
  EXPECT_EQ(large.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(large.message().find("--ctx-size"), std::string_view::npos) << large.ToString();
  const auto engine = OpenEngine(path);
  EXPECT_EQ(engine->info().context, 8192);
  EXPECT_EQ(engine->info().trained_context, 0);
}

TEST(ConfigurationTest, RequestsWithExtremeNumbers) {
  const auto engine = OpenEngine(OddModel());
  EXPECT_EQ(engine->Bench({.tokens = kMax, .depth = 1}, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Bench({.tokens = 1, .depth = kMax}, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Bench({.tokens = 0}, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Bench({.tokens = 5, .depth = -1}, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Bench({.tokens = 200, .depth = 56}, 0)->seconds.size(), 0u);
  const std::vector<TokenId> ids = MixedIds(30, 200);
  for (const int32_t window : {kMax, 0, -1, 1, 257}) {
    EXPECT_EQ(engine->Perplexity(ids, window, {}).status().code(), StatusCode::kInvalidArgument) << window;
  }
  EXPECT_EQ(engine->Perplexity({ids.data(), 1}, 16, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Perplexity({}, 16, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(engine->CountRoutes({}, {}).ok());
  EXPECT_EQ(engine->Generate(Greedy(ids, kMax))->ids.size(), 256 - ids.size() + 1);
  EXPECT_EQ(engine->Logits({}, true, false).status().code(), StatusCode::kInvalidArgument);
}

// The shipped model's greedy continuation, and stops made from it.
class StopStringTest : public testing::Test {
 protected:
  StopStringTest() : engine_(OpenEngine(ShippedModel(), [](auto& c) { c.runtime.threads = 1; })) {
    prompt_ = ReadJson("tests/golden/tiny-moe/short.json")["ids"].get<std::vector<TokenId>>();
    text_ = engine_->Generate(Greedy(prompt_, 40))->text;
  }
  engine::GenerateResult Run(const std::vector<std::string>& stop, int32_t max_tokens = 40) {
    engine::GenerateRequest request = Greedy(prompt_, max_tokens);
    request.stop = stop;
    std::string streamed;
    request.on_text = [&](std::string_view piece) { streamed += piece; };
    auto result = engine_->Generate(request);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(streamed, result->text);
    return std::move(result).value();
  }
  // Between two characters: stops must be whole ones.
  bool IsBoundary(size_t at) const { return at >= text_.size() || (text_[at] & 0xC0) != 0x80; }

  std::unique_ptr<engine::TextEngine> engine_;
  std::vector<TokenId> prompt_;
  std::string text_;
};

TEST_F(StopStringTest, EverySubstringCutsBeforeItsFirstPlace) {
  ASSERT_GT(text_.size(), 60u);
  for (size_t begin = 0; begin < 50; begin += 7) {
    for (const size_t length : {1u, 2u, 9u}) {
      if (!IsBoundary(begin) || !IsBoundary(begin + length)) continue;
      const std::string stop = text_.substr(begin, length);
      const engine::GenerateResult result = Run({stop});
      EXPECT_EQ(result.text, text_.substr(0, text_.find(stop))) << "'" << stop << "'";
      EXPECT_EQ(result.reason, engine::FinishReason::kStop);
    }
  }
}

TEST_F(StopStringTest, OfOverlappingStopsTheOneThatEndsFirstCuts) {
  const std::string outer = text_.substr(20, 12), inner = text_.substr(24, 3);
  ASSERT_EQ(text_.find(inner), 24u);
  // The inner one is complete first, wherever the other began and however the list is ordered.
  EXPECT_EQ(Run({outer, inner}).text, Run({inner, outer}).text);
  EXPECT_EQ(Run({outer, inner}).text, text_.substr(0, 24));
  const std::string left = text_.substr(18, 6), right = text_.substr(21, 8);
  EXPECT_EQ(Run({right, left}).text, text_.substr(0, text_.find(left)));
}

TEST_F(StopStringTest, ABeginningOfAStopThatNeverComesIsGivenOut) {
  const std::string never = text_.substr(text_.size() - 4) + "\x01";
  const engine::GenerateResult result = Run({never});
  EXPECT_EQ(result.text, text_);
  EXPECT_EQ(result.reason, engine::FinishReason::kLength);
}

TEST_F(StopStringTest, TheTextOfASpecialTokenStopsOnlyWhenItIsText) {
  engine::GenerateRequest request = Greedy(prompt_, 40);
  request.sampling.logit_bias = {{4095, 1e9f}};  // <|im_end|>
  request.stop = {"<|im_end|>"};
  const auto hidden = engine_->Generate(request);
  ASSERT_TRUE(hidden.ok());
  EXPECT_EQ(hidden->text, "");
  EXPECT_EQ(hidden->reason, engine::FinishReason::kLength);
  request.special = true;
  const auto shown = engine_->Generate(request);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ(shown->text, "");
  EXPECT_EQ(shown->reason, engine::FinishReason::kStop);
}

}  // namespace
}  // namespace bellhop::test
