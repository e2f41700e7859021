// Generation through the engine: stops, limits, shifts, reuse, cancellation, bad input.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/model_files.h"

namespace bellhop::test {
namespace {

engine::GenerateRequest Greedy(std::vector<TokenId> prompt, int32_t max_tokens) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.greedy = true;
  request.ignore_eos = true;
  request.max_tokens = max_tokens;
  return request;
}

std::vector<TokenId> ShortPrompt() {
  return ReadJson("tests/golden/tiny-moe/short.json")["ids"].get<std::vector<TokenId>>();
}

TEST(GenerateTest, StreamEqualsTheWholeText) {
  auto engine = OpenEngine(ShippedModel());
  engine::GenerateRequest request = Greedy(ShortPrompt(), 48);
  std::string streamed;
  request.on_text = [&](std::string_view piece) { streamed += piece; };
  const auto result = engine->Generate(request);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->ids.size(), 48u);
  EXPECT_EQ(result->reason, engine::FinishReason::kLength);
  EXPECT_EQ(streamed, result->text);
  EXPECT_EQ(result->text, engine->Detokenize(result->ids, false));
}

TEST(GenerateTest, StopStringsCutExactlyBeforeThem) {
  auto engine = OpenEngine(ShippedModel());
  const auto whole = engine->Generate(Greedy(ShortPrompt(), 48));
  ASSERT_TRUE(whole.ok());
  const std::string stop = "he king s";  // begins and ends inside tokens
  ASSERT_NE(whole->text.find(stop), std::string::npos);
  engine::GenerateRequest request = Greedy(ShortPrompt(), 48);
  request.stop = {"never in the text", stop};
  const auto result = engine->Generate(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, engine::FinishReason::kStop);
  EXPECT_EQ(result->text, whole->text.substr(0, whole->text.find(stop)));
  request.stop = {""};
  EXPECT_EQ(engine->Generate(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(GenerateTest, EndsAtTheEndOfGeneration) {
  auto engine = OpenEngine(ShippedModel());
  const auto chat = ReadJson("tests/golden/tiny-moe/chat.json")["ids"].get<std::vector<TokenId>>();
  engine::GenerateRequest request = Greedy(chat, 400);
  request.ignore_eos = false;
  const auto result = engine->Generate(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, engine::FinishReason::kEndOfGeneration);
  EXPECT_LT(result->ids.size(), 400u);
  EXPECT_EQ(result->text.find("<|im_end|>"), std::string::npos);
}

TEST(GenerateTest, FullContextEndsOrShifts) {
  auto tight = [](config::EngineConfig& c) { c.context.context_tokens = 64; };
  const std::vector<TokenId> prompt = ShortPrompt();
  const auto full = OpenEngine(ShippedModel(), tight)->Generate(Greedy(prompt, 200));
  ASSERT_TRUE(full.ok()) << full.status().ToString();
  EXPECT_EQ(full->reason, engine::FinishReason::kLength);
  // 64 rows fit, and the last row's logits give one more token.
  EXPECT_EQ(full->ids.size(), 64 - prompt.size() + 1);

  const auto shifted = OpenEngine(ShippedModel(), [&](auto& c) {
                         tight(c);
                         c.context.shift = true;
                         c.context.keep_tokens = 4;
                       })->Generate(Greedy(prompt, 200));
  ASSERT_TRUE(shifted.ok()) << shifted.status().ToString();
  EXPECT_EQ(shifted->ids.size(), 200u);
  EXPECT_GE(shifted->context_shifts, 4);
  EXPECT_TRUE(std::equal(full->ids.begin(), full->ids.end(), shifted->ids.begin()));
}

TEST(GenerateTest, PromptLongerThanTheContextIsAnErrorWithBothNumbers) {
  auto engine = OpenEngine(ShippedModel(), [](auto& c) { c.context.context_tokens = 32; });
  const auto result = engine->Generate(Greedy(std::vector<TokenId>(33, 5), 4));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(result.status().message().find("33"), std::string_view::npos);
  EXPECT_NE(result.status().message().find("32"), std::string_view::npos);
  EXPECT_TRUE(engine->Generate(Greedy(std::vector<TokenId>(32, 5), 1)).ok());  // exactly full is fine
}

TEST(GenerateTest, EmptyPromptAndForeignTokensAreErrorsAndTheEngineLives) {
  auto engine = OpenEngine(ShippedModel());
  EXPECT_EQ(engine->Generate(Greedy({}, 4)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Generate(Greedy({1, 4096}, 4)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Generate(Greedy({-1}, 4)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(engine->Generate(Greedy({1}, 4)).ok());
  EXPECT_TRUE(engine->Generate(Greedy({1}, 0)).ok());
}

TEST(GenerateTest, ReusedPrefixGivesTheSameTokensAsAFreshEngine) {
  auto engine = OpenEngine(ShippedModel());
  std::vector<TokenId> first = ShortPrompt();
  const auto answer = engine->Generate(Greedy(first, 20));
  ASSERT_TRUE(answer.ok());
  std::vector<TokenId> second = first;
  second.insert(second.end(), answer->ids.begin(), answer->ids.end());
  second.push_back(17);
  const auto continued = engine->Generate(Greedy(second, 30));
  ASSERT_TRUE(continued.ok());
  EXPECT_EQ(continued->reused_tokens, static_cast<int32_t>(first.size()));
  const auto fresh = OpenEngine(ShippedModel())->Generate(Greedy(second, 30));
  ASSERT_TRUE(fresh.ok());
  EXPECT_EQ(continued->ids, fresh->ids);
  EXPECT_EQ(fresh->reused_tokens, 0);
}

TEST(GenerateTest, SeedsRepeatAndDiffer) {
  auto engine = OpenEngine(ShippedModel());
  engine::GenerateRequest request = Greedy(ShortPrompt(), 40);
  request.sampling.greedy = false;
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 7;
  const auto a = engine->Generate(request), b = engine->Generate(request);
  request.sampling.seed = 8;
  const auto c = engine->Generate(request);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->ids, b->ids);
  EXPECT_NE(a->ids, c->ids);
  request.sampling.top_p = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(engine->Generate(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(GenerateTest, CancelEndsCleanly) {
  auto engine = OpenEngine(ShippedModel());
  std::atomic<bool> cancel{false};
  engine::GenerateRequest request = Greedy(ShortPrompt(), 1000);
  request.cancel = &cancel;
  int pieces = 0;
  request.on_text = [&](std::string_view) {
    if (++pieces == 5) cancel = true;
  };
  const auto result = engine->Generate(request);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->reason, engine::FinishReason::kCancelled);
  EXPECT_LT(result->ids.size(), 20u);
  const auto stopped_before_start = engine->Generate(request);
  ASSERT_TRUE(stopped_before_start.ok());
  EXPECT_EQ(stopped_before_start->reason, engine::FinishReason::kCancelled);
  cancel = false;
  request.on_text = {};
  request.max_tokens = 5;
  EXPECT_EQ(engine->Generate(request)->ids.size(), 5u);
}

TEST(GenerateTest, CountsEveryRouteAsAMiss) {
  auto engine = OpenEngine(ShippedModel());
  const std::vector<TokenId> prompt = ShortPrompt();
  ASSERT_TRUE(engine->Generate(Greedy(prompt, 10)).ok());
  const engine::ExpertStats stats = engine->Experts();
  EXPECT_EQ(stats.hits, 0u);
  // 9 decode steps follow the prompt: 4 layers, 4 experts per row.
  EXPECT_EQ(stats.misses, (prompt.size() + 9) * 16);
  EXPECT_EQ(stats.total, 4 * 32);
  EXPECT_EQ(stats.resident, 0);
  engine->ResetStats();
  EXPECT_EQ(engine->Experts().misses, 0u);
}

TEST(GenerateTest, EveryKvTypeStaysNearTheExactCache) {
  const auto ids = ReadJson("tests/golden/tiny-moe/code.json")["ids"].get<std::vector<TokenId>>();
  auto logits = [&](config::KvCacheType type) {
    auto engine = OpenEngine(ShippedModel(), [&](auto& c) {
      c.context.act = config::ActMode::kF32;
      c.context.kv_type = type;
    });
    return std::move(engine->Logits(ids, false, false)->values);
  };
  const std::vector<float> exact = logits(config::KvCacheType::kF32);
  // Rounding of the cached values: 2^-11 and 2^-8 relative, a few times that in the logits.
  const double f16 = RelativeL2(logits(config::KvCacheType::kF16).data(), exact.data(), exact.size());
  const double bf16 = RelativeL2(logits(config::KvCacheType::kBF16).data(), exact.data(), exact.size());
  EXPECT_GT(f16, 0);
  EXPECT_LT(f16, 1e-3);
  EXPECT_GT(bf16, f16);
  EXPECT_LT(bf16, 8e-3);
}

TEST(GenerateTest, ImpossibleConfigurationsNameTheFlag) {
  const std::vector<std::pair<std::function<void(config::EngineConfig&)>, std::string>> cases = {
      {[](auto& c) { c.runtime.device = config::Device::kCuda; }, "--device"},
      {[](auto& c) { c.runtime.vram_bytes = 1 << 30; }, "--vram"},
      {[](auto& c) { c.runtime.gpu_experts = 4; }, "--gpu-experts"},
      {[](auto& c) { c.runtime.miss_lane = config::MissLane::kSplit; }, "--miss-lane"},
      {[](auto& c) { c.context.context_tokens = 4096; }, "--ctx-size"},
      {[](auto& c) { c.runtime.ram_bytes = 1000; }, "--ram"},
  };
  for (const auto& [adjust, flag] : cases) {
    config::EngineConfig config;
    config.model_path = ShippedModel();
    config.runtime.pin_threads = false;
    adjust(config);
    const auto engine = engine::TextEngine::Create(config, &NullLogSink());
    ASSERT_FALSE(engine.ok()) << flag;
    EXPECT_NE(engine.status().message().find(flag), std::string_view::npos) << engine.status().message();
  }
}

}  // namespace
}  // namespace bellhop::test
