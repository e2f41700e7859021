// A row's result does not depend on how many rows share its step, on chunk bounds or on threads; and every type of the
// KV cache works for every architecture.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "faults/variant.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

// Models with tails in every loop, a sliding window, quantised experts.
std::vector<std::pair<std::string, std::string>> BatchModels(const VariantDir& dir) {
  return {{"hidden 40", dir.Write(MakeMoe({.layers = 2, .hidden = 40, .inner = 24, .experts = 6}), "40.gguf")},
          {"hidden 96",
           dir.Write(MakeMoe({.hidden = 96, .heads = 6, .kv_heads = 3, .head_dim = 18, .inner = 40}), "96.gguf")},
          {"gpt-oss", RepoPath("tests/golden/arch/gpt-oss-mxfp4.gguf")}};
}

TEST(BatchSizeTest, EveryPromptLengthGivesTheSameRows) {
  const VariantDir dir;
  constexpr size_t kMost = 130;
  for (const auto& [name, path] : BatchModels(dir)) {
    const std::vector<TokenId> ids = MixedIds(kMost, 64);
    for (const config::ActMode act : {config::ActMode::kAuto, config::ActMode::kF32}) {
      const auto engine = OpenEngine(path, [&](auto& c) {
        c.context.act = act;
        c.runtime.threads = 1;
      });
      const auto whole = engine->Logits(ids, true, false);
      ASSERT_TRUE(whole.ok()) << whole.status().ToString();
      const auto vocab = static_cast<size_t>(whole->vocab);
      for (size_t n = 1; n < kMost; n += act == config::ActMode::kAuto ? 1 : 7) {
        const auto part = engine->Logits({ids.data(), n}, true, false);
        ASSERT_TRUE(part.ok());
        ASSERT_EQ(part->values.size(), n * vocab);
        EXPECT_TRUE(std::equal(part->values.begin(), part->values.end(), whole->values.begin())) << name << " " << n;
      }
    }
  }
}

TEST(BatchSizeTest, ChunkBoundsDoNotShow) {
  const VariantDir dir;
  for (const auto& [name, path] : BatchModels(dir)) {
    const std::vector<TokenId> ids = MixedIds(130, 64);
    auto logits = [&](uint32_t rows) {
      return AllLogits(path, ids, [&](auto& c) {
        c.context.batch_rows = rows;
        c.runtime.threads = 1;
      });
    };
    const std::vector<float> expected = logits(130);
    for (const uint32_t rows : {1u, 2u, 3u, 5u, 15u, 16u, 17u, 31u, 33u, 63u, 64u, 65u, 129u}) {
      EXPECT_EQ(logits(rows), expected) << name << " " << rows;
    }
  }
}

// Windows that end inside, at and beyond pages of the cache and chunks of the prompt.
TEST(BatchSizeTest, SlidingWindowsOfEverySizeKeepTheirRows) {
  const VariantDir dir;
  const std::vector<TokenId> ids = MixedIds(140, 64);
  std::vector<float> all;  // of a window that hides nothing
  for (const uint32_t window : {1000u, 140u, 130u, 65u, 64u, 63u, 12u, 1u}) {
    const std::string path = dir.Write(Variant::Arch("gpt-oss-f32").SetUint(".attention.sliding_window", window));
    auto logits = [&](uint32_t rows) {
      return AllLogits(path, ids, [&](auto& c) {
        c.context.batch_rows = rows;
        c.runtime.threads = 1;
      });
    };
    const std::vector<float> expected = logits(140);
    if (all.empty()) all = expected;
    EXPECT_EQ(expected == all, window >= 140) << window;
    // The first `window` positions see everything.
    const size_t vocab = all.size() / ids.size(), visible = std::min<size_t>(window, ids.size());
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + static_cast<int64_t>(visible * vocab), expected.begin()));
    for (const uint32_t rows : {1u, 63u, 65u}) EXPECT_EQ(logits(rows), expected) << window << " " << rows;
  }
}

TEST(ThreadCountTest, LogitsAreTheSameBits) {
  const VariantDir dir;
  for (const auto& [name, path] : BatchModels(dir)) {
    const std::vector<TokenId> ids = MixedIds(50, 64);
    for (const config::ActMode act : {config::ActMode::kAuto, config::ActMode::kF32}) {
      auto logits = [&](int32_t threads) {
        return AllLogits(path, ids, [&](auto& c) {
          c.context.act = act;
          c.runtime.threads = threads;
        });
      };
      const std::vector<float> expected = logits(1);
      for (const int32_t threads : {2, 3, 7}) EXPECT_EQ(logits(threads), expected) << name << " " << threads;
    }
  }
}

TEST(ThreadCountTest, GreedyTextIsTheSame) {
  std::vector<TokenId> expected;
  for (const int32_t threads : {1, 2, 3, 7}) {
    const auto engine = OpenEngine(ShippedModel(), [&](auto& c) { c.runtime.threads = threads; });
    engine::GenerateRequest request;
    request.prompt = ReadJson("tests/golden/tiny-moe/short.json")["ids"].get<std::vector<TokenId>>();
    request.sampling.greedy = true;
    request.ignore_eos = true;
    request.max_tokens = 200;
    const auto result = engine->Generate(request);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    ASSERT_EQ(result->ids.size(), 200u);
    if (expected.empty()) expected = result->ids;
    EXPECT_EQ(result->ids, expected) << threads << " threads";
  }
}

TEST(ThreadCountTest, MoreThreadsThanRowsOfAnyMatrix) {
  const VariantDir dir;
  const std::string path =
      dir.Write(MakeMoe({.hidden = 4, .heads = 1, .kv_heads = 1, .head_dim = 2, .inner = 3, .vocab = 5}));
  const std::vector<TokenId> ids = MixedIds(6, 5);
  const std::vector<float> expected = AllLogits(path, ids, [](auto& c) { c.runtime.threads = 1; });
  EXPECT_EQ(AllLogits(path, ids, [](auto& c) { c.runtime.threads = 40; }), expected);
}

TEST(KvTypeTest, EveryArchitectureStaysNearTheExactCache) {
  for (const std::string& name : ArchNames()) {
    const std::vector<TokenId> ids = ArchIds(name);
    auto logits = [&](config::KvCacheType type) {
      return AllLogits(
          RepoPath("tests/golden/arch/" + ReadJson("tests/golden/arch/" + name + ".json")["gguf"].get<std::string>()),
          ids, [&](auto& c) {
            c.context.act = config::ActMode::kF32;
            c.context.kv_type = type;
          });
    };
    const std::vector<float> exact = logits(config::KvCacheType::kF32);
    for (const auto& [type, bound] : {std::pair{config::KvCacheType::kF16, 4e-3}, {config::KvCacheType::kBF16, 3e-2}}) {
      const std::vector<float> rounded = logits(type);
      EXPECT_TRUE(std::all_of(rounded.begin(), rounded.end(), [](float x) { return std::isfinite(x); })) << name;
      // A rounded key may tip a near tie of the router, which changes a row wholly: nine rows of ten must be near.
      const size_t vocab = exact.size() / ids.size();
      std::vector<double> distances;
      for (size_t at = 0; at < exact.size(); at += vocab) {
        distances.push_back(RelativeL2(rounded.data() + at, exact.data() + at, vocab));
      }
      std::sort(distances.begin(), distances.end());
      EXPECT_GT(distances.back(), 0) << name;
      EXPECT_LT(distances[distances.size() * 9 / 10], bound) << name;
    }
  }
}

}  // namespace
}  // namespace bellhop::test
