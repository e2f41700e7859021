#include "frontends/cli/statistics.h"

#include <gtest/gtest.h>

namespace bellhop::cli {
namespace {

TEST(StatisticsTest, KnownValues) {
  EXPECT_DOUBLE_EQ(Mean({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(StandardDeviation({2, 4, 4, 4, 5, 5, 7, 9}), 2.138089935299395);
  EXPECT_DOUBLE_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(Quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Quantile({0, 10}, 0.9), 9);
  EXPECT_DOUBLE_EQ(Quantile({5}, 0.9), 5);
}

TEST(StatisticsTest, TooFewValues) {
  EXPECT_EQ(Mean({}), 0);
  EXPECT_EQ(StandardDeviation({5}), 0);
  EXPECT_EQ(Quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace bellhop::cli
