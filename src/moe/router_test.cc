#include "moe/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace bellhop::moe {
namespace {

struct Routed {
  bool clean = false;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed Route(RouterParams params, std::vector<float> logits) {
  params.experts = static_cast<int32_t>(logits.size());
  Routed routed;
  routed.ids.assign(static_cast<size_t>(params.used), -1);
  routed.weights.assign(static_cast<size_t>(params.used), -1);
  std::vector<float> scratch(2 * logits.size());
  routed.clean = RouteRow(params, kernels::SelectVecOps({}), logits.data(), scratch.data(), routed.ids.data(),
                          routed.weights.data());
  return routed;
}

TEST(RouterTest, SoftmaxThenTopK) {
  const Routed r = Route({.used = 2}, {0, 1, 3, 2});
  const double sum = std::exp(0.0) + std::exp(1.0) + std::exp(3.0) + std::exp(2.0);
  EXPECT_TRUE(r.clean);
  EXPECT_EQ(r.ids, (std::vector<int32_t>{2, 3}));
  EXPECT_NEAR(r.weights[0], std::exp(3.0) / sum, 1e-6);
  EXPECT_NEAR(r.weights[1], std::exp(2.0) / sum, 1e-6);
}

TEST(RouterTest, NormalisesAndScales) {
  const Routed r = Route({.used = 2, .normalise = true, .weights_scale = 2.5f}, {0, 1, 3, 2});
  EXPECT_NEAR(r.weights[0] + r.weights[1], 2.5, 1e-6);
  EXPECT_NEAR(r.weights[0] / r.weights[1], std::exp(1.0), 1e-5);
}

TEST(RouterTest, SoftmaxOverTheSelected) {
  const Routed r = Route({.gating = Gating::kSoftmaxSelected, .used = 2}, {-5, 1, 3, 2});
  EXPECT_NEAR(r.weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(r.weights[0] + r.weights[1], 1, 1e-6);
}

TEST(RouterTest, BiasChangesTheSelectionOnly) {
  const float bias[] = {10, 0, 0, 0};
  const Routed r = Route({.gating = Gating::kSigmoid, .used = 2, .selection_bias = bias}, {0, 1, 3, 2});
  EXPECT_EQ(r.ids, (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(r.weights[0], 0.5, 1e-6);
}

TEST(RouterTest, TiesGoToTheLowestId) {
  EXPECT_EQ(Route({.used = 3}, {1, 1, 1, 1, 1}).ids, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Route({.used = 2}, {0, 2, 1, 2, 2}).ids, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Route({.used = 2}, {0, 0, 0}).ids, (std::vector<int32_t>{0, 1}));
}

TEST(RouterTest, AllExpertsCanBeUsed) {
  const Routed r = Route({.used = 4, .normalise = true}, {0, 3, 1, 2});
  EXPECT_EQ(r.ids, (std::vector<int32_t>{1, 3, 2, 0}));
  EXPECT_EQ(Route({.used = 1}, {7}).ids, (std::vector<int32_t>{0}));
}

TEST(RouterTest, ManyExperts) {
  std::vector<float> logits(513);
  for (size_t e = 0; e < logits.size(); ++e) logits[e] = static_cast<float>((e * 37) % 513);
  const Routed r = Route({.used = 10}, logits);
  for (int32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(logits[static_cast<size_t>(r.ids[static_cast<size_t>(i)])], 512 - i);
  }
}

TEST(RouterTest, GroupsAreRankedByTheirTwoBest) {
  // Group 1 holds the best single score, group 0 the best pair.
  RouterParams params{.gating = Gating::kSigmoid, .used = 2, .groups = 2, .groups_used = 1};
  EXPECT_EQ(Route(params, {2.0f, 1.9f, 2.1f, -9.0f}).ids, (std::vector<int32_t>{0, 1}));
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

TEST(RouterTest, BadRowsAreReportedWithDistinctIdsInRangeAndNoWeight) {
  const float nan_bias[] = {0, kNan, 0, 0};
  struct Case {
    Gating gating;
    std::vector<float> logits;
    const float* bias = nullptr;
  };
  const std::vector<Case> cases = {
      {Gating::kSoftmax, {kNan, kNan, kNan, kNan}},
      {Gating::kSoftmax, {0, kNan, 1, 2}},
      {Gating::kSoftmax, {-kInf, -kInf, -kInf, -kInf}},
      {Gating::kSoftmax, {0, kInf, kInf, 1}},
      {Gating::kSigmoid, {kNan, 0, 1, 2}},
      {Gating::kSigmoid, {0, 3, 1, 2}, nan_bias},
      {Gating::kSoftmaxSelected, {kNan, 0, 1, 2}},
      {Gating::kSoftmaxSelected, {0, kInf, 1, 2}},
      {Gating::kSoftmaxSelected, {-kInf, -kInf, -kInf, -kInf}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const Routed r = Route({.gating = cases[i].gating, .used = 2, .normalise = true, .selection_bias = cases[i].bias},
                           cases[i].logits);
    EXPECT_FALSE(r.clean) << i;
    EXPECT_NE(r.ids[0], r.ids[1]) << i;
    for (const int32_t id : r.ids) EXPECT_TRUE(id >= 0 && id < 4) << i;
    EXPECT_EQ(r.weights, (std::vector<float>{0, 0})) << i;
  }
}

TEST(RouterTest, OneMinusInfIsAnOrdinaryScore) {
  for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxSelected}) {
    const Routed r = Route({.gating = gating, .used = 2}, {0, -kInf, 1, 2});
    EXPECT_TRUE(r.clean);
    EXPECT_EQ(r.ids, (std::vector<int32_t>{3, 2}));
  }
}

}  // namespace
}  // namespace bellhop::moe
