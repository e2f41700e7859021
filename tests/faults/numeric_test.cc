// Weights that are not numbers: the request that meets them fails with a clear error, rows that do not are unchanged to
// the bit, and the engine serves the next request.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "faults/variant.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr TokenId kBadToken = 50;

void ExpectFault(const Status& status, const std::string& where) {
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
  EXPECT_NE(status.message().find("numeric fault"), std::string_view::npos) << status.ToString();
  EXPECT_NE(status.message().find(where), std::string_view::npos) << status.ToString() << " / " << where;
}

engine::GenerateRequest Greedy(std::vector<TokenId> prompt, int32_t max_tokens) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.greedy = true;
  request.ignore_eos = true;
  request.max_tokens = max_tokens;
  return request;
}

// Two layers; the embedding of kBadToken holds one NaN. Everything else is sound.
Variant WithBadToken() {
  Variant v = MakeMoe({.layers = 2, .experts = 8});
  return v.Map("token_embd.weight", [](size_t i, float x) { return i == kBadToken * 32 + 5 ? kNan : x; });
}

TEST(NumericFaultTest, TheFirstBadPositionIsNamedAndTheEngineLives) {
  const VariantDir dir;
  const std::string path = dir.Write(WithBadToken());
  const std::vector<TokenId> good = MixedIds(20, 40);
  std::vector<TokenId> bad = good;
  bad[9] = bad[13] = kBadToken;
  for (const config::ActMode act : {config::ActMode::kAuto, config::ActMode::kF32}) {
    // Chunks before the bad one have been accepted when it fails.
    for (const uint32_t batch_rows : {512u, 4u, 1u}) {
      const Adjust adjust = [&](auto& c) {
        c.context.act = act;
        c.context.batch_rows = batch_rows;
      };
      const auto healthy = OpenEngine(path, adjust);
      const auto expected = healthy->Generate(Greedy(good, 20));
      ASSERT_TRUE(expected.ok());
      const auto expected_logits = healthy->Logits(good, true, false);

      const auto engine = OpenEngine(path, adjust);
      ExpectFault(engine->Generate(Greedy(bad, 20)).status(), "position 9");
      EXPECT_EQ(engine->Generate(Greedy(good, 20))->ids, expected->ids);
      ExpectFault(engine->Logits(bad, false, false).status(), "position 9");
      EXPECT_EQ(engine->Logits(good, true, false)->values, expected_logits->values);
      ExpectFault(engine->Perplexity(bad, 20, {}).status(), "position 9");
      ExpectFault(engine->CountRoutes(bad, {}), "position 9");
      EXPECT_EQ(engine->Generate(Greedy(good, 20))->ids, expected->ids);
    }
  }
}

TEST(NumericFaultTest, AFaultInTheMiddleOfGenerationEndsThatRequest) {
  const VariantDir dir;
  const auto engine = OpenEngine(dir.Write(WithBadToken()));
  const std::vector<TokenId> prompt = MixedIds(6, 40);
  const auto expected = engine->Generate(Greedy(prompt, 10));
  ASSERT_TRUE(expected.ok());
  engine::GenerateRequest request = Greedy(prompt, 10);
  request.sampling.logit_bias = {{kBadToken, 1e9f}};  // the first token is the bad one
  ExpectFault(engine->Generate(request).status(), "position 6");
  EXPECT_EQ(engine->Generate(Greedy(prompt, 10))->ids, expected->ids);
}

// The experts of layer l that no row of the prompt used, and those that row `row` used.
std::vector<int32_t> UsedBy(const engine::LogitsResult::Routes& routes, size_t row) {
  const auto first = routes.ids.begin() + static_cast<int64_t>(row) * routes.used;
  return {first, first + routes.used};
}

void PoisonExpert(Variant* v, int32_t layer, int32_t expert, const std::string& role, float value) {
  const std::string name = "blk." + std::to_string(layer) + ".ffn_" + role + "_exps.weight";
  const size_t per_expert = v->At(name).dims[0] * v->At(name).dims[1];
  v->Map(name, [&](size_t i, float x) { return i == static_cast<size_t>(expert) * per_expert + 3 ? value : x; });
}

TEST(NumericFaultTest, ABadExpertHurtsOnlyTheRowsThatUseIt) {
  const VariantDir dir;
  const Variant sound = MakeMoe({.layers = 2, .experts = 16, .used = 2});
  const std::vector<TokenId> ids = MixedIds(5, 60);
  const auto engine = OpenEngine(dir.Write(sound));
  const auto expected = engine->Logits(ids, true, true);
  ASSERT_TRUE(expected.ok());
  for (int32_t layer = 0; layer < 2; ++layer) {
    const engine::LogitsResult::Routes& routes = expected->routes[static_cast<size_t>(layer)];
    int32_t unused = 0;
    while (std::find(routes.ids.begin(), routes.ids.end(), unused) != routes.ids.end()) ++unused;
    ASSERT_LT(unused, 16);
    const int32_t used = UsedBy(routes, 2).front();
    for (const std::string role : {"gate", "up", "down"}) {
      for (const float value : {kNan, kInf}) {
        Variant poisoned = sound;
        PoisonExpert(&poisoned, layer, unused, role, value);
        EXPECT_EQ(AllLogits(dir.Write(poisoned, "unused.gguf"), ids), expected->values) << layer << role;
        PoisonExpert(&poisoned, layer, used, role, value);
        const auto bad = OpenEngine(dir.Write(poisoned, "used.gguf"));
        ExpectFault(bad->Logits(ids, true, false).status(), "position ");
      }
    }
  }
}

// What the last layer's experts make of a row is read by that row's logits alone.
TEST(NumericFaultTest, ABadExpertOfTheLastLayerDoesNotReachLaterRows) {
  const VariantDir dir;
  const Variant sound = MakeMoe({.layers = 2, .experts = 16, .used = 1});
  const std::vector<TokenId> ids = MixedIds(12, 60);
  const auto expected = OpenEngine(dir.Write(sound))->Logits(ids, true, true);
  ASSERT_TRUE(expected.ok());
  const engine::LogitsResult::Routes& routes = expected->routes[1];
  size_t row = 0;  // one whose expert the last row does not use
  while (UsedBy(routes, row) == UsedBy(routes, ids.size() - 1)) ++row;
  const int32_t bad_expert = UsedBy(routes, row).front();
  Variant poisoned = sound;
  PoisonExpert(&poisoned, 1, bad_expert, "down", kNan);
  const auto engine = OpenEngine(dir.Write(poisoned));
  const auto last = engine->Logits(ids, false, false);
  ASSERT_TRUE(last.ok()) << last.status().ToString();
  EXPECT_TRUE(std::equal(last->values.begin(), last->values.end(), expected->values.end() - last->vocab));
  ExpectFault(engine->Logits(ids, true, false).status(), "the logits at position " + std::to_string(row));
}

TEST(NumericFaultTest, EveryMatrixOfEveryArchitecture) {
  const VariantDir dir;
  size_t tried = 0;
  for (const std::string name : {"gpt-oss-f32", "llama-bias", "granitemoe-shared", "qwen3moe-odd", "olmoe"}) {
    const Variant original = Variant::Arch(name);
    const std::vector<TokenId> ids = ArchIds(name);
    for (const VariantTensor& t : original.tensors()) {
      // Layer 1 of all, and the global tensors; whole tensors, so that every row meets them.
      if (t.name.starts_with("blk.0.") || t.name.starts_with("blk.2.") || t.name.ends_with("_exps.scale")) continue;
      Variant v = original;
      v.Map(t.name, [](size_t, float) { return kNan; });
      const auto engine = OpenEngine(dir.Write(v));
      ExpectFault(engine->Logits(ids, false, false).status(), "position ");
      ExpectFault(engine->Perplexity(ids, static_cast<int32_t>(ids.size()), {}).status(), "position ");
      ++tried;
    }
  }
  EXPECT_GT(tried, 60u);
}

// Clamps of minimum and maximum instructions may return their other operand for a NaN.
TEST(NumericFaultTest, ClampedActivationsKeepNanOnEveryIsa) {
  const VariantDir dir;
  const std::vector<TokenId> ids = ArchIds("gpt-oss-f32");
  for (const std::string role : {"gate", "up"}) {
    Variant v = Variant::Arch("gpt-oss-f32");
    // Every expert of the last layer, one element each.
    const VariantTensor& t = v.At("blk.2.ffn_" + role + "_exps.weight");
    const size_t per_expert = t.dims[0] * t.dims[1];
    v.Map(t.name, [&](size_t i, float x) { return i % per_expert == 0 ? kNan : x; });
    const std::string path = dir.Write(v);
    for (const std::string isa : {"reference", "avx2", "avx512", "amx"}) {
      for (const config::ActMode act : {config::ActMode::kAuto, config::ActMode::kF32}) {
        const Adjust adjust = [&](auto& c) {
          c.runtime.isa = isa;
          c.context.act = act;
        };
        if (LoadStatus(path, adjust).code() == StatusCode::kUnsupported) continue;  // not on this CPU
        ExpectFault(OpenEngine(path, adjust)->Logits(ids, false, false).status(), "position ");
      }
    }
  }
}

TEST(NumericFaultTest, BadScalesOfQuantisedBlocksAreFaults) {
  const VariantDir dir;
  for (const std::string name : {"qwen3moe-q8-q4", "qwen3moe-q4k-q6k", "gpt-oss-mxfp4"}) {
    const std::vector<TokenId> ids = ArchIds(name);
    Variant v = Variant::Arch(name);
    for (VariantTensor& t : v.tensors()) {
      if (t.name.find("_exps.weight") == std::string::npos) continue;
      std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0xFF});  // every scale NaN, of E8M0 as of f16
    }
    for (const config::ActMode act : {config::ActMode::kAuto, config::ActMode::kF32}) {
      const auto engine = OpenEngine(dir.Write(v), [&](auto& c) { c.context.act = act; });
      ExpectFault(engine->Logits(ids, false, false).status(), "position ");
    }
  }
}

TEST(NumericFaultTest, ValuesBeyondTheCacheTypeNameTheRemedy) {
  const VariantDir dir;
  Variant v = Variant::Arch("llama");
  const std::vector<TokenId> ids = ArchIds("llama");
  const std::vector<float> expected = AllLogits(dir.Write(v), ids, Exact);
  for (int l = 0; l < 3; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    v.Map(blk + "attn_v.weight", [](size_t, float x) { return std::ldexp(x, 20); });
    v.Map(blk + "attn_output.weight", [](size_t, float x) { return std::ldexp(x, -20); });
  }
  const std::string path = dir.Write(v);
  const auto engine = OpenEngine(path);  // f16 ends at 65504
  ExpectFault(engine->Logits(ids, false, false).status(), "--cache-type bf16 or f32");
  const auto logits = [&](config::KvCacheType type) {
    return AllLogits(path, ids, [&](auto& c) {
      c.context.act = config::ActMode::kF32;
      c.context.kv_type = type;
    });
  };
  EXPECT_EQ(logits(config::KvCacheType::kF32), expected);  // powers of two are exact
  EXPECT_LT(RelativeL2(logits(config::KvCacheType::kBF16).data(), expected.data(), expected.size()), 0.05);
}

}  // namespace
}  // namespace bellhop::test
