// Routing and sizes that kernels and buffers are easily wrong about, against the forward pass in plain double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "faults/oracle.h"
#include "faults/variant.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

// Both numeric classes against the oracle; the exact one must also choose the same experts.
void ExpectNearOracle(const std::string& path, const std::vector<TokenId>& ids, const std::string& what) {
  const OracleResult oracle = RunOracle(path, ids);
  const auto engine = OpenEngine(path, Exact);
  const auto result = engine->Logits(ids, true, true);
  ASSERT_TRUE(result.ok()) << what << ": " << result.status().ToString();
  // f32 sums: about 1e-6, more where the residual nearly cancels.
  EXPECT_LT(OracleDistance(result->values, oracle), 1e-5) << what;
  // Closer scores than f32 sums can tell apart may be chosen either way.
  ASSERT_TRUE(oracle.smallest_gap == 0 || oracle.smallest_gap > 1e-6) << what << ": take another seed";
  ASSERT_EQ(result->routes.size(), oracle.chosen.size()) << what;
  for (size_t l = 0; l < oracle.chosen.size(); ++l) EXPECT_EQ(result->routes[l].ids, oracle.chosen[l]) << what;
  const uint64_t routed = [&] {
    uint64_t sum = 0;
    for (const auto& layer : engine->Experts().routes) {
      for (const uint64_t count : layer) sum += count;
    }
    return sum;
  }();
  EXPECT_EQ(routed, oracle.chosen.size() * oracle.chosen[0].size()) << what;
  // bf16 activations: 2^-9 a product, a few times that in the logits, more where a score near the limit tips over.
  EXPECT_LT(OracleDistance(AllLogits(path, ids), oracle), 0.05) << what;
}

TEST(OddSizesTest, MatchTheOracle) {
  const VariantDir dir;
  struct Case {
    uint32_t hidden, inner, heads, kv_heads, head_dim, value_dim, vocab;
  };
  for (const Case& c : {Case{96, 40, 6, 3, 16, 16, 61}, Case{40, 24, 5, 5, 8, 8, 63}, Case{72, 104, 9, 3, 10, 7, 65},
                        Case{200, 17, 4, 1, 50, 33, 127}, Case{1, 1, 1, 1, 2, 1, 5}, Case{288, 33, 3, 1, 96, 128, 129},
                        Case{33, 31, 2, 2, 34, 3, 67}}) {
    const Variant v = MakeMoe({.layers = 2,
                               .hidden = c.hidden,
                               .heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.head_dim,
                               .value_dim = c.value_dim,
                               .inner = c.inner,
                               .vocab = c.vocab});
    ExpectNearOracle(dir.Write(v), MixedIds(21, c.vocab), fmt::format("hidden {} inner {}", c.hidden, c.inner));
  }
}

TEST(ExpertCountTest, FromOneToMoreThan256) {
  const VariantDir dir;
  struct Case {
    uint32_t experts, used;
  };
  for (const Case& c : {Case{1, 1}, Case{4, 4}, Case{5, 5}, Case{7, 1}, Case{300, 8}, Case{257, 257}, Case{1000, 10}}) {
    const Variant v = MakeMoe({.inner = 8, .experts = c.experts, .used = c.used, .seed = 3});
    ExpectNearOracle(dir.Write(v), MixedIds(13, 64), fmt::format("{} of {}", c.used, c.experts));
  }
}

TEST(ExpertLoadTest, AllTokensToOneExpert) {
  const VariantDir dir;
  for (const int32_t busy : {0, 5, 7}) {
    Variant v = MakeMoe({.layers = 2, .experts = 8, .used = 1});
    for (int l = 0; l < 2; ++l) {
      std::vector<float> bias(8, 0.0f);
      bias[static_cast<size_t>(busy)] = 100;
      v.Put("blk." + std::to_string(l) + ".ffn_gate_inp.bias", {8}, bias);
    }
    const std::string path = dir.Write(v);
    const std::vector<TokenId> ids = MixedIds(70, 64);
    ExpectNearOracle(path, ids, fmt::format("all to {}", busy));
    const auto engine = OpenEngine(path);
    ASSERT_TRUE(engine->Logits(ids, false, false).ok());
    for (const auto& layer : engine->Experts().routes) {
      for (size_t e = 0; e < layer.size(); ++e) EXPECT_EQ(layer[e], e == static_cast<size_t>(busy) ? ids.size() : 0);
    }
  }
}

TEST(ExpertLoadTest, EqualScoresGoToTheLowestIds) {
  const VariantDir dir;
  Variant v = MakeMoe({.experts = 9, .used = 3});
  v.Map("blk.0.ffn_gate_inp.weight", [](size_t, float) { return 0.0f; });
  const std::string path = dir.Write(v);
  const std::vector<TokenId> ids = MixedIds(10, 64);
  ExpectNearOracle(path, ids, "equal scores");
  const auto result = OpenEngine(path)->Logits(ids, true, true);
  for (size_t i = 0; i < result->routes[0].ids.size(); ++i) {
    EXPECT_EQ(result->routes[0].ids[i], static_cast<int32_t>(i % 3));
    EXPECT_FLOAT_EQ(result->routes[0].weights[i], 1.0f / 3);
  }
}

TEST(ExpertLoadTest, ABannedExpertIsNeverChosen) {
  const VariantDir dir;
  Variant v = MakeMoe({.experts = 6, .used = 2});
  std::vector<float> bias(6, 0.0f);
  bias[1] = bias[4] = -std::numeric_limits<float>::infinity();
  v.Put("blk.0.ffn_gate_inp.bias", {6}, bias);
  ExpectNearOracle(dir.Write(v), MixedIds(30, 64), "banned");
  const auto engine = OpenEngine(dir.Path("model.gguf"));
  ASSERT_TRUE(engine->Logits(MixedIds(30, 64), false, false).ok());
  EXPECT_EQ(engine->Experts().routes[0][1] + engine->Experts().routes[0][4], 0u);
}

TEST(ExpertLoadTest, GroupsRestrictTheChoice) {
  const VariantDir dir;
  // With one of two groups in use, both choices of a row come from the same half of the experts.
  const Variant plain = MakeMoe({.experts = 8, .used = 2, .seed = 5});
  Variant grouped = plain;
  grouped.SetUint(".expert_group_count", 2).SetUint(".expert_group_used_count", 1);
  const std::vector<TokenId> ids = MixedIds(40, 64);
  const auto free = OpenEngine(dir.Write(plain, "plain.gguf"))->Logits(ids, true, true);
  const auto bound = OpenEngine(dir.Write(grouped, "grouped.gguf"))->Logits(ids, true, true);
  ASSERT_TRUE(free.ok() && bound.ok());
  size_t mixed_before = 0;
  for (size_t m = 0; m < ids.size(); ++m) {
    const auto& f = free->routes[0].ids;
    const auto& b = bound->routes[0].ids;
    mixed_before += f[2 * m] / 4 != f[2 * m + 1] / 4;
    EXPECT_EQ(b[2 * m] / 4, b[2 * m + 1] / 4) << m;
  }
  EXPECT_GT(mixed_before, 0u);
}

TEST(ExpertFormatTest, EveryFormatOfExpertsRunsLikeItsDecodedValues) {
  const VariantDir dir;
  const std::vector<TokenId> ids = MixedIds(9, 64);
  size_t formats = 0;
  for (const quant::FormatTraits& traits : quant::AllFormats()) {
    if (!traits.weights || traits.encoder == quant::EncoderKind::kNone) continue;
    const uint32_t size = std::max(traits.block_elems, 32u);
    Variant v = MakeMoe({.hidden = size, .inner = size, .experts = 3, .used = 2});
    for (const std::string role : {"gate", "up", "down"}) {
      const VariantTensor t = v.At("blk.0.ffn_" + role + "_exps.weight");
      v.Put(t.name, t.dims, t.Values(), traits.format);
    }
    ExpectNearOracle(dir.Write(v), ids, std::string(traits.name));
    ++formats;
  }
  EXPECT_GE(formats, 15u);
}

}  // namespace
}  // namespace bellhop::test
