#include "base/status.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "base/ids.h"
#include "base/span.h"

namespace bellhop {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument("{} is odd", n);
  return n / 2;
}

Status Quarter(int n, int* out) {
  BELLHOP_TRY_ASSIGN(const int half, Half(n));
  BELLHOP_TRY_ASSIGN(*out, Half(half));
  return Status();
}

TEST(StatusTest, CarriesCodeMessageAndContext) {
  int out = 0;
  EXPECT_TRUE(Quarter(8, &out).ok());
  EXPECT_EQ(out, 2);
  const Status failed = Quarter(6, &out);
  EXPECT_EQ(failed.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(failed.message(), "3 is odd");
  EXPECT_EQ(failed.WithContext("half").ToString(), "invalid argument: half: 3 is odd");
  EXPECT_TRUE(Status().WithContext("anything").ok());
}

TEST(StatusTest, IsOnePointerAndCopies) {
  static_assert(sizeof(Status) == sizeof(void*));
  const Status a = Corrupt("bytes {}", 7);
  const Status b = a;  // NOLINT: the copy is what is tested
  EXPECT_EQ(b.message(), a.message());
}

TEST(ResultTest, OkStatusIsAnInternalError) {
  const Result<int> r{Status()};
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), StatusCode::kInternal);
}

TEST(IdsTest, DistinctIdsDoNotConvert) {
  static_assert(!std::is_convertible_v<LayerId, ExpertId>);
  static_assert(!std::is_constructible_v<LayerId, ExpertId>);
  static_assert(!std::is_convertible_v<HostSpan<float>, DeviceSpan<float>>);
  static_assert(!std::is_convertible_v<HostSpan<float>, PinnedSpan<float>>);
  static_assert(std::is_convertible_v<PinnedSpan<float>, HostSpan<const float>>);
  EXPECT_FALSE(SlotId().valid());
  EXPECT_LT(ExpertId(1), ExpertId(2));
}

}  // namespace
}  // namespace bellhop
