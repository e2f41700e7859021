#include "sys/huge_pages.h"

#include <gtest/gtest.h>

#include "sys/fake_machine_for_test.h"

namespace bellhop::sys {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

void AddPool(const FakeMachine& machine, uint64_t kib, int total, int free, int promised) {
  const std::string folder = fmt::format("sys/kernel/mm/hugepages/hugepages-{}kB/", kib);
  machine.Write(folder + "nr_hugepages", fmt::format("{}", total));
  machine.Write(folder + "free_hugepages", fmt::format("{}", free));
  machine.Write(folder + "resv_hugepages", fmt::format("{}", promised));
}

TEST(HugePagesTest, ReadsModeAndPools) {
  const FakeMachine machine;
  machine.Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  machine.Write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");
  AddPool(machine, 1048576, 2, 1, 1);
  AddPool(machine, 2048, 100, 80, 30);
  machine.Write("sys/kernel/mm/hugepages/other", "");
  const HugePageState state = ReadHugePageState(machine.root());
  EXPECT_EQ(state.transparent, "madvise");
  EXPECT_TRUE(state.transparent_allowed());
  EXPECT_EQ(state.transparent_bytes, 2 * kMiB);
  ASSERT_EQ(state.pools.size(), 2u);
  EXPECT_EQ(state.pools[0].page_bytes, 2 * kMiB);
  EXPECT_EQ(state.pools[0].total, 100u);
  EXPECT_EQ(state.pools[0].free, 50u);  // 30 of the free ones are promised
  EXPECT_EQ(state.pools[1].page_bytes, 1024 * kMiB);
  EXPECT_EQ(state.pools[1].free, 0u);
  EXPECT_EQ(state.FindPool(100 * kMiB), &state.pools[0]);
  EXPECT_EQ(state.FindPool(100 * kMiB + 1), nullptr);
  EXPECT_TRUE(state.WhyNot(500 * kMiB).empty());
}

TEST(HugePagesTest, TheSmallestPagesThatSufficeAreTaken) {
  HugePageState state;
  state.pools = {{.page_bytes = 2 * kMiB, .total = 8, .free = 8}, {.page_bytes = 1024 * kMiB, .total = 4, .free = 4}};
  EXPECT_EQ(state.FindPool(16 * kMiB)->page_bytes, 2 * kMiB);
  EXPECT_EQ(state.FindPool(17 * kMiB)->page_bytes, 1024 * kMiB);
  EXPECT_EQ(state.FindPool(4096 * kMiB + 1), nullptr);
}

TEST(HugePagesTest, RefusalsNameTheReasonAndTheRemedy) {
  HugePageState never;
  never.transparent = "never";
  never.pools = {{.page_bytes = 2 * kMiB, .total = 10, .free = 4}};
  const std::string why = never.WhyNot(100 * kMiB);
  EXPECT_NE(why.find("/sys/kernel/mm/transparent_hugepage/enabled: never"), std::string::npos) << why;
  EXPECT_NE(why.find("echo madvise"), std::string::npos) << why;
  EXPECT_NE(why.find("vm.nr_hugepages=56"), std::string::npos) << why;  // 6 in use and 50 more
  EXPECT_TRUE(never.WhyNot(8 * kMiB).empty());                          // the pool holds them
  const std::string none = HugePageState().WhyNot(2 * kMiB);
  EXPECT_NE(none.find("this kernel has no transparent huge pages"), std::string::npos) << none;
  EXPECT_NE(none.find("vm.nr_hugepages=1"), std::string::npos) << none;
}

TEST(HugePagesTest, AMachineThatSaysNothingHasNone) {
  const FakeMachine machine;
  const HugePageState state = ReadHugePageState(machine.root());
  EXPECT_FALSE(state.transparent_allowed());
  EXPECT_EQ(state.transparent_bytes, 0u);
  EXPECT_TRUE(state.pools.empty());
}

}  // namespace
}  // namespace bellhop::sys
