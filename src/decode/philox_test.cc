#include "decode/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace bellhop::decode {
namespace {

void ExpectWords(PhiloxCounter counter, PhiloxKey key, PhiloxCounter want) {
  const PhiloxCounter got = Philox4x32(counter, key);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], want.word[i]) << "word " << i;
}

// The three vectors that the authors publish for philox4x32 with 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  ExpectWords({{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  ExpectWords({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, {{0xffffffff, 0xffffffff}},
              {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  ExpectWords({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}},
              {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(PhiloxTest, UniformAtTakesItsBitsFromTheFirstTwoWords) {
  const double want = static_cast<double>((uint64_t{0x6627e8d5} >> 5) << 26 | uint64_t{0xe169c58d} >> 6) * 0x1p-53;
  EXPECT_EQ(UniformAt(0, 0, 0), want);
  const double all_ones = static_cast<double>((uint64_t{0x408f276d} >> 5) << 26 | uint64_t{0x41c83b0e} >> 6) * 0x1p-53;
  EXPECT_EQ(UniformAt(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}), all_ones);
  static_assert(UniformAt(1, 2, 3) == UniformAt(1, 2, 3));
  static_assert(UniformAt(1, 2, 3) != UniformAt(1, 2, 4));
}

TEST(PhiloxTest, EveryArgumentBitMatters) {
  std::set<double> seen = {UniformAt(5, 5, 5)};
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flipped = 5 ^ (uint64_t{1} << bit);
    EXPECT_TRUE(seen.insert(UniformAt(flipped, 5, 5)).second) << bit;
    EXPECT_TRUE(seen.insert(UniformAt(5, flipped, 5)).second) << bit;
    EXPECT_TRUE(seen.insert(UniformAt(5, 5, flipped)).second) << bit;
  }
}

TEST(PhiloxTest, UniformAtFillsTheUnitInterval) {
  constexpr int kDraws = 100000;
  double sum = 0;
  int tenths[10] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double u = UniformAt(42, 7, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    ++tenths[static_cast<int>(u * 10)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);                             // 5.5 standard errors
  for (int count : tenths) EXPECT_NEAR(count, kDraws / 10, 5 * 95);  // 5 standard deviations
}

}  // namespace
}  // namespace bellhop::decode
