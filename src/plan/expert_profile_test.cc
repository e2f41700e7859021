#include "plan/expert_profile.h"

#include <gtest/gtest.h>

namespace bellhop::plan {
namespace {

ExpertProfile Sample() {
  // Layer 1 is dense.
  return *RankExperts({{5, 1, 9}, {}, {9, 2, 0}}, 3);
}

TEST(ExpertProfileTest, RanksByCountThenLayerThenExpert) {
  const ExpertProfile profile = Sample();
  ASSERT_EQ(profile.ranked.size(), 6u);
  EXPECT_EQ(profile.ranked[0], (ExpertKey{LayerId(0), ExpertId(2)}));
  EXPECT_EQ(profile.ranked[1], (ExpertKey{LayerId(2), ExpertId(0)}));
  EXPECT_EQ(profile.ranked[2], (ExpertKey{LayerId(0), ExpertId(0)}));
  EXPECT_EQ(profile.ranked[5], (ExpertKey{LayerId(2), ExpertId(2)}));
  EXPECT_FALSE(RankExperts({{1, 2}}, 3).ok());
  EXPECT_FALSE(RankExperts({}, 3).ok());
}

TEST(ExpertProfileTest, RoundTripsWithAndWithoutTable) {
  const ExpertProfile profile = Sample();
  const std::vector<std::byte> bytes = SerializeStrp(profile);
  ASSERT_EQ(bytes.size(), 24u + 4 * 6 + 4 * 9);
  for (const size_t size : {bytes.size(), size_t{24 + 4 * 6}}) {
    const auto parsed = ParseStrp(HostSpan<const std::byte>(bytes.data(), size), "p.strp");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->ranked, profile.ranked);
    EXPECT_EQ(parsed->layers, 3);
  }
}

TEST(ExpertProfileTest, RefusesDamageNamingTheOffset) {
  const std::vector<std::byte> good = SerializeStrp(Sample());
  auto expect_refused = [&](size_t at, int value, const char* reason) {
    std::vector<std::byte> bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    const auto parsed = ParseStrp(bytes, "p.strp");
    ASSERT_FALSE(parsed.ok()) << reason;
    EXPECT_NE(parsed.status().message().find(reason), std::string::npos) << parsed.status().message();
    EXPECT_NE(parsed.status().message().find("p.strp"), std::string::npos);
  };
  expect_refused(0, 'X', "magic");
  expect_refused(4, 2, "version");
  expect_refused(8, 0, "layers");
  expect_refused(12, 0, "experts");
  expect_refused(20, 200, "ranked pairs");
  expect_refused(24, 3, "outside");
  expect_refused(26, 7, "outside");
  expect_refused(28, 0, "ranked twice");  // pair 1 becomes (0, 0), which is pair 2
}

TEST(ExpertProfileTest, RefusesDuplicates) {
  std::vector<std::byte> bytes = SerializeStrp(Sample());
  for (int i = 0; i < 4; ++i) bytes[28 + i] = bytes[24 + i];
  const auto parsed = ParseStrp(bytes, "p.strp");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("ranked twice"), std::string::npos);
}

TEST(ExpertProfileTest, EveryTruncationIsRefusedOrDropsTheTable) {
  const std::vector<std::byte> bytes = SerializeStrp(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseStrp(HostSpan<const std::byte>(bytes.data(), size), "p").ok(), size == 24 + 4 * 6) << size;
  }
}

}  // namespace
}  // namespace bellhop::plan
