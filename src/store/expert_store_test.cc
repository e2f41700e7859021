#include "store/expert_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "store/tensor_view.h"

namespace bellhop::store {
namespace {

using manifest::ExpertLayer;
using manifest::Manifest;
using manifest::Tensor;
using quant::WeightFormat;

constexpr int kHidden = 4, kInner = 3, kExperts = 2;

// A one-layer manifest over made-up F32 tensors whose element i is `base + i`.
class Maker {
 public:
  Maker() {
    m_.hparams.layers = 2;
    m_.hparams.hidden = kHidden;
    m_.hparams.experts.count = kExperts;
    m_.hparams.experts.used = 1;
    m_.expert_layers.push_back({});
    m_.expert_layers[0].layer = LayerId(1);
  }
  int32_t Add(const std::string& name, std::vector<uint64_t> dims, float base) {
    Tensor t;
    t.name = name;
    t.n_dims = static_cast<int>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) t.dims[i] = dims[i];
    std::vector<float>& v = values_[name];
    v.resize(t.elements());
    for (size_t i = 0; i < v.size(); ++i) v[i] = base + static_cast<float>(i);
    t.bytes = v.size() * 4;
    t.data = {reinterpret_cast<const std::byte*>(v.data()), t.bytes};
    m_.tensor_index[name] = static_cast<int32_t>(m_.tensors.size());
    m_.tensors.push_back(t);
    return static_cast<int32_t>(m_.tensors.size()) - 1;
  }
  Manifest& manifest() { return m_; }
  ExpertLayer& layer() { return m_.expert_layers[0]; }

 private:
  Manifest m_;
  std::map<std::string, std::vector<float>> values_;
};

float At(const quant::QuantView& view, int64_t row, int64_t col) {
  float f;
  std::memcpy(&f, view.Row(row) + col * 4, 4);
  return f;
}

TEST(ExpertStoreTest, SlicesStacks) {
  Maker maker;
  maker.layer().gate = maker.Add("blk.1.ffn_gate_exps.weight", {kHidden, kInner, kExperts}, 0);
  maker.layer().up = maker.Add("blk.1.ffn_up_exps.weight", {kHidden, kInner, kExperts}, 100);
  maker.layer().down = maker.Add("blk.1.ffn_down_exps.weight", {kInner, kHidden, kExperts}, 200);
  maker.layer().down_bias = maker.Add("blk.1.ffn_down_exps.bias", {kHidden, kExperts}, 300);
  maker.layer().up_scale = maker.Add("blk.1.ffn_up_exps.scale", {kExperts}, 7);
  const auto store = ExpertStore::Create(maker.manifest());
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_EQ((*store)->experts(LayerId(0)), 0);
  EXPECT_EQ((*store)->experts(LayerId(1)), kExperts);
  EXPECT_EQ((*store)->inner(), kInner);
  const ExpertView& second = (*store)->Host(LayerId(1), ExpertId(1));
  EXPECT_EQ(At(second.gate, 0, 0), kHidden * kInner);
  EXPECT_EQ(At(second.up, 2, 3), 100 + kHidden * kInner * 2 - 1);
  EXPECT_EQ(At(second.down, 3, 2), 200 + kHidden * kInner * 2 - 1);
  EXPECT_EQ(second.down_bias[0], 300 + kHidden);
  EXPECT_EQ(second.gate_bias, nullptr);
  EXPECT_EQ(second.up_scale, 8);
  EXPECT_EQ((*store)->TotalBytes(), 3u * kHidden * kInner * kExperts * 4);
}

TEST(ExpertStoreTest, SplitsMergedGateUp) {
  Maker maker;
  maker.layer().gate_up = maker.Add("blk.1.ffn_gate_up_exps.weight", {kHidden, 2 * kInner, kExperts}, 0);
  maker.layer().gate_up_bias = maker.Add("blk.1.ffn_gate_up_exps.bias", {2 * kInner, kExperts}, 500);
  maker.layer().down = maker.Add("blk.1.ffn_down_exps.weight", {kInner, kHidden, kExperts}, 200);
  const auto store = ExpertStore::Create(maker.manifest());
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  const ExpertView& second = (*store)->Host(LayerId(1), ExpertId(1));
  EXPECT_EQ(At(second.gate, 0, 0), 2 * kInner * kHidden);
  EXPECT_EQ(At(second.up, 0, 0), 3 * kInner * kHidden);
  EXPECT_EQ(second.gate_bias[0], 500 + 2 * kInner);
  EXPECT_EQ(second.up_bias[0], 500 + 3 * kInner);
}

TEST(ExpertStoreTest, TakesOneTensorPerExpert) {
  Maker maker;
  for (int e = 0; e < kExperts; ++e) {
    const std::string n = std::to_string(e);
    maker.layer().gate_each.push_back(maker.Add("blk.1.ffn_gate." + n + ".weight", {kHidden, kInner}, 10 * (e + 1)));
    maker.layer().up_each.push_back(maker.Add("blk.1.ffn_up." + n + ".weight", {kHidden, kInner}, 100 * (e + 1)));
    maker.layer().down_each.push_back(maker.Add("blk.1.ffn_down." + n + ".weight", {kInner, kHidden}, 1000 * (e + 1)));
  }
  const auto store = ExpertStore::Create(maker.manifest());
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_EQ(At((*store)->Host(LayerId(1), ExpertId(1)).up, 0, 0), 200);
}

TEST(ExpertStoreTest, RefusesWrongShapesNamingTheTensor) {
  Maker maker;
  maker.layer().gate = maker.Add("blk.1.ffn_gate_exps.weight", {kHidden, kInner, kExperts}, 0);
  maker.layer().up = maker.Add("blk.1.ffn_up_exps.weight", {kHidden, kInner, kExperts - 1}, 100);
  maker.layer().down = maker.Add("blk.1.ffn_down_exps.weight", {kInner, kHidden, kExperts}, 200);
  const auto store = ExpertStore::Create(maker.manifest());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(store.status().message().find("blk.1.ffn_up_exps.weight"), std::string::npos);
}

TEST(TensorViewTest, ChecksRowRanges) {
  Maker maker;
  const int32_t index = maker.Add("w", {kHidden, 6}, 0);
  const Tensor& tensor = maker.manifest().tensors[static_cast<size_t>(index)];
  EXPECT_EQ(At(*MatrixView(tensor, 2, 3), 0, 0), 2 * kHidden);
  EXPECT_FALSE(MatrixView(tensor, 4, 3).ok());
  EXPECT_FALSE(MatrixView(tensor, -1, 3).ok());
  EXPECT_FALSE(DecodeSmall(tensor, 5).ok());
  EXPECT_EQ((*DecodeSmall(tensor, 24))[23], 23);
}

}  // namespace
}  // namespace bellhop::store
