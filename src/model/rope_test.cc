#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bellhop::model {
namespace {

manifest::RopeHparams Plain(uint32_t dims) {
  manifest::RopeHparams rope;
  rope.dims = dims;
  return rope;
}

TEST(RopeTest, PlainAndLinearFrequencies) {
  manifest::RopeHparams hparams = Plain(8);
  const auto plain = MakeRope(RopeKind::kNeox, hparams, 10000, {});
  ASSERT_TRUE(plain.ok());
  ASSERT_EQ(plain->frequencies.size(), 4u);
  EXPECT_DOUBLE_EQ(plain->frequencies[0], 1);
  EXPECT_NEAR(plain->frequencies[2], 0.01, 1e-15);
  hparams.scaling = manifest::RopeScaling::kLinear;
  hparams.factor = 4;
  EXPECT_DOUBLE_EQ(MakeRope(RopeKind::kNeox, hparams, 10000, {})->frequencies[0], 0.25);
  float row[8];
  FillRopeRow(*plain, 3, row);
  EXPECT_FLOAT_EQ(row[0], std::cos(3.0f));
  EXPECT_FLOAT_EQ(row[1], std::sin(3.0f));
}

TEST(RopeTest, FactorsDivide) {
  const auto rope = MakeRope(RopeKind::kNorm, Plain(4), 10000, {1, 8});
  ASSERT_TRUE(rope.ok());
  EXPECT_DOUBLE_EQ(rope->frequencies[1], 0.01 / 8);
  EXPECT_FALSE(MakeRope(RopeKind::kNorm, Plain(4), 10000, {1, 0}).ok());
}

// The gpt-oss settings: pairs well below the fast bound keep their frequency, pairs beyond the slow bound are divided.
TEST(RopeTest, YarnMixesBetweenItsBounds) {
  manifest::RopeHparams hparams = Plain(64);
  hparams.scaling = manifest::RopeScaling::kYarn;
  hparams.factor = 32;
  hparams.original_context = 4096;
  hparams.yarn_ext_factor = 1;
  hparams.yarn_truncate = false;
  const auto exact = MakeRope(RopeKind::kNeox, hparams, 150000, {});
  ASSERT_TRUE(exact.ok());
  EXPECT_NEAR(exact->magnitude, 1.3466, 1e-4);
  EXPECT_DOUBLE_EQ(exact->frequencies[0], 1);
  const double last = std::pow(150000.0, -62.0 / 64);
  EXPECT_DOUBLE_EQ(exact->frequencies[31], last / 32);
  hparams.yarn_truncate = true;
  const auto truncated = MakeRope(RopeKind::kNeox, hparams, 150000, {});
  EXPECT_NE(truncated->frequencies[12], exact->frequencies[12]);
}

TEST(RopeTest, RefusesImpossibleValues) {
  EXPECT_FALSE(MakeRope(RopeKind::kNeox, Plain(0), 10000, {}).ok());
  EXPECT_FALSE(MakeRope(RopeKind::kNeox, Plain(7), 10000, {}).ok());
  EXPECT_FALSE(MakeRope(RopeKind::kNeox, Plain(8), 0, {}).ok());
  EXPECT_FALSE(MakeRope(RopeKind::kNeox, Plain(8), NAN, {}).ok());
  manifest::RopeHparams hparams = Plain(8);
  hparams.scaling = manifest::RopeScaling::kLongRope;
  EXPECT_EQ(MakeRope(RopeKind::kNeox, hparams, 10000, {}).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace bellhop::model
