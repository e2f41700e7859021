#include "base/units.h"

#include <gtest/gtest.h>

namespace bellhop {
namespace {

TEST(ParseByteSizeTest, AcceptsUnits) {
  EXPECT_EQ(*ParseByteSize("0"), 0u);
  EXPECT_EQ(*ParseByteSize("4096"), 4096u);
  EXPECT_EQ(*ParseByteSize("12GiB"), 12ull << 30);
  EXPECT_EQ(*ParseByteSize("12 gib"), 12ull << 30);
  EXPECT_EQ(*ParseByteSize("12Gi"), 12ull << 30);
  EXPECT_EQ(*ParseByteSize("12GB"), 12000000000ull);
  EXPECT_EQ(*ParseByteSize("12G"), 12000000000ull);
  EXPECT_EQ(*ParseByteSize("1.5MiB"), 1572864u);
  EXPECT_EQ(*ParseByteSize("10B"), 10u);
}

TEST(ParseByteSizeTest, RefusesNonsense) {
  for (const char* bad :
       {"", "GiB", "-1", "-0", "12XB", "12GiBB", "12GGB", "nan", "inf", "1e400", "99999999TiB", "12 G iB"}) {
    EXPECT_FALSE(ParseByteSize(bad).ok()) << bad;
  }
}

TEST(FormatBytesTest, ThreeDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(17350000), "17.4 MB");
  EXPECT_EQ(FormatBytes(999600), "1.00 MB");
  EXPECT_EQ(FormatBytes(123456789012ull), "123 GB");
}

}  // namespace
}  // namespace bellhop
