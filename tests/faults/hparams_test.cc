// Keys that are missing, impossible or at odds with the tensors: refused at load, naming the key or tensor, or, where
// the file is unusual but sound, run.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "faults/variant.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

struct Refusal {
  std::string name;
  std::function<void(Variant&)> change;
  std::vector<std::string> mentions;
};

void ExpectRefusals(const Variant& original, const std::vector<Refusal>& refusals) {
  const VariantDir dir;
  ASSERT_TRUE(LoadStatus(dir.Write(original)).ok());
  for (const Refusal& r : refusals) {
    Variant v = original;
    r.change(v);
    const Status status = LoadStatus(dir.Write(v));
    ASSERT_FALSE(status.ok()) << r.name;
    EXPECT_TRUE(status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kNotFound ||
                status.code() == StatusCode::kUnsupported)
        << r.name << ": " << status.ToString();
    for (const std::string& part : r.mentions) {
      EXPECT_NE(status.message().find(part), std::string_view::npos) << r.name << ": " << status.ToString();
    }
    EXPECT_EQ(status.message().find('\n'), std::string_view::npos) << r.name;
  }
}

TEST(ExpertKeysTest, CountsMustFit) {
  ExpectRefusals(
      Variant::Arch("qwen3moe-odd"),
      {
          {"none used", [](auto& v) { v.SetUint(".expert_used_count", 0); }, {"expert_used_count", "0 of 5"}},
          {"more used than there are",
           [](auto& v) { v.SetUint(".expert_used_count", 6); },
           {"expert_used_count", "6 of 5"}},
          {"far more", [](auto& v) { v.SetUint(".expert_used_count", UINT64_MAX); }, {"expert_used_count"}},
          {"used count missing", [](auto& v) { v.RemoveKey(".expert_used_count"); }, {"expert_used_count", "missing"}},
          {"count 0", [](auto& v) { v.SetUint(".expert_count", 0); }, {"expert_count"}},
          {"count missing", [](auto& v) { v.RemoveKey(".expert_count"); }, {"expert_count"}},
          {"count above the tensors'", [](auto& v) { v.SetUint(".expert_count", 6); }, {"blk.0.ffn_", "6"}},
          {"count below the tensors'", [](auto& v) { v.SetUint(".expert_count", 4); }, {"blk.0.ffn_", "4"}},
          {"count of 2^32", [](auto& v) { v.SetUint(".expert_count", uint64_t{1} << 32); }, {"expert_count"}},
          {"inner size",
           [](auto& v) { v.SetUint(".expert_feed_forward_length", 41); },
           {"expert_feed_forward_length", "41"}},
          {"gating", [](auto& v) { v.SetUint(".expert_gating_func", 9); }, {"expert_gating_func", "9"}},
          {"groups", [](auto& v) { v.SetUint(".expert_group_count", 2); }, {"expert_group_count"}},
      });
}

TEST(ExpertKeysTest, AMoeArchitectureWithoutExpertsSaysSo) {
  Variant v = Variant::Arch("qwen3moe-odd");
  std::vector<std::string> experts;
  for (const VariantTensor& t : v.tensors()) {
    if (t.name.find("_exps.") != std::string::npos) experts.push_back(t.name);
  }
  for (const std::string& name : experts) v.Remove(name);
  const VariantDir dir;
  Status status = LoadStatus(dir.Write(v));
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("blk.0.ffn_down_exps.weight"), std::string_view::npos) << status.ToString();
  EXPECT_NE(status.message().find("5 experts"), std::string_view::npos) << status.ToString();
  v.SetUint(".expert_count", 0).SetUint(".expert_used_count", 0);
  status = LoadStatus(dir.Write(v));
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("'qwen3moe.expert_count' is missing or 0"), std::string_view::npos)
      << status.ToString();
}

// A dense file whose metadata names experts: the architecture decides whether it needs them.
TEST(ExpertKeysTest, DenseModelsWithExpertKeys) {
  const VariantDir dir;
  Variant qwen = Variant::Arch("qwen3");
  const std::vector<TokenId> ids = ArchIds("qwen3");
  const std::vector<float> expected = AllLogits(dir.Write(qwen), ids);
  qwen.SetUint(".expert_count", 4).SetUint(".expert_used_count", 2);
  EXPECT_EQ(AllLogits(dir.Write(qwen), ids), expected);

  Variant llama = Variant::Arch("llama");
  llama.SetUint(".expert_count", 4).SetUint(".expert_used_count", 2);
  const Status status = LoadStatus(dir.Write(llama));
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("blk.0.ffn_down_exps.weight"), std::string_view::npos) << status.ToString();
}

TEST(ShapeKeysTest, HeadsRopeAndSizesMustFit) {
  ExpectRefusals(
      Variant::Arch("qwen3moe-odd"),  // 6 heads over 3 KV heads of 16, hidden 96
      {
          {"heads not a multiple",
           [](auto& v) { v.SetUint(".attention.head_count_kv", 4); },
           {"head_count_kv", "6", "4"}},
          {"more KV heads", [](auto& v) { v.SetUint(".attention.head_count_kv", 7); }, {"head_count_kv"}},
          {"no heads", [](auto& v) { v.SetUint(".attention.head_count", 0); }, {"attention.head_count"}},
          {"fewer heads than the tensors",
           [](auto& v) { v.SetUint(".attention.head_count", 3); },
           {"blk.0.attn_q.weight"}},
          {"head length 0", [](auto& v) { v.SetUint(".attention.key_length", 0); }, {"key_length"}},
          {"odd head length", [](auto& v) { v.SetUint(".attention.key_length", 15); }, {"15"}},
          {"value length", [](auto& v) { v.SetUint(".attention.value_length", 8); }, {"blk.0.attn_v.weight"}},
          {"odd rotary width", [](auto& v) { v.SetUint(".rope.dimension_count", 15); }, {"dimension_count", "15"}},
          {"wide rotary width", [](auto& v) { v.SetUint(".rope.dimension_count", 32); }, {"32", "16"}},
          {"no rotary width", [](auto& v) { v.SetUint(".rope.dimension_count", 0); }, {"dimension_count"}},
          {"rope base 0", [](auto& v) { v.SetFloat(".rope.freq_base", 0); }, {"freq_base"}},
          {"rope base NaN", [](auto& v) { v.SetFloat(".rope.freq_base", std::nan("")); }, {"freq_base"}},
          {"rope factor",
           [](auto& v) { v.SetString(".rope.scaling.type", "linear").SetFloat(".rope.scaling.factor", -2); },
           {"factor"}},
          {"longrope", [](auto& v) { v.SetString(".rope.scaling.type", "longrope"); }, {"longrope"}},
          {"more layers", [](auto& v) { v.SetUint(".block_count", 3); }, {"blk.2.attn_norm.weight"}},
          {"fewer layers", [](auto& v) { v.SetUint(".block_count", 1); }, {"blk.1.", "block_count"}},
          {"no layers", [](auto& v) { v.SetUint(".block_count", 0); }, {"block_count"}},
          {"2^32 layers", [](auto& v) { v.SetUint(".block_count", uint64_t{1} << 32); }, {"block_count"}},
          {"hidden size", [](auto& v) { v.SetUint(".embedding_length", 97); }, {"97"}},
          {"hidden size 0", [](auto& v) { v.SetUint(".embedding_length", 0); }, {"embedding_length"}},
          {"context 0", [](auto& v) { v.SetUint(".context_length", 0); }, {"context_length"}},
          {"vocabulary key", [](auto& v) { v.SetUint(".vocab_size", 270); }, {"token_embd.weight", "270"}},
          {"small vocabulary key", [](auto& v) { v.SetUint(".vocab_size", 200); }, {"vocab_size", "200", "261"}},
          {"epsilon NaN", [](auto& v) { v.SetFloat(".attention.layer_norm_rms_epsilon", std::nan("")); }, {"epsilon"}},
          {"epsilon Inf", [](auto& v) { v.SetFloat(".attention.layer_norm_rms_epsilon", INFINITY); }, {"epsilon"}},
          {"epsilon 0", [](auto& v) { v.SetFloat(".attention.layer_norm_rms_epsilon", 0); }, {"epsilon"}},
          {"epsilon missing", [](auto& v) { v.RemoveKey(".attention.layer_norm_rms_epsilon"); }, {"epsilon"}},
          {"attention scale", [](auto& v) { v.SetFloat(".attention.scale", -1); }, {"attention.scale"}},
      });
}

TEST(ShapeKeysTest, VocabularyAndEmbeddingMustAgree) {
  // Without a vocab_size key the token list decides.
  Variant v = Variant::Arch("qwen3moe-odd");
  if (v.HasKey(".vocab_size")) v.RemoveKey(".vocab_size");
  std::vector<std::string> tokens;
  for (int i = 0; i < 250; ++i) tokens.push_back("token" + std::to_string(i));
  const VariantDir dir;
  v.SetStrings("tokenizer.ggml.tokens", tokens);
  const Status status = LoadStatus(dir.Write(v));
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(status.code() == StatusCode::kCorrupt) << status.ToString();
}

TEST(ShapeKeysTest, GptOssNeedsAWindowAndAWholePattern) {
  ExpectRefusals(Variant::Arch("gpt-oss-f32"),
                 {
                     {"no window", [](auto& v) { v.SetUint(".attention.sliding_window", 0); }, {"sliding_window"}},
                     {"pattern too short",
                      [](auto& v) {
                        v.SetInts(".attention.sliding_window_pattern", {1, 0});
                      },
                      {"sliding_window_pattern", "3"}},
                     {"pattern of text",
                      [](auto& v) { v.SetString(".attention.sliding_window_pattern", "alternate"); },
                      {"sliding_window_pattern"}},
                     {"yarn without its context",
                      [](auto& v) { v.SetUint(".rope.scaling.original_context_length", 0); },
                      {"original_context_length"}},
                 });
}

// Unusual but sound: heads that kernels have no whole vectors for, and head sizes with a rotary part.
TEST(ShapeKeysTest, OddHeadLengthWithAnEvenRotaryPartRuns) {
  const VariantDir dir;
  for (const uint32_t head_dim : {9u, 17u, 33u}) {
    Variant v = MakeMoe({.hidden = 40, .head_dim = head_dim});
    v.SetUint(".rope.dimension_count", 8);
    const std::string path = dir.Write(v);
    const std::vector<TokenId> ids = MixedIds(40, 64);
    const std::vector<float> reference = AllLogits(path, ids, [](auto& c) { c.runtime.isa = "reference"; });
    EXPECT_TRUE(std::all_of(reference.begin(), reference.end(), [](float x) { return std::isfinite(x); }));
    EXPECT_EQ(AllLogits(path, ids), reference) << head_dim;
  }
}

TEST(ShapeKeysTest, TokensBeyondTheTokenListHaveNoText) {
  // Padded embeddings: more rows than the vocabulary has tokens.
  const VariantDir dir;
  Variant v = Variant::Arch("qwen3moe-odd");
  for (const std::string name : {"token_embd.weight", "output.weight"}) {
    std::vector<float> values = v.At(name).Values();
    values.resize(96 * 270, 0.01f);
    v.Put(name, {96, 270}, values);
  }
  v.SetUint(".vocab_size", 270);
  auto engine = OpenEngine(dir.Write(v));
  engine::GenerateRequest request;
  request.prompt = {5, 269};
  request.max_tokens = 5;
  request.ignore_eos = true;
  request.sampling.greedy = true;
  request.sampling.logit_bias = {{268, 1e6f}};
  const auto result = engine->Generate(request);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->ids, (std::vector<TokenId>(5, 268)));
  EXPECT_EQ(result->text, "");
}

}  // namespace
}  // namespace bellhop::test
