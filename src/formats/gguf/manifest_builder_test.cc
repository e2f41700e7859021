#include "formats/gguf/manifest_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/gguf/gguf_for_test.h"

namespace bellhop::formats {
namespace {

using manifest::ExpertGating;
using manifest::ExpertLayer;
using manifest::Manifest;
using manifest::MetaType;
using manifest::MetaValue;
using manifest::RopeScaling;
using manifest::TokenType;

// A manifest together with the bytes it points into.
struct Built {
  std::vector<std::byte> bytes;
  Result<GgufModel> model;
  Result<Manifest> manifest;

  explicit Built(const TinyMoe& moe)
      : bytes(moe.Bytes()),
        model(GgufModel::FromMemory(bytes, "m.gguf")),
        manifest(model.ok() ? BuildManifest(*model) : Result<Manifest>(model.status())) {}
  Status status() const { return manifest.status(); }
};

// The build fails, and the message holds the file and all of `parts`.
void ExpectRefused(const TinyMoe& moe, StatusCode code, const std::vector<std::string>& parts) {
  const Built built(moe);
  ASSERT_FALSE(built.manifest.ok()) << parts[0];
  const std::string message(built.status().message());
  EXPECT_EQ(built.status().code(), code) << message;
  EXPECT_TRUE(Contains(message, "m.gguf")) << message;
  EXPECT_FALSE(Contains(message, "\n")) << message;
  for (const std::string& part : parts) EXPECT_TRUE(Contains(message, part)) << "'" << part << "' not in: " << message;
}

// An array of a fixed-width type.
template <typename T>
TinyMoe::Change RawArray(const std::string& key, MetaType type, std::vector<T> values) {
  return [=](GgufWriter& w) {
    auto array = std::make_shared<manifest::MetaArray>();
    array->element_type = type;
    array->count = values.size();
    array->raw = {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
    return w.AddValue(key, MetaValue{MetaType::kArray, array});
  };
}

TEST(BuildManifest, ReadsTheShippedModel) {
  const Result<GgufModel> model = GgufModel::Open(std::string(BELLHOP_SOURCE_DIR) + "/models/tiny-moe-q4_0.gguf");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const Result<Manifest> built = BuildManifest(*model);
  ASSERT_TRUE(built.ok()) << built.status().ToString();
  const Manifest& m = *built;
  EXPECT_EQ(m.architecture, "qwen3moe");
  EXPECT_EQ(m.tensors.size(), 51u);
  EXPECT_EQ(m.hparams.layers, 4u);
  EXPECT_EQ(m.hparams.hidden, 256u);
  EXPECT_EQ(m.hparams.vocab, 4096u);
  EXPECT_EQ(m.hparams.context_length, 1024u);
  EXPECT_EQ(m.hparams.heads, std::vector<uint32_t>(4, 8));
  EXPECT_EQ(m.hparams.kv_heads, std::vector<uint32_t>(4, 2));
  EXPECT_EQ(m.hparams.key_length, 32u);
  EXPECT_EQ(m.hparams.value_length, 32u);
  EXPECT_FLOAT_EQ(static_cast<float>(m.hparams.rms_epsilon), 1e-6f);
  EXPECT_EQ(m.hparams.rope.dims, 32u);
  EXPECT_EQ(m.hparams.rope.base, 10000);
  EXPECT_EQ(m.hparams.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(m.hparams.experts.count, 32u);
  EXPECT_EQ(m.hparams.experts.used, 4u);
  EXPECT_EQ(m.hparams.experts.inner, 256u);
  ASSERT_EQ(m.expert_layers.size(), 4u);
  for (const ExpertLayer& layer : m.expert_layers) {
    for (const int32_t index : {layer.gate, layer.up, layer.down}) {
      ASSERT_GE(index, 0);
      EXPECT_EQ(m.tensors[static_cast<size_t>(index)].format, quant::WeightFormat::kQ4_0);
      EXPECT_EQ(m.tensors[static_cast<size_t>(index)].ShapeString(), "[256, 256, 32]");
    }
  }
  EXPECT_EQ(m.vocabulary.model, "gpt2");
  EXPECT_EQ(m.vocabulary.pre, "qwen2");
  ASSERT_EQ(m.vocabulary.tokens.size(), 4096u);
  EXPECT_EQ(m.vocabulary.tokens[4094], "<|im_start|>");
  EXPECT_EQ(m.vocabulary.types[4094], TokenType::kControl);
  EXPECT_EQ(m.vocabulary.eos, 4095);
  ASSERT_TRUE(m.vocabulary.chat_template.has_value());
  EXPECT_TRUE(Contains(*m.vocabulary.chat_template, "<|im_start|>"));
  const manifest::Tensor* embedding = m.FindTensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->ShapeString(), "[256, 4096]");
  EXPECT_EQ(m.files[0].bytes, 17352736u);
}

TEST(BuildManifest, AppliesDefaults) {
  TinyMoe moe;
  moe.Without("qwen3moe.attention.head_count_kv");
  moe.Without("qwen3moe.attention.key_length");
  moe.Without("qwen3moe.attention.value_length");
  const Built built(moe);
  ASSERT_TRUE(built.manifest.ok()) << built.status().ToString();
  const manifest::Hparams& h = built.manifest->hparams;
  EXPECT_EQ(h.kv_heads, h.heads);
  EXPECT_EQ(h.key_length, 8u);
  EXPECT_EQ(h.value_length, 8u);
  EXPECT_EQ(h.rope.dims, 8u);
  EXPECT_EQ(h.rope.base, 10000);
  EXPECT_EQ(h.rope.base_swa, 10000);
  EXPECT_EQ(h.rope.original_context, 64u);
  EXPECT_EQ(h.rope.factor, 1);
  EXPECT_EQ(h.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(h.rope.yarn_ext_factor, 0);
  EXPECT_TRUE(h.rope.finetuned);
  EXPECT_EQ(h.vocab, 6u);
  EXPECT_EQ(h.inner, (std::vector<uint32_t>{0, 0}));
  EXPECT_FALSE(h.attention_scale.has_value());
  EXPECT_EQ(h.experts.gating, ExpertGating::kUnset);
  EXPECT_FALSE(h.experts.weights_norm.has_value());
  EXPECT_EQ(h.embedding_scale, 1);
}

TEST(BuildManifest, ReadsEveryGenericKey) {
  TinyMoe moe("gpt-oss");
  moe.SetUint("nextn_predict_layers", 1)
      .SetUint("attention.sliding_window", 128)
      .SetUint("leading_dense_block_count", 1);
  moe.SetUint("rope.dimension_count", 4).SetFloat("rope.freq_base", 150000).SetFloat("rope.freq_base_swa", 10);
  moe.SetString("rope.scaling.type", "yarn").SetFloat("rope.scaling.factor", 32);
  moe.SetUint("rope.scaling.original_context_length", 4096).SetFloat("rope.scaling.attn_factor", 1.5);
  moe.SetFloat("rope.scaling.yarn_attn_factor", 2).SetFloat("rope.scaling.yarn_beta_fast", 16);
  moe.SetFloat("rope.scaling.yarn_beta_slow", 2).SetFloat("rope.scaling.yarn_log_multiplier", 0.0707);
  moe.Add([](GgufWriter& w) { return w.AddBool("gpt-oss.rope.scaling.finetuned", false); });
  moe.SetInts("rope.dimension_sections", {1, 1, 0, 0}).SetFloat("attention.scale", 0.25);
  moe.SetUint("expert_shared_feed_forward_length", 16).SetUint("expert_shared_count", 2);
  moe.SetFloat("expert_weights_scale", 2.5).SetUint("expert_gating_func", 2);
  moe.Add([](GgufWriter& w) { return w.AddBool("gpt-oss.expert_weights_norm", true); });
  moe.SetUint("expert_group_count", 2).SetUint("expert_group_used_count", 1);
  moe.SetFloat("embedding_scale", 12).SetFloat("residual_scale", 0.5).SetFloat("logit_scale", 6);
  moe.SetInts("feed_forward_length", {16, 0}).SetInts("attention.head_count", {4, 8});
  moe.SetInts("attention.head_count_kv", {4, 2}).SetUint("vocab_size", 8);
  const Built built(moe);
  ASSERT_TRUE(built.manifest.ok()) << built.status().ToString();
  const manifest::Hparams& h = built.manifest->hparams;
  EXPECT_EQ(h.nextn_layers, 1u);
  EXPECT_EQ(h.sliding_window, 128u);
  EXPECT_EQ(h.leading_dense_layers, 1u);
  EXPECT_EQ(h.rope.dims, 4u);
  EXPECT_EQ(h.rope.base, 150000);
  EXPECT_EQ(h.rope.base_swa, 10);
  EXPECT_EQ(h.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(h.rope.factor, 32);
  EXPECT_EQ(h.rope.original_context, 4096u);
  EXPECT_EQ(h.rope.attn_factor, 1.5);
  EXPECT_EQ(h.rope.yarn_ext_factor, 1);
  EXPECT_EQ(h.rope.yarn_attn_factor, 2);
  EXPECT_EQ(h.rope.yarn_beta_fast, 16);
  EXPECT_EQ(h.rope.yarn_beta_slow, 2);
  EXPECT_FLOAT_EQ(static_cast<float>(h.rope.yarn_log_multiplier), 0.0707f);
  EXPECT_FALSE(h.rope.finetuned);
  EXPECT_EQ(h.rope.sections, (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(h.attention_scale, 0.25);
  EXPECT_EQ(h.experts.shared_inner, 16u);
  EXPECT_EQ(h.experts.shared_count, 2u);
  EXPECT_EQ(h.experts.weights_scale, 2.5);
  EXPECT_EQ(h.experts.gating, ExpertGating::kSigmoid);
  EXPECT_EQ(h.experts.weights_norm, true);
  EXPECT_EQ(h.experts.group_count, 2u);
  EXPECT_EQ(h.experts.group_used, 1u);
  EXPECT_EQ(h.embedding_scale, 12);
  EXPECT_EQ(h.residual_scale, 0.5);
  EXPECT_EQ(h.logit_scale, 6);
  EXPECT_EQ(h.inner, (std::vector<uint32_t>{16, 0}));
  EXPECT_EQ(h.heads, (std::vector<uint32_t>{4, 8}));
  EXPECT_EQ(h.kv_heads, (std::vector<uint32_t>{4, 2}));
  EXPECT_EQ(h.vocab, 8u);
}

TEST(BuildManifest, RopeScalingRules) {
  const auto rope = [](TinyMoe& moe) {
    const Built built(moe);
    EXPECT_TRUE(built.manifest.ok()) << built.status().ToString();
    return built.manifest.ok() ? built.manifest->hparams.rope : manifest::RopeHparams();
  };
  EXPECT_EQ(rope(TinyMoe().SetFloat("rope.scaling.factor", 4)).scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope(TinyMoe().SetFloat("rope.scale_linear", 4)).factor, 4);
  EXPECT_EQ(rope(TinyMoe().SetFloat("rope.scaling.factor", 0)).factor, 1);
  EXPECT_EQ(rope(TinyMoe().SetString("rope.scaling.type", "none").SetFloat("rope.scaling.factor", 4)).factor, 1);
  EXPECT_EQ(rope(TinyMoe().SetString("rope.scaling.type", "longrope")).scaling, RopeScaling::kLongRope);
  ExpectRefused(TinyMoe().SetString("rope.scaling.type", "spiral"), StatusCode::kUnsupported,
                {"qwen3moe.rope.scaling.type", "spiral"});
  ExpectRefused(TinyMoe().SetFloat("rope.scaling.factor", 0.5), StatusCode::kCorrupt, {"rope.scaling.factor", "0.5"});
}

TEST(BuildManifest, RefusesExpertCountsThatDoNotFit) {
  ExpectRefused(TinyMoe().SetUint("expert_used_count", 9), StatusCode::kCorrupt,
                {"qwen3moe.expert_used_count", "expert_count", "9", "4"});
  ExpectRefused(TinyMoe().SetUint("expert_used_count", 0), StatusCode::kCorrupt, {"expert_used_count", "0 of 4"});
  ExpectRefused(TinyMoe().Without("qwen3moe.expert_used_count"), StatusCode::kNotFound,
                {"qwen3moe.expert_used_count", "qwen3moe.expert_count", "4"});
  ExpectRefused(TinyMoe().SetUint("expert_used_count", uint64_t{1} << 40), StatusCode::kCorrupt, {"expert_used_count"});
  ExpectRefused(TinyMoe().SetUint("expert_count", 65537), StatusCode::kCorrupt, {"expert_count", "65536"});
  ExpectRefused(TinyMoe().SetUint("expert_count", 8), StatusCode::kCorrupt, {"_exps.weight", "8 experts"});
  ExpectRefused(TinyMoe().Without("qwen3moe.expert_count").Without("qwen3moe.expert_used_count"), StatusCode::kCorrupt,
                {"tensor 'blk.0.ffn_gate_exps.weight'", "expert_count"});
  ExpectRefused(TinyMoe().SetUint("expert_group_count", 3), StatusCode::kCorrupt, {"expert_group_count", "3 groups"});
  ExpectRefused(TinyMoe().SetUint("expert_group_count", 4).SetUint("expert_group_used_count", 1), StatusCode::kCorrupt,
                {"expert_used_count", "2"});
  ExpectRefused(TinyMoe().SetUint("expert_gating_func", 7), StatusCode::kUnsupported, {"expert_gating_func", "7"});
  ExpectRefused(TinyMoe().SetInts("expert_feed_forward_length", {64, 32}), StatusCode::kUnsupported,
                {"expert_feed_forward_length", "64", "32"});
}

TEST(BuildManifest, RefusesImplausibleNumbers) {
  for (const char* suffix : {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
                             "attention.key_length", "context_length"}) {
    ExpectRefused(TinyMoe().SetUint(suffix, 0), StatusCode::kCorrupt, {std::string("qwen3moe.") + suffix});
    ExpectRefused(TinyMoe().SetUint(suffix, ~uint64_t{0}), StatusCode::kCorrupt, {std::string("qwen3moe.") + suffix});
    ExpectRefused(TinyMoe().SetString(suffix, "many"), StatusCode::kCorrupt,
                  {std::string("qwen3moe.") + suffix, "string"});
  }
  for (const char* suffix :
       {"block_count", "embedding_length", "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    ExpectRefused(TinyMoe().Without(std::string("qwen3moe.") + suffix), StatusCode::kNotFound,
                  {std::string("qwen3moe.") + suffix, "architecture 'qwen3moe'"});
  }
  ExpectRefused(TinyMoe().SetUint("block_count", 4097), StatusCode::kCorrupt, {"4097", "4096"});
  ExpectRefused(TinyMoe().SetUint("nextn_predict_layers", 2), StatusCode::kCorrupt, {"nextn_predict_layers"});
  ExpectRefused(TinyMoe().SetUint("attention.head_count_kv", 3), StatusCode::kCorrupt, {"4 query heads", "3 KV heads"});
  ExpectRefused(TinyMoe().SetInts("attention.head_count", {4, 4, 4}), StatusCode::kCorrupt,
                {"attention.head_count", "3 values", "2 layers"});
  ExpectRefused(TinyMoe().SetInts("attention.head_count", {4, -4}), StatusCode::kCorrupt, {"-4", "layer 1"});
  ExpectRefused(TinyMoe().SetFloat("attention.layer_norm_rms_epsilon", NAN), StatusCode::kCorrupt, {"epsilon"});
  ExpectRefused(TinyMoe().SetFloat("rope.freq_base", INFINITY), StatusCode::kCorrupt, {"rope.freq_base"});
  ExpectRefused(TinyMoe().SetFloat("rope.freq_base", -1), StatusCode::kCorrupt, {"rope.freq_base"});
  ExpectRefused(TinyMoe().SetUint("rope.dimension_count", 7), StatusCode::kCorrupt, {"rope.dimension_count", "even"});
  ExpectRefused(TinyMoe().SetUint("rope.dimension_count", 16), StatusCode::kCorrupt, {"rope.dimension_count"});
  ExpectRefused(TinyMoe().SetFloat("logit_scale", 0), StatusCode::kCorrupt, {"logit_scale"});
  ExpectRefused(TinyMoe()
                    .Without("qwen3moe.attention.key_length")
                    .SetUint("attention.head_count", 6)
                    .SetUint("attention.head_count_kv", 6),
                StatusCode::kCorrupt, {"attention.key_length", "32", "6 heads"});
}

TEST(BuildManifest, GeneralKeysDecideWhatItIs) {
  ExpectRefused(TinyMoe().Without("general.architecture"), StatusCode::kNotFound, {"general.architecture"});
  ExpectRefused(TinyMoe().Add([](GgufWriter& w) { return w.AddString("general.type", "mmproj"); }),
                StatusCode::kUnsupported, {"general.type", "mmproj"});
  ExpectRefused(TinyMoe("two words"), StatusCode::kCorrupt, {"general.architecture", "two words"});
  ExpectRefused(
      TinyMoe("").Replace("general.architecture", [](GgufWriter& w) { return w.AddUint("general.architecture", 5); }),
      StatusCode::kCorrupt, {"general.architecture", "u32"});
  EXPECT_TRUE(Built(TinyMoe("never-heard-of")).manifest.ok());
}

TEST(BuildManifest, VocabularySizeComesFromKeyTokensOrEmbedding) {
  TinyMoe bare;
  for (const char* key : {"model", "pre", "tokens", "token_type", "merges", "eos_token_id"}) {
    bare.Without(std::string("tokenizer.ggml.") + key);
  }
  EXPECT_EQ(Built(bare).manifest->hparams.vocab, TinyMoe::kVocab);
  EXPECT_TRUE(Built(bare).manifest->vocabulary.model.empty());
  EXPECT_EQ(Built(TinyMoe().SetUint("vocab_size", 7)).manifest->hparams.vocab, 7u);
  ExpectRefused(TinyMoe().SetUint("vocab_size", 5), StatusCode::kCorrupt, {"qwen3moe.vocab_size", "5", "6 entries"});
}

TEST(BuildManifest, TokenArraysConvertFromAnyWidthOrAreRefused) {
  const std::string types = "tokenizer.ggml.token_type";
  const std::string scores = "tokenizer.ggml.scores";
  for (const auto& change : {RawArray<uint8_t>(types, MetaType::kU8, {0, 1, 2, 3, 4, 6}),
                             RawArray<int64_t>(types, MetaType::kI64, {0, 1, 2, 3, 4, 6}),
                             RawArray<uint16_t>(types, MetaType::kU16, {0, 1, 2, 3, 4, 6})}) {
    const Built built(TinyMoe().Replace(types, change));
    ASSERT_TRUE(built.manifest.ok()) << built.status().ToString();
    EXPECT_EQ(built.manifest->vocabulary.types,
              (std::vector<TokenType>{TokenType::kNormal, TokenType::kNormal, TokenType::kUnknown, TokenType::kControl,
                                      TokenType::kUserDefined, TokenType::kByte}));
  }
  const Built built(TinyMoe().Add(RawArray<int16_t>(scores, MetaType::kI16, {-1, 2, 3, 4, 5, 6})));
  ASSERT_TRUE(built.manifest.ok()) << built.status().ToString();
  EXPECT_EQ(built.manifest->vocabulary.scores, (std::vector<float>{-1, 2, 3, 4, 5, 6}));

  ExpectRefused(TinyMoe().Replace(types, RawArray<uint8_t>(types, MetaType::kU8, {1, 1, 1})), StatusCode::kCorrupt,
                {types, "3 values", "6 tokens"});
  ExpectRefused(TinyMoe().Replace(types, RawArray<uint8_t>(types, MetaType::kU8, {1, 1, 1, 1, 1, 9})),
                StatusCode::kCorrupt, {types, "type 9", "token 5"});
  ExpectRefused(TinyMoe().Replace(types, RawArray<float>(types, MetaType::kF32, {1, 1, 1, 1, 1, 1})),
                StatusCode::kCorrupt, {types, "f32"});
  ExpectRefused(TinyMoe().Add([=](GgufWriter& w) { return w.AddString(scores, "high"); }), StatusCode::kCorrupt,
                {scores, "string"});
  ExpectRefused(TinyMoe().Add(RawArray<float>(scores, MetaType::kF32, {1})), StatusCode::kCorrupt,
                {scores, "1 values"});
  ExpectRefused(TinyMoe().Without("tokenizer.ggml.tokens"), StatusCode::kNotFound, {"tokenizer.ggml.tokens"});
}

TEST(BuildManifest, SpecialIdsFlagsAndTemplates) {
  TinyMoe moe;
  moe.Add([](GgufWriter& w) { return w.AddInt("tokenizer.ggml.bos_token_id", 3, MetaType::kI64); });
  moe.Add([](GgufWriter& w) { return w.AddUint("tokenizer.ggml.seperator_token_id", 2); });
  moe.Add([](GgufWriter& w) { return w.AddUint("tokenizer.ggml.padding_token_id", 0xFFFFFFFF); });
  moe.Add([](GgufWriter& w) { return w.AddInt("tokenizer.ggml.unknown_token_id", -1); });
  moe.Add([](GgufWriter& w) { return w.AddUint("tokenizer.ggml.fim_mid_token_id", 1); });
  moe.Add([](GgufWriter& w) { return w.AddBool("tokenizer.ggml.add_bos_token", true); });
  moe.Add([](GgufWriter& w) { return w.AddBool("tokenizer.ggml.add_space_prefix", false); });
  moe.Add([](GgufWriter& w) { return w.AddString("tokenizer.chat_template", "T"); });
  moe.Add([](GgufWriter& w) { return w.AddString("tokenizer.chat_template.tool_use", "U"); });
  moe.Add([](GgufWriter& w) { return w.AddStrings("tokenizer.chat_templates", {"tool_use"}); });
  const Built built(moe);
  ASSERT_TRUE(built.manifest.ok()) << built.status().ToString();
  const manifest::Vocabulary& v = built.manifest->vocabulary;
  EXPECT_EQ(v.bos, 3);
  EXPECT_EQ(v.eos, 4);
  EXPECT_EQ(v.separator, 2);
  EXPECT_FALSE(v.padding.has_value());
  EXPECT_FALSE(v.unknown.has_value());
  EXPECT_EQ(v.fim_mid, 1);
  EXPECT_EQ(v.add_bos, true);
  EXPECT_EQ(v.add_space_prefix, false);
  EXPECT_FALSE(v.add_eos.has_value());
  EXPECT_EQ(v.chat_template, "T");
  EXPECT_EQ(v.named_templates, (std::map<std::string, std::string>{{"tool_use", "U"}}));
  EXPECT_EQ(v.merges, (std::vector<std::string>{"a b"}));
  ExpectRefused(TinyMoe().Add([](GgufWriter& w) { return w.AddUint("tokenizer.ggml.bos_token_id", 6); }),
                StatusCode::kCorrupt, {"tokenizer.ggml.bos_token_id", "token 6", "6"});
}

// One removed tensor is named, with the architecture, and nothing is called corrupt or truncated.
TEST(BuildManifest, AMissingExpertTensorIsNamed) {
  for (const char* role : {"gate", "up", "down"}) {
    const std::string name = std::string("blk.1.ffn_") + role + "_exps.weight";
    const Built built(TinyMoe().Without(name));
    EXPECT_EQ(built.status().code(), StatusCode::kNotFound);
    const std::string message(built.status().message());
    EXPECT_TRUE(Contains(message, name) && Contains(message, "'qwen3moe'")) << message;
    EXPECT_FALSE(Contains(message, "corrupt") || Contains(message, "truncated")) << message;
  }
}

TinyMoe WithoutStacks() {
  TinyMoe moe;
  for (int layer = 0; layer < TinyMoe::kLayers; ++layer) {
    for (const char* role : {"gate", "up", "down"}) {
      moe.Without("blk." + std::to_string(layer) + ".ffn_" + role + "_exps.weight");
    }
  }
  return moe;
}

TEST(BuildManifest, MergedGateUpWithBiasesAndScales) {
  TinyMoe moe = WithoutStacks();
  moe.AddTensor("blk.1.ffn_gate_up_exps.bias", {128, 4}).AddTensor("blk.1.ffn_down_exps.scale", {4});
  moe.AddTensor("blk.1.ffn_gate_up_exps.weight", {32, 128, 4}).AddTensor("blk.1.ffn_down_exps.weight", {64, 32, 4});
  moe.AddTensor("blk.1.ffn_down_exps.bias", {32, 4});
  const Built built(moe);
  ASSERT_TRUE(built.manifest.ok()) << built.status().ToString();
  ASSERT_EQ(built.manifest->expert_layers.size(), 1u);
  const ExpertLayer& layer = built.manifest->expert_layers[0];
  const auto name = [&](int32_t index) { return built.manifest->tensors[static_cast<size_t>(index)].name; };
  EXPECT_EQ(layer.layer, LayerId(1));
  EXPECT_EQ(name(layer.gate_up), "blk.1.ffn_gate_up_exps.weight");
  EXPECT_EQ(name(layer.gate_up_bias), "blk.1.ffn_gate_up_exps.bias");
  EXPECT_EQ(name(layer.down), "blk.1.ffn_down_exps.weight");
  EXPECT_EQ(name(layer.down_bias), "blk.1.ffn_down_exps.bias");
  EXPECT_EQ(name(layer.down_scale), "blk.1.ffn_down_exps.scale");
  EXPECT_EQ(layer.gate, -1);
  EXPECT_EQ(layer.up, -1);
  EXPECT_EQ(layer.gate_bias, -1);
  ExpectRefused(TinyMoe().AddTensor("blk.0.ffn_gate_up_exps.weight", {32, 128, 4}), StatusCode::kCorrupt,
                {"layer 0", "gate_up"});
}

TEST(BuildManifest, OneTensorPerExpert) {
  const auto per_expert = [](int experts) {
    TinyMoe moe = WithoutStacks();
    for (int expert = experts - 1; expert >= 0; --expert) {  // file order must not matter
      const std::string e = std::to_string(expert);
      moe.AddTensor("blk.0.ffn_down." + e + ".weight", {64, 32}).AddTensor("blk.0.ffn_gate." + e + ".weight", {32, 64});
      moe.AddTensor("blk.0.ffn_up." + e + ".weight", {32, 64});
    }
    return moe;
  };
  const Built built(per_expert(4));
  ASSERT_TRUE(built.manifest.ok()) << built.status().ToString();
  ASSERT_EQ(built.manifest->expert_layers.size(), 1u);
  const ExpertLayer& layer = built.manifest->expert_layers[0];
  EXPECT_EQ(layer.gate, -1);
  ASSERT_EQ(layer.up_each.size(), 4u);
  for (size_t e = 0; e < 4; ++e) {
    EXPECT_EQ(built.manifest->tensors[static_cast<size_t>(layer.up_each[e])].name,
              "blk.0.ffn_up." + std::to_string(e) + ".weight");
  }
  ExpectRefused(per_expert(3), StatusCode::kNotFound, {"blk.0.ffn_gate.3.weight"});
  ExpectRefused(per_expert(5), StatusCode::kCorrupt, {"blk.0.ffn_", ".4.weight", "expert 4 of 4"});
  ExpectRefused(per_expert(4).AddTensor("blk.0.ffn_up_exps.weight", {32, 64, 4}), StatusCode::kCorrupt,
                {"layer 0", "one by one"});
  ExpectRefused(TinyMoe().AddTensor("blk.0.ffn_up.00.weight", {32, 64}).Without("blk.0.ffn_up_exps.weight"),
                StatusCode::kNotFound, {"blk.0.ffn_up_exps.weight"});
}

TEST(BuildManifest, ExpertShapesAreChecked) {
  const std::string down = "blk.0.ffn_down_exps.weight";
  const auto replaced = [&](const std::string& name, std::vector<uint64_t> dims,
                            quant::WeightFormat format = quant::WeightFormat::kF32) {
    return TinyMoe().Replace(name, [=](GgufWriter& w) { return TinyMoe::PutTensor(w, name, dims, format); });
  };
  ExpectRefused(replaced(down, {64, 32, 3}), StatusCode::kCorrupt, {down, "[64, 32, 3]", "[64, 32, 4]"});
  ExpectRefused(replaced(down, {32, 32, 4}), StatusCode::kCorrupt, {down, "expert_feed_forward_length", "64"});
  ExpectRefused(replaced("blk.0.ffn_up_exps.weight", {32, 32, 4}), StatusCode::kCorrupt,
                {"blk.0.ffn_up_exps.weight", "[32, 64, 4]"});
  ExpectRefused(replaced(down, {64, 32, 4}, quant::WeightFormat::kQ8_1), StatusCode::kUnsupported, {down, "Q8_1"});
  ExpectRefused(TinyMoe().AddTensor("blk.0.ffn_gate_exps.bias", {64}), StatusCode::kCorrupt,
                {"blk.0.ffn_gate_exps.bias", "[64, 4, 1]"});
  ExpectRefused(TinyMoe().AddTensor("blk.2.ffn_up_exps.weight", {32, 64, 4}), StatusCode::kCorrupt,
                {"blk.2.ffn_up_exps.weight", "layer 2 of 2"});
}

}  // namespace
}  // namespace bellhop::formats
