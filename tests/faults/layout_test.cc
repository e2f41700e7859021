// The same weights in another layout of the file give the same bits: tensor order, merged or separate tensors, split
// files, other formats of norms.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "faults/variant.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

// Rows of several tensors [cols, rows, experts] interleaved expert by expert, as a merged tensor holds them.
VariantTensor Merge(const std::string& name, const std::vector<const VariantTensor*>& parts) {
  VariantTensor merged{name, parts[0]->format, parts[0]->dims, {}};
  const uint64_t experts = merged.dims.size() > 2 ? merged.dims[2] : 1;
  merged.dims[1] = 0;
  for (const VariantTensor* part : parts) merged.dims[1] += part->dims[1];
  for (uint64_t e = 0; e < experts; ++e) {
    for (const VariantTensor* part : parts) {
      const auto bytes = static_cast<int64_t>(part->bytes.size() / experts);
      const auto begin = part->bytes.begin() + static_cast<int64_t>(e) * bytes;
      merged.bytes.insert(merged.bytes.end(), begin, begin + bytes);
    }
  }
  return merged;
}

// Vectors joined per expert: [n] or [n, experts].
VariantTensor MergeBias(const std::string& name, const std::vector<const VariantTensor*>& parts) {
  VariantTensor merged{name, parts[0]->format, parts[0]->dims, {}};
  const uint64_t experts = merged.dims.size() > 1 ? merged.dims[1] : 1;
  merged.dims[0] = 0;
  for (const VariantTensor* part : parts) merged.dims[0] += part->dims[0];
  for (uint64_t e = 0; e < experts; ++e) {
    for (const VariantTensor* part : parts) {
      const auto bytes = static_cast<int64_t>(part->bytes.size() / experts);
      const auto begin = part->bytes.begin() + static_cast<int64_t>(e) * bytes;
      merged.bytes.insert(merged.bytes.end(), begin, begin + bytes);
    }
  }
  return merged;
}

void Replace(Variant* v, const std::vector<std::string>& old, VariantTensor merged) {
  for (const std::string& name : old) v->Remove(name);
  v->tensors().push_back(std::move(merged));
}

std::string Blk(int layer, const std::string& rest) { return "blk." + std::to_string(layer) + "." + rest; }

TEST(TensorOrderTest, DoesNotChangeTheLogits) {
  const VariantDir dir;
  for (const std::string& name : ArchNames()) {
    const std::vector<TokenId> ids = ArchIds(name);
    const Variant original = Variant::Arch(name);
    const std::vector<float> expected = AllLogits(dir.Write(original), ids);
    Variant reversed = original;
    std::reverse(reversed.tensors().begin(), reversed.tensors().end());
    EXPECT_EQ(AllLogits(dir.Write(reversed), ids), expected) << name << " reversed";
    for (const unsigned seed : {1u, 2u}) {
      Variant shuffled = original;
      std::shuffle(shuffled.tensors().begin(), shuffled.tensors().end(), std::mt19937(seed));
      EXPECT_EQ(AllLogits(dir.Write(shuffled), ids), expected) << name << " shuffled, seed " << seed;
    }
  }
}

TEST(MergedTensorTest, GateUpStacksEqualSeparateOnes) {
  const VariantDir dir;
  for (const std::string name :
       {"qwen3moe-odd", "qwen3moe-q8-q4", "gpt-oss-f32", "gpt-oss-mxfp4", "granitemoe-shared"}) {
    const std::vector<TokenId> ids = ArchIds(name);
    Variant separate = Variant::Arch(name);
    // A merged tensor has one format.
    for (int l = 0; separate.Has(Blk(l, "ffn_gate_exps.weight")); ++l) {
      const quant::WeightFormat format = separate.At(Blk(l, "ffn_gate_exps.weight")).format;
      VariantTensor& up = separate.At(Blk(l, "ffn_up_exps.weight"));
      if (up.format != format) separate.Put(up.name, up.dims, up.Values(), format);
    }
    Variant merged = separate;
    for (int l = 0; merged.Has(Blk(l, "ffn_gate_exps.weight")); ++l) {
      const std::string gate = Blk(l, "ffn_gate_exps."), up = Blk(l, "ffn_up_exps."),
                        both = Blk(l, "ffn_gate_up_exps.");
      Replace(&merged, {gate + "weight", up + "weight"},
              Merge(both + "weight", {&merged.At(gate + "weight"), &merged.At(up + "weight")}));
      if (!merged.Has(gate + "bias")) continue;
      Replace(&merged, {gate + "bias", up + "bias"},
              MergeBias(both + "bias", {&merged.At(gate + "bias"), &merged.At(up + "bias")}));
    }
    EXPECT_EQ(AllLogits(dir.Write(merged, "merged.gguf"), ids), AllLogits(dir.Write(separate), ids)) << name;
  }
}

TEST(MergedTensorTest, FusedQkvWithBiasesEqualsSeparateOnes) {
  const VariantDir dir;
  for (const std::string name : {"llama-bias", "gpt-oss-f32", "qwen3", "olmoe"}) {
    const std::vector<TokenId> ids = ArchIds(name);
    Variant v = Variant::Arch(name);
    const std::vector<float> expected = AllLogits(dir.Write(v), ids);
    for (int l = 0; v.Has(Blk(l, "attn_q.weight")); ++l) {
      std::vector<std::string> weights, biases;
      for (const char* part : {"q", "k", "v"}) {
        weights.push_back(Blk(l, std::string("attn_") + part + ".weight"));
        biases.push_back(Blk(l, std::string("attn_") + part + ".bias"));
      }
      auto at = [&](const std::vector<std::string>& names) {
        return std::vector<const VariantTensor*>{&v.At(names[0]), &v.At(names[1]), &v.At(names[2])};
      };
      Replace(&v, weights, Merge(Blk(l, "attn_qkv.weight"), at(weights)));
      if (v.Has(biases[0])) Replace(&v, biases, MergeBias(Blk(l, "attn_qkv.bias"), at(biases)));
    }
    EXPECT_EQ(AllLogits(dir.Write(v), ids), expected) << name;
  }
}

TEST(MergedTensorTest, OneTensorPerExpertEqualsStacks) {
  const VariantDir dir;
  const std::vector<TokenId> ids = ArchIds("qwen3moe-q8-q4");
  Variant v = Variant::Arch("qwen3moe-q8-q4");
  const std::vector<float> expected = AllLogits(dir.Write(v), ids);
  for (int l = 0; l < 2; ++l) {
    for (const std::string role : {"gate", "up", "down"}) {
      const VariantTensor stack = v.At(Blk(l, "ffn_" + role + "_exps.weight"));
      v.Remove(stack.name);
      const auto experts = stack.dims[2], bytes = stack.bytes.size() / experts;
      // Highest expert first: the number decides, not the place in the file.
      for (uint64_t e = experts; e-- > 0;) {
        const auto begin = stack.bytes.begin() + static_cast<int64_t>(e * bytes);
        v.tensors().push_back({Blk(l, "ffn_" + role + "." + std::to_string(e) + ".weight"),
                               stack.format,
                               {stack.dims[0], stack.dims[1]},
                               {begin, begin + static_cast<int64_t>(bytes)}});
      }
    }
  }
  EXPECT_EQ(AllLogits(dir.Write(v), ids), expected);
}

TEST(SplitFileTest, PartsGiveTheLogitsOfTheWhole) {
  const VariantDir dir;
  for (const std::string name : {"gpt-oss-f32", "qwen3moe-q4k-q6k", "llama-mixtral-per-expert"}) {
    const std::vector<TokenId> ids = ArchIds(name);
    const Variant whole = Variant::Arch(name);
    const std::vector<float> expected = AllLogits(dir.Write(whole), ids);
    const size_t tensors = whole.tensors().size();
    // The first part may hold no tensors at all; the last one holds a single tensor.
    const std::vector<size_t> bounds = {0, 0, tensors / 2, tensors - 1, tensors};
    const size_t parts = bounds.size() - 1;
    std::vector<std::string> paths;
    for (size_t p = 0; p < parts; ++p) {
      Variant part = whole;
      part.SetUint("split.no", p).SetUint("split.count", parts).SetUint("split.tensors.count", tensors);
      paths.push_back(dir.Path(fmt::format("{}-{:05}-of-{:05}.gguf", name, p + 1, parts)));
      part.Write(paths.back(), bounds[p], bounds[p + 1]);
    }
    for (const std::string& path : paths) EXPECT_EQ(AllLogits(path, ids), expected) << path;
  }
}

// Formats of vectors: whatever they are stored in, they are decoded once.
TEST(VectorFormatTest, NormsInOtherFormatsEqualTheirF32Values) {
  const VariantDir dir;
  const std::vector<TokenId> ids = ArchIds("qwen3moe-q8-q4");
  for (const quant::WeightFormat format : {quant::WeightFormat::kF16, quant::WeightFormat::kBF16,
                                           quant::WeightFormat::kQ8_0, quant::WeightFormat::kQ4_0}) {
    Variant stored = Variant::Arch("qwen3moe-q8-q4"), plain = stored;
    size_t changed = 0;
    for (VariantTensor& t : stored.tensors()) {
      if (t.dims.size() != 1 || t.dims[0] % 32 != 0) continue;
      stored.Put(t.name, t.dims, t.Values(), format);
      plain.Put(t.name, t.dims, stored.At(t.name).Values());
      ++changed;
    }
    EXPECT_GE(changed, 5u);
    EXPECT_EQ(AllLogits(dir.Write(stored), ids), AllLogits(dir.Write(plain), ids)) << quant::Traits(format).name;
  }
}

TEST(ScaleTensorTest, AFactorOfTheEmbeddingAppliesToRowsAndTiedHead) {
  const VariantDir dir;
  for (const std::string name : {"qwen3moe-tied", "qwen3moe-odd"}) {
    const std::vector<TokenId> ids = ArchIds(name);
    Variant v = Variant::Arch(name);
    v.Put("token_embd.weight", v.At("token_embd.weight").dims, v.At("token_embd.weight").Values());
    const std::vector<float> expected = AllLogits(dir.Write(v), ids);
    // Powers of two are exact, so halving the weights and doubling the factor keeps the bits.
    v.Map("token_embd.weight", [](size_t, float x) { return x / 2; }).Put("token_embd.scale", {1}, {2});
    EXPECT_EQ(AllLogits(dir.Write(v), ids), expected) << name;
  }
}

TEST(UnknownTensorTest, IsNamedInThePlan) {
  const VariantDir dir;
  Variant v = Variant::Arch("qwen3moe-odd");
  v.Put("blk.0.attn_q.lora_a", {4}, {1, 2, 3, 4}).Put("blk.1.ffn_norm.bias", {96}, std::vector<float>(96, 1));
  const auto engine = OpenEngine(dir.Write(v));
  std::string plan;
  for (const std::string& line : engine->PlanLines()) plan += line + "\n";
  EXPECT_NE(plan.find("2 tensors of the file are not used"), std::string::npos) << plan;
  EXPECT_NE(plan.find("blk.0.attn_q.lora_a"), std::string::npos) << plan;
  EXPECT_NE(plan.find("blk.1.ffn_norm.bias"), std::string::npos) << plan;
}

TEST(UnknownTensorTest, ExpertsOfADenseArchitectureAreNamedInThePlan) {
  const VariantDir dir;
  Variant v = Variant::Arch("qwen3");
  v.SetUint(".expert_count", 2).SetUint(".expert_used_count", 1);
  for (const std::string role : {"gate", "up"}) {
    v.Put("blk.0.ffn_" + role + "_exps.weight", {64, 8, 2}, std::vector<float>(64 * 8 * 2, 0));
  }
  v.Put("blk.0.ffn_down_exps.weight", {8, 64, 2}, std::vector<float>(64 * 8 * 2, 0));
  const auto engine = OpenEngine(dir.Write(v));
  std::string plan;
  for (const std::string& line : engine->PlanLines()) plan += line + "\n";
  EXPECT_NE(plan.find("3 tensors of the file are not used by architecture 'qwen3'"), std::string::npos) << plan;
}

}  // namespace
}  // namespace bellhop::test
