#include "model/synthetic_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "store/tensor_view.h"

namespace bellhop::model {
namespace {

constexpr SyntheticShape kShape{.hidden = 64, .inner = 32, .layers = 3, .experts = 24, .used = 5, .seed = 7};

void ExpectLinear(const SyntheticModel& model, const LinearSpec& linear, int64_t rows, int64_t cols) {
  EXPECT_EQ(linear.rows, rows);
  EXPECT_EQ(linear.cols, cols);
  const manifest::Tensor& tensor = model.manifest().tensors[static_cast<size_t>(linear.weight)];
  const auto view = store::MatrixView(tensor, linear.first_row, linear.rows);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->rows, rows);
  EXPECT_EQ(view->cols, cols);
}

TEST(SyntheticModelTest, EveryTensorHasTheShapeThatTheSpecSays) {
  const SyntheticModel model(kShape);
  const ModelSpec& spec = model.spec();
  EXPECT_EQ(spec.hidden, kShape.hidden);
  ASSERT_EQ(spec.layers.size(), 3u);
  for (const LayerSpec& layer : spec.layers) {
    const auto& mixer = std::get<AttentionSpec>(layer.mixer);
    for (const LinearSpec* part : {&mixer.q, &mixer.k, &mixer.v}) {
      ExpectLinear(model, *part, int64_t{mixer.heads} * mixer.key_dim, kShape.hidden);
    }
    ExpectLinear(model, mixer.output, kShape.hidden, int64_t{mixer.heads} * mixer.value_dim);
    const auto& moe = std::get<MoeSpec>(layer.feed_forward);
    EXPECT_EQ(moe.experts, kShape.experts);
    EXPECT_EQ(moe.used, kShape.used);
    EXPECT_EQ(moe.inner, kShape.inner);
    ExpectLinear(model, moe.router, kShape.experts, kShape.hidden);
  }
  ExpectLinear(model, spec.head, spec.vocab, kShape.hidden);
  const auto norm = store::DecodeSmall(model.manifest().tensors[static_cast<size_t>(spec.output_norm.weight)], 64);
  ASSERT_TRUE(norm.ok()) << norm.status().ToString();
  EXPECT_EQ(*std::min_element(norm->begin(), norm->end()), 1);
}

TEST(SyntheticModelTest, UniformNumbersAreTheSameWhereverAPieceBegins) {
  std::vector<float> all(1000), piece(300);
  FillUniform(5, 0, 1000, all.data());
  FillUniform(5, 200, 300, piece.data());
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), all.begin() + 200));
  FillUniform(6, 200, 300, piece.data());
  EXPECT_FALSE(std::equal(piece.begin(), piece.end(), all.begin() + 200));
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  EXPECT_GE(*low, -1);
  EXPECT_LT(*high, 1);
  double sum = 0, squares = 0;
  for (const float v : all) {
    sum += v;
    squares += double{v} * v;
  }
  EXPECT_NEAR(sum / 1000, 0, 0.1);
  EXPECT_NEAR(squares / 1000, 1.0 / 3, 0.05);
}

// What the benchmark's distinct experts rest on: rows and layers choose independently, and every expert alike.
TEST(SyntheticModelTest, RandomRowsChooseUniformlyAndAfreshInEveryLayer) {
  const SyntheticModel model(kShape);
  constexpr int kRows = 2000;
  std::vector<std::vector<int>> chosen(3, std::vector<int>(24));
  int same = 0;
  for (int m = 0; m < kRows; ++m) {
    std::vector<float> x(64);
    FillUniform(99, m * 64, 64, x.data());
    std::vector<int> best(3);
    for (size_t l = 0; l < 3; ++l) {
      const auto& moe = std::get<MoeSpec>(model.spec().layers[l].feed_forward);
      const auto* const w =
          reinterpret_cast<const float*>(model.manifest().tensors[static_cast<size_t>(moe.router.weight)].data.data());
      std::vector<float> scores(24);
      for (size_t e = 0; e < 24; ++e) scores[e] = std::inner_product(x.begin(), x.end(), w + e * 64, 0.0f);
      best[l] = static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin());
      ++chosen[l][static_cast<size_t>(best[l])];
    }
    same += best[0] == best[1] ? 1 : 0;
  }
  for (const auto& counts : chosen) {
    EXPECT_GT(*std::min_element(counts.begin(), counts.end()), kRows / 24 / 3);
    EXPECT_LT(*std::max_element(counts.begin(), counts.end()), kRows / 24 * 3);
  }
  EXPECT_LT(same, kRows / 24 * 3);
}

}  // namespace
}  // namespace bellhop::model
