#include "plan/popularity.h"

#include <gtest/gtest.h>

#include <numeric>

namespace bellhop::plan {
namespace {

std::vector<ExpertLayerInfo> Layers(int32_t layers, int32_t experts, int32_t used) {
  return std::vector<ExpertLayerInfo>(
      static_cast<size_t>(layers),
      {.used = used, .expert_bytes = std::vector<uint64_t>(static_cast<size_t>(experts), 1000)});
}

double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

TEST(PopularityTest, LayersComeFromStacksAndFromSingleTensors) {
  manifest::Manifest m;
  m.hparams.layers = 3;
  m.hparams.experts.count = 2;
  m.hparams.experts.used = 1;
  for (const uint64_t bytes : {20, 40, 60, 7, 9, 1, 1, 3, 5}) {
    m.tensors.emplace_back();
    m.tensors.back().bytes = bytes;
  }
  manifest::ExpertLayer stacks;
  stacks.layer = LayerId(1);
  stacks.gate = 0;
  stacks.up = 1;
  stacks.down = 2;
  manifest::ExpertLayer singles;
  singles.layer = LayerId(2);
  singles.gate_each = {3, 4};
  singles.up_each = {5, 6};
  singles.down_each = {7, 8};
  m.expert_layers = {stacks, singles};
  const auto layers = ExpertLayers(m);
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].experts(), 0);
  EXPECT_EQ(layers[1].expert_bytes, (std::vector<uint64_t>{60, 60}));
  EXPECT_EQ(layers[2].expert_bytes, (std::vector<uint64_t>{11, 15}));
  EXPECT_EQ(layers[2].used, 1);
}

TEST(PopularityTest, CountsAreSharesOfTheRoutes) {
  const auto layers = Layers(2, 4, 2);
  const auto popularity = PopularityFromCounts(layers, {{10, 30, 0, 60}, {0, 0, 0, 0}});
  ASSERT_TRUE(popularity.ok());
  EXPECT_DOUBLE_EQ(popularity->routes[0][3], 1.0);  // an expert is chosen once at most, others share what is left
  EXPECT_DOUBLE_EQ(popularity->routes[0][0], 0.25);
  EXPECT_DOUBLE_EQ(popularity->routes[0][1], 0.75);
  EXPECT_DOUBLE_EQ(popularity->routes[0][2], 0.0);
  EXPECT_DOUBLE_EQ(popularity->routes[1][2], 0.5);
  EXPECT_FALSE(popularity->even);
  // Fewer experts were ever chosen than a row needs.
  EXPECT_EQ(PopularityFromCounts(Layers(1, 4, 3), {{7, 0, 0, 0}})->routes[0][0], 1.0);
  EXPECT_DOUBLE_EQ(PopularityFromCounts(Layers(1, 4, 3), {{7, 0, 0, 0}})->routes[0][3], 2.0 / 3);
  EXPECT_DOUBLE_EQ(PopularityFromCounts(Layers(1, 2, 2), {{7, 1}})->routes[0][1], 1.0);
  EXPECT_FALSE(PopularityFromCounts(layers, {{1, 2, 3, 4}}).ok());
  EXPECT_FALSE(PopularityFromCounts(layers, {{1, 2, 3, 4}, {1, 2, 3}}).ok());
  EXPECT_TRUE(EvenPopularity(layers).even);
  EXPECT_DOUBLE_EQ(EvenPopularity(layers).routes[1][3], 0.5);
}

TEST(PopularityTest, RanksFallAndUnlistedExpertsComeLast) {
  const auto layers = Layers(2, 8, 2);
  ExpertProfile profile{.layers = 2, .experts = 8, .ranked = {}};
  for (int32_t e = 7; e >= 2; --e) {
    for (int32_t l = 0; l < 2; ++l) profile.ranked.push_back({LayerId(l), ExpertId(e)});
  }
  const auto popularity = PopularityFromProfile(layers, profile);
  ASSERT_TRUE(popularity.ok());
  for (const auto& routes : popularity->routes) {
    for (size_t e = 7; e > 2; --e) EXPECT_GT(routes[e], routes[e - 1]);
    EXPECT_LE(routes[1], routes[2]);
    EXPECT_DOUBLE_EQ(routes[0], routes[1]);
    EXPECT_NEAR(Sum(routes), 2.0, 1e-9);
  }
  profile.ranked.push_back({LayerId(1), ExpertId(5)});
  EXPECT_NE(PopularityFromProfile(layers, profile).status().message().find("twice"), std::string::npos);
  profile.ranked.back() = {LayerId(1), ExpertId(8)};
  EXPECT_NE(PopularityFromProfile(layers, profile).status().message().find("does not exist"), std::string::npos);
  profile.experts = 9;
  EXPECT_FALSE(PopularityFromProfile(layers, profile).ok());
}

// What a STRP file holds is enough: written, read, and used.
TEST(PopularityTest, AProfileSurvivesItsFile) {
  const auto ranked = RankExperts({{1, 5, 3}, {9, 0, 2}}, 3);
  ASSERT_TRUE(ranked.ok());
  const std::vector<std::byte> file = SerializeStrp(*ranked);
  const auto parsed = ParseStrp(file, "p.bin");
  ASSERT_TRUE(parsed.ok());
  const auto popularity = PopularityFromProfile(Layers(2, 3, 1), *parsed);
  ASSERT_TRUE(popularity.ok());
  EXPECT_GT(popularity->routes[0][1], popularity->routes[0][2]);
  EXPECT_GT(popularity->routes[0][2], popularity->routes[0][0]);
  EXPECT_GT(popularity->routes[1][0], popularity->routes[1][2]);
}

// The hit rates that the exponent stands for.
TEST(PopularityTest, TheFirstPartOfAProfileHoldsItsShareOfRoutes) {
  const auto layers = Layers(4, 128, 1);
  ExpertProfile profile{.layers = 4, .experts = 128, .ranked = {}};
  for (int32_t e = 0; e < 128; ++e) {
    for (int32_t l = 0; l < 4; ++l) profile.ranked.push_back({LayerId(l), ExpertId(e)});
  }
  const auto popularity = PopularityFromProfile(layers, profile);
  ASSERT_TRUE(popularity.ok());
  const std::pair<int, double> expected[] = {{32, 0.58}, {64, 0.77}, {96, 0.90}};
  for (const auto& [experts, share] : expected) {
    double sum = 0;
    for (int e = 0; e < experts; ++e) sum += popularity->routes[3][static_cast<size_t>(e)];
    EXPECT_NEAR(sum, share, 0.015) << experts;
  }
}

}  // namespace
}  // namespace bellhop::plan
