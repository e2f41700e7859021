#include "sys/host_region.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "sys/page_residency.h"

namespace bellhop::sys {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(HostRegionTest, IsAlignedZeroedAndWritable) {
  const HugePageState state = ReadHugePageState();
  Result<HostRegion> region = HostRegion::Create(5 * kMiB + 123, state, MemoryTag::kExpertWeights);
  ASSERT_TRUE(region.ok()) << region.status().ToString();
  EXPECT_EQ(region->size(), 5 * kMiB + 123);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->bytes().data()) % region->page_bytes(), 0u);
  ASSERT_TRUE(region->Populate(0, region->size()).ok());
  EXPECT_TRUE(
      std::all_of(region->bytes().begin(), region->bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
  region->bytes()[region->size() - 1] = std::byte{7};
  EXPECT_EQ(region->bytes()[region->size() - 1], std::byte{7});
}

TEST(HostRegionTest, SmapsTellsWhatIsPopulated) {
  const HugePageState state = ReadHugePageState();
  Result<HostRegion> region = HostRegion::Create(16 * kMiB, state, MemoryTag::kExpertWeights);
  ASSERT_TRUE(region.ok());
  const auto before = ReadRangePages(region->bytes());
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(before->resident_bytes, 0u);
  ASSERT_TRUE(region->Populate(4 * kMiB, 4 * kMiB).ok());
  const auto part = ReadRangePages(region->bytes());
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->resident_bytes, 4 * kMiB);
  ASSERT_TRUE(region->Populate(0, 16 * kMiB).ok());
  region->Collapse();
  const auto after = ReadRangePages(region->bytes());
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->resident_bytes, 16 * kMiB);
  EXPECT_LE(after->huge_bytes, 16 * kMiB);
  if (!state.transparent_allowed() && !region->reserved()) {
    EXPECT_EQ(after->huge_bytes, 0u);
  }
}

TEST(HostRegionTest, WithoutHugePagesItIsPlainMemory) {
  HugePageState never;
  never.transparent = "never";
  Result<HostRegion> region = HostRegion::Create(4 * kMiB, never, MemoryTag::kExpertWeights);
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(region->page_bytes(), 4096u);
  EXPECT_FALSE(region->reserved());
  ASSERT_TRUE(region->Populate(0, 4 * kMiB).ok());
  const auto pages = ReadRangePages(region->bytes());
  ASSERT_TRUE(pages.has_value());
  EXPECT_EQ(pages->resident_bytes, 4 * kMiB);
}

TEST(HostRegionTest, APoolThatIsNotThereFallsBack) {
  HugePageState state = ReadHugePageState();
  for (HugePagePool& pool : state.pools) {
    if (pool.total > 0) GTEST_SKIP() << "this machine has a pool of huge pages";
  }
  state.pools = {{.page_bytes = 2 * kMiB, .total = 1u << 30, .free = 1u << 30}};  // says more than the kernel will give
  // Address space alone; still modest, for a machine that limits it and for a sanitizer that shadows it.
  Result<HostRegion> region = HostRegion::Create(uint64_t{1} << 30, state, MemoryTag::kExpertWeights);
  ASSERT_TRUE(region.ok()) << region.status().ToString();
  EXPECT_FALSE(region->reserved());
}

TEST(HostRegionTest, AbsurdSizesAreRefused) {
  const Result<HostRegion> region = HostRegion::Create(uint64_t{1} << 60, {}, MemoryTag::kExpertWeights);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(region.status().message().find("expert weights"), std::string::npos);
  const Result<HostRegion> none = HostRegion::Create(0, {}, MemoryTag::kExpertWeights);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->size(), 0u);
  EXPECT_TRUE(none->Populate(0, 1).ok());
}

TEST(HostRegionTest, MovesLeaveTheSourceEmpty) {
  HostRegion a = *HostRegion::Create(kMiB, {}, MemoryTag::kExpertWeights);
  a.bytes()[5] = std::byte{9};
  HostRegion b = std::move(a);
  EXPECT_EQ(a.size(), 0u);  // NOLINT: the moved-from state is part of the contract
  EXPECT_EQ(b.bytes()[5], std::byte{9});
  b = *HostRegion::Create(kMiB, {}, MemoryTag::kExpertWeights);
  EXPECT_EQ(b.bytes()[5], std::byte{0});
}

TEST(HostRegionDeathTest, SealedRegionsRefuseWrites) {
  const HostRegion region = *HostRegion::Create(kMiB, {}, MemoryTag::kExpertWeights);
  region.bytes()[3] = std::byte{9};
  region.MakeReadOnly();
  EXPECT_EQ(region.bytes()[3], std::byte{9});
  EXPECT_DEATH(region.bytes()[3] = std::byte{1}, "");
}

}  // namespace
}  // namespace bellhop::sys
