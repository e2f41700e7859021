#include "moe/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "quant/codec.h"
#include "store/tensor_view.h"

namespace bellhop::moe {
namespace {

using quant::WeightFormat;

constexpr int64_t kHidden = 96, kInner = 64;
constexpr int32_t kExperts = 6, kUsed = 3;

// One layer of random experts in a block format, with a plain double-precision forward.
class TinyLayer {
 public:
  explicit TinyLayer(WeightFormat format) {
    m_.hparams.layers = 1;
    m_.hparams.hidden = kHidden;
    m_.hparams.experts.count = kExperts;
    m_.hparams.experts.used = kUsed;
    manifest::ExpertLayer layer;
    layer.layer = LayerId(0);
    layer.gate = Add("blk.0.ffn_gate_exps.weight", format, {kHidden, kInner, kExperts});
    layer.up = Add("blk.0.ffn_up_exps.weight", format, {kHidden, kInner, kExperts});
    layer.down = Add("blk.0.ffn_down_exps.weight", format, {kInner, kHidden, kExperts});
    layer.gate_bias = Add("blk.0.ffn_gate_exps.bias", WeightFormat::kF32, {kInner, kExperts});
    layer.down_bias = Add("blk.0.ffn_down_exps.bias", WeightFormat::kF32, {kHidden, kExperts});
    m_.expert_layers.push_back(layer);
    router_ = Add("blk.0.ffn_gate_inp.weight", WeightFormat::kF32, {kHidden, kExperts});
    auto store = store::ExpertStore::Create(m_);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::move(store).value();
  }

  int32_t Add(const std::string& name, WeightFormat format, std::vector<uint64_t> dims) {
    manifest::Tensor t;
    t.name = name;
    t.format = format;
    t.n_dims = static_cast<int>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) t.dims[i] = dims[i];
    std::vector<float> values(t.elements());
    std::normal_distribution<float> normal(0, 0.3f);
    for (float& v : values) v = normal(random_);
    const uint64_t row_bytes = *quant::RowBytes(format, dims[0]);
    auto bytes = std::make_unique<std::vector<std::byte>>(row_bytes * t.rows());
    for (uint64_t r = 0; r < t.rows(); ++r) {
      EXPECT_TRUE(quant::EncodeRow(format, values.data() + r * dims[0], static_cast<int64_t>(dims[0]), nullptr,
                                   bytes->data() + r * row_bytes)
                      .ok());
      quant::DecodeRow(format, bytes->data() + r * row_bytes, static_cast<int64_t>(dims[0]),
                       values.data() + r * dims[0]);
    }
    t.bytes = bytes->size();
    t.data = {bytes->data(), bytes->size()};
    bytes_.push_back(std::move(bytes));
    decoded_.push_back(std::move(values));
    m_.tensor_index[name] = static_cast<int32_t>(m_.tensors.size());
    m_.tensors.push_back(t);
    return static_cast<int32_t>(m_.tensors.size()) - 1;
  }

  // The sum for one row, everything in double.
  std::vector<double> Oracle(const float* x) const {
    const std::vector<float>&gate = decoded_[0], &up = decoded_[1], &down = decoded_[2], &gate_bias = decoded_[3],
          &down_bias = decoded_[4], &router = decoded_[5];
    std::vector<std::pair<double, int32_t>> scores;
    for (int32_t e = 0; e < kExperts; ++e) scores.push_back({-Dot(router.data() + e * kHidden, x, kHidden), e});
    std::sort(scores.begin(), scores.end());
    double sum = 0;
    for (int32_t i = 0; i < kUsed; ++i) sum += std::exp(-scores[static_cast<size_t>(i)].first);
    std::vector<double> y(kHidden, 0.0);
    for (int32_t i = 0; i < kUsed; ++i) {
      const int64_t e = scores[static_cast<size_t>(i)].second;
      const double weight = std::exp(-scores[static_cast<size_t>(i)].first) / sum;
      std::vector<float> h(kInner);
      for (int64_t r = 0; r < kInner; ++r) {
        const double g =
            Dot(gate.data() + (e * kInner + r) * kHidden, x, kHidden) + gate_bias[static_cast<size_t>(e * kInner + r)];
        const double u = Dot(up.data() + (e * kInner + r) * kHidden, x, kHidden);
        h[static_cast<size_t>(r)] = static_cast<float>(g / (1 + std::exp(-g)) * u);
      }
      for (int64_t r = 0; r < kHidden; ++r) {
        y[static_cast<size_t>(r)] += weight * (Dot(down.data() + (e * kHidden + r) * kInner, h.data(), kInner) +
                                               down_bias[static_cast<size_t>(e * kHidden + r)]);
      }
    }
    return y;
  }

  std::vector<float> Run(int threads, const sys::CpuCaps& caps, NumericClass numeric_class, const std::vector<float>& x,
                         int64_t rows, RouteCounts* counts = nullptr) {
    auto pool = sys::WorkerPool::Create({.cpus = std::vector<int>(static_cast<size_t>(threads), 0), .pin = false});
    EXPECT_TRUE(pool.ok());
    auto cpu = CpuContext::Create(pool->get(), caps, kHidden, rows);
    EXPECT_TRUE(cpu.ok());
    const auto placement = plan::Placement::AllCold({kExperts});
    auto executor = MoeExecutor::Create(*store_, placement, **cpu,
                                        {.hidden = kHidden,
                                         .max_rows = static_cast<int32_t>(rows),
                                         .max_used = kUsed,
                                         .max_experts = kExperts,
                                         .activation = {}},
                                        nullptr);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    const auto router =
        MakeLinear(*store::MatrixView(m_.tensors[static_cast<size_t>(router_)]), nullptr, 1, caps, nullptr);
    EXPECT_TRUE(router.ok());
    std::vector<float> y(x.size(), NAN);
    std::vector<uint8_t> bad(static_cast<size_t>(rows));
    (*executor)->Run(LayerId(0), numeric_class, *router, {.experts = kExperts, .used = kUsed, .normalise = true},
                     {x.data(), rows, kHidden, kHidden}, {y.data(), rows, kHidden, kHidden}, bad.data());
    for (int64_t m = 0; m < rows; ++m)
      EXPECT_EQ(bad[static_cast<size_t>(m)] != 0, std::isnan(x[static_cast<size_t>(m * kHidden)]));
    if (counts != nullptr) *counts = (*executor)->counts();
    return y;
  }

  std::vector<float> RandomRows(int64_t rows) {
    std::vector<float> x(static_cast<size_t>(rows * kHidden));
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random_);
    return x;
  }

 private:
  static double Dot(const float* a, const float* b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  }

  std::mt19937 random_{7};
  manifest::Manifest m_;
  int32_t router_ = -1;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
  std::vector<std::vector<float>> decoded_;
  std::unique_ptr<store::ExpertStore> store_;
};

double RelativeError(const std::vector<float>& y, const TinyLayer& layer, const std::vector<float>& x) {
  double error = 0, norm = 0;
  for (size_t m = 0; m < x.size() / kHidden; ++m) {
    const std::vector<double> expected = layer.Oracle(x.data() + m * kHidden);
    for (size_t c = 0; c < kHidden; ++c) {
      error += std::pow(y[m * kHidden + c] - expected[c], 2);
      norm += std::pow(expected[c], 2);
    }
  }
  return std::sqrt(error / norm);
}

TEST(MoeExecutorTest, MatchesTheOracleInBothClasses) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kQ4_0, WeightFormat::kQ8_0}) {
    TinyLayer layer(format);
    const std::vector<float> x = layer.RandomRows(9);
    EXPECT_LT(RelativeError(layer.Run(1, sys::DetectCpu(), NumericClass::kDecode, x, 9), layer, x), 2e-6);
    EXPECT_LT(RelativeError(layer.Run(1, sys::DetectCpu(), NumericClass::kPrompt, x, 9), layer, x), 5e-3);
  }
}

TEST(MoeExecutorTest, SameBitsForEveryThreadCountRowCountAndIsa) {
  TinyLayer layer(WeightFormat::kQ4_0);
  const int64_t rows = 11;
  const std::vector<float> x = layer.RandomRows(rows);
  for (const NumericClass numeric_class : {NumericClass::kDecode, NumericClass::kPrompt}) {
    const std::vector<float> reference = layer.Run(1, {}, numeric_class, x, rows);
    for (const int threads : {1, 2, 3, 5}) {
      EXPECT_EQ(layer.Run(threads, sys::DetectCpu(), numeric_class, x, rows), reference) << threads;
    }
    for (int64_t m = 0; m < rows; ++m) {
      const std::vector<float> one(x.begin() + m * kHidden, x.begin() + (m + 1) * kHidden);
      const std::vector<float> expected(reference.begin() + m * kHidden, reference.begin() + (m + 1) * kHidden);
      EXPECT_EQ(layer.Run(2, sys::DetectCpu(), numeric_class, one, 1), expected) << m;
    }
  }
}

TEST(MoeExecutorTest, OneBadRowLeavesTheOthersAlone) {
  TinyLayer layer(WeightFormat::kQ8_0);
  std::vector<float> x = layer.RandomRows(8);
  const std::vector<float> clean = layer.Run(2, sys::DetectCpu(), NumericClass::kDecode, x, 8);
  for (int64_t c = 0; c < kHidden; ++c) x[static_cast<size_t>(3 * kHidden + c)] = NAN;
  const std::vector<float> y = layer.Run(2, sys::DetectCpu(), NumericClass::kDecode, x, 8);
  for (int64_t m = 0; m < 8; ++m) {
    if (m == 3) continue;
    for (int64_t c = 0; c < kHidden; ++c) {
      EXPECT_EQ(y[static_cast<size_t>(m * kHidden + c)], clean[static_cast<size_t>(m * kHidden + c)]);
    }
  }
}

TEST(MoeExecutorTest, CountsRoutesAsMisses) {
  TinyLayer layer(WeightFormat::kQ8_0);
  RouteCounts counts(plan::Placement::AllCold({kExperts}));
  layer.Run(1, sys::DetectCpu(), NumericClass::kDecode, layer.RandomRows(20), 20, &counts);
  EXPECT_EQ(counts.hits(), 0u);
  EXPECT_EQ(counts.misses(), 20u * kUsed);
  uint64_t sum = 0;
  for (const uint64_t c : counts.per_expert()[0]) sum += c;
  EXPECT_EQ(sum, 20u * kUsed);
}

TEST(RouteCountsTest, AddsWhatADeviceCounted) {
  RouteCounts counts(plan::Placement::AllCold({3, 0, 2}));
  const std::vector<uint32_t> first = {5, 0, 1}, more = {0, 2, 1}, last = {7, 4000000000};
  counts.Accumulate(LayerId(0), first, {.hits = 4, .misses = 2, .hot_experts = 3, .cold_experts = 1});
  counts.Accumulate(LayerId(0), more, {.hits = 1, .misses = 2, .hot_experts = 1, .cold_experts = 2});
  counts.Accumulate(LayerId(2), last, {.hits = 4000000007, .misses = 0, .hot_experts = 9, .cold_experts = 0});
  EXPECT_EQ(counts.per_expert()[0], (std::vector<uint64_t>{5, 2, 2}));
  EXPECT_EQ(counts.per_expert()[2], (std::vector<uint64_t>{7, 4000000000}));
  EXPECT_EQ(counts.per_layer()[0].hits, 5u);
  EXPECT_EQ(counts.per_layer()[0].misses, 4u);
  EXPECT_EQ(counts.per_layer()[0].hot_experts, 4u);
  EXPECT_EQ(counts.per_layer()[0].cold_experts, 3u);
  EXPECT_EQ(counts.hits(), 4000000012u);
  EXPECT_EQ(counts.misses(), 4u);
  counts.Reset();
  EXPECT_EQ(counts.hits() + counts.misses() + counts.per_expert()[2][1], 0u);
}

TEST(MoeExecutorTest, ZeroRowsAreFine) {
  TinyLayer layer(WeightFormat::kQ8_0);
  EXPECT_TRUE(layer.Run(2, sys::DetectCpu(), NumericClass::kDecode, {}, 0).empty());
}

}  // namespace
}  // namespace bellhop::moe
