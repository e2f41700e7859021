// The MoE layer and its products under inputs that the router does not give, or should not: repeated experts in one
// row, rows that are not numbers beside rows that are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "faults/variant.h"
#include "formats/gguf/manifest_builder.h"
#include "moe/cpu_cold.h"
#include "quant/codec.h"
#include "store/expert_store.h"

namespace bellhop::test {
namespace {

using moe::NumericClass;

std::vector<sys::CpuCaps> CapsOfThisMachine() {
  std::vector<sys::CpuCaps> all;
  for (const char* isa : {"reference", "avx2", "avx512", "amx"}) {
    const auto caps = sys::LimitIsa(sys::DetectCpu(), isa);
    if (caps.ok()) all.push_back(*caps);
  }
  return all;
}

std::unique_ptr<sys::WorkerPool> MakePool(size_t workers) {
  return std::move(sys::WorkerPool::Create({.cpus = std::vector<int>(workers, 0), .pin = false})).value();
}

std::vector<float> RandomRows(int64_t rows, int64_t cols) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x) v = normal(random);
  return x;
}

// The cold path of one crafted layer.
class ColdLayer {
 public:
  ColdLayer(const MoeShape& shape, const sys::CpuCaps& caps, int32_t rows, int32_t used)
      : hidden_(shape.hidden),
        model_(std::move(formats::GgufModel::Open(dir_.Write(MakeMoe(shape)))).value()),
        manifest_(std::move(formats::BuildManifest(model_)).value()),
        store_(std::move(store::ExpertStore::Create(manifest_)).value()),
        pool_(MakePool(2)),
        cpu_(std::move(moe::CpuContext::Create(pool_.get(), caps, std::max(shape.hidden, shape.inner), rows)).value()),
        path_(std::move(
                  moe::CpuColdPath::Create(
                      *store_, *cpu_, {.hidden = hidden_, .max_rows = rows, .max_used = used, .numerics = {}}, nullptr))
                  .value()) {}

  std::vector<float> Run(NumericClass numeric_class, int32_t used, const std::vector<int32_t>& ids,
                         const std::vector<float>& weights, const std::vector<float>& x) {
    const auto rows = static_cast<int32_t>(ids.size()) / used;
    std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
    path_->Run({.layer = LayerId(0),
                .numeric_class = numeric_class,
                .routes = {rows, used, ids.data(), weights.data(), nullptr},
                .x = {x.data(), rows, hidden_, hidden_},
                .y = {y.data(), rows, hidden_, hidden_}});
    return y;
  }

 private:
  VariantDir dir_;
  int64_t hidden_;
  formats::GgufModel model_;
  manifest::Manifest manifest_;
  std::unique_ptr<store::ExpertStore> store_;
  std::unique_ptr<sys::WorkerPool> pool_;
  std::unique_ptr<moe::CpuContext> cpu_;
  std::unique_ptr<moe::CpuColdPath> path_;
};

TEST(RepeatedExpertTest, EveryMentionCounts) {
  constexpr int32_t kRows = 9, kUsed = 6;
  const MoeShape shape{.hidden = 40, .inner = 24, .experts = 144, .used = kUsed};
  std::vector<int32_t> ids;
  for (int32_t m = 0; m < kRows; ++m) {
    for (const int32_t id : {121, 62, 117, 62, 32, 13}) ids.push_back((id + m * 7) % 144);
  }
  std::fill(ids.begin() + 6, ids.begin() + 12, 143);  // one row names the last expert six times
  std::vector<float> weights;
  for (size_t i = 0; i < ids.size(); ++i) weights.push_back(0.05f * static_cast<float>(i % 7 + 1));
  const std::vector<float> x = RandomRows(kRows, 40);
  for (const sys::CpuCaps& caps : CapsOfThisMachine()) {
    ColdLayer layer(shape, caps, kRows * kUsed, kUsed);
    for (const NumericClass numeric_class : {NumericClass::kDecode, NumericClass::kPrompt}) {
      const std::vector<float> together = layer.Run(numeric_class, kUsed, ids, weights, x);
      // Each route alone, summed in route order with the same fused operation.
      std::vector<float> expected(x.size(), 0.0f);
      for (int32_t k = 0; k < kUsed; ++k) {
        std::vector<int32_t> one;
        for (int32_t m = 0; m < kRows; ++m) one.push_back(ids[static_cast<size_t>(m * kUsed + k)]);
        const std::vector<float> part = layer.Run(numeric_class, 1, one, std::vector<float>(kRows, 1.0f), x);
        for (size_t i = 0; i < x.size(); ++i) {
          expected[i] = std::fma(weights[i / 40 * kUsed + static_cast<size_t>(k)], part[i], expected[i]);
        }
      }
      EXPECT_EQ(together, expected) << sys::IsaName(caps.isa);
    }
  }
}

TEST(BadRowTest, OtherRowsAreUnchangedWhateverTheInnerSize) {
  constexpr int64_t kRows = 8, kOutputs = 37;
  size_t tried = 0;
  for (const sys::CpuCaps& caps : CapsOfThisMachine()) {
    const auto pool = MakePool(2);
    for (const quant::FormatTraits& traits : quant::AllFormats()) {
      if (!traits.weights || traits.encoder == quant::EncoderKind::kNone) continue;
      for (const int64_t cols : {40, 72, 96, 256, 512}) {
        if (cols % traits.block_elems != 0) continue;
        const auto row_bytes = *quant::RowBytes(traits.format, static_cast<uint64_t>(cols));
        const std::vector<float> values = RandomRows(kOutputs, cols);
        std::vector<std::byte> bytes(kOutputs * row_bytes);
        for (int64_t r = 0; r < kOutputs; ++r) {
          ASSERT_TRUE(quant::EncodeRow(traits.format, values.data() + r * cols, cols, nullptr,
                                       bytes.data() + r * static_cast<int64_t>(row_bytes))
                          .ok());
        }
        quant::QuantView view;
        view.format = traits.format;
        view.rows = kOutputs;
        view.cols = cols;
        view.planes[0] = {bytes.data(), static_cast<int64_t>(row_bytes)};
        const auto linear = moe::MakeLinear(view, nullptr, 1, caps, nullptr);
        ASSERT_TRUE(linear.ok());
        const auto cpu = moe::CpuContext::Create(pool.get(), caps, cols, kRows);
        ASSERT_TRUE(cpu.ok());
        auto run = [&, c = cols](NumericClass numeric_class, const std::vector<float>& x) {
          std::vector<float> y(kRows * kOutputs);
          const moe::LinearJob job{&*linear, {y.data(), kRows, kOutputs, kOutputs}};
          moe::RunLinears(**cpu, numeric_class, {&job, 1}, {x.data(), kRows, c, c});
          return y;
        };
        std::vector<float> x = RandomRows(kRows, cols);
        (*cpu)->ops->round_bf16(x.data(), kRows * cols, x.data());
        for (const NumericClass numeric_class : {NumericClass::kDecode, NumericClass::kPrompt}) {
          const std::vector<float> clean = run(numeric_class, x);
          for (const int64_t bad : {int64_t{0}, int64_t{3}, kRows - 1}) {
            std::vector<float> dirty = x;
            std::fill_n(dirty.begin() + bad * cols, cols, std::numeric_limits<float>::quiet_NaN());
            const std::vector<float> y = run(numeric_class, dirty);
            for (int64_t m = 0; m < kRows; ++m) {
              const auto first = static_cast<size_t>(m * kOutputs);
              const bool same =
                  std::equal(y.begin() + m * kOutputs, y.begin() + (m + 1) * kOutputs, clean.begin() + m * kOutputs);
              EXPECT_EQ(m != bad, same) << traits.name << " " << cols << " row " << m;
              EXPECT_EQ(m == bad, std::isnan(y[first])) << traits.name;
            }
            ++tried;
          }
        }
      }
    }
  }
  EXPECT_GT(tried, 200u);
}

}  // namespace
}  // namespace bellhop::test
