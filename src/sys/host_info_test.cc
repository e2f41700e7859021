#include "sys/host_info.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "sys/fake_machine_for_test.h"

namespace bellhop::sys {
namespace {

TEST(HostInfoTest, DescribesTheMachine) {
  FakeMachine machine;
  machine.AddServer(2, 24, 2);
  const HostInfo info = ReadHostInfo(ReadTopology(machine.root()), machine.root());
  EXPECT_NE(info.machine.find("48 cores, 2 NUMA nodes, 125 GiB"), std::string::npos) << info.machine;
  EXPECT_EQ(info.kernel.rfind("Linux ", 0), 0u) << info.kernel;
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  if (std::string(name).size() > 3) {
    EXPECT_EQ(info.machine.find(name), std::string::npos);
  }
}

TEST(HostInfoTest, LargestCache) {
  FakeMachine machine;
  EXPECT_EQ(LastLevelCacheBytes(machine.root()), 0u);
  const std::string folder = "sys/devices/system/cpu/cpu0/cache/index";
  machine.Write(folder + "0/size", "48K");
  machine.Write(folder + "1/size", "2048K");
  machine.Write(folder + "2/size", "105M");
  machine.Write(folder + "3/size", "bad");
  EXPECT_EQ(LastLevelCacheBytes(machine.root()), 105ull << 20);
}

TEST(HostInfoTest, MemoryOfThisProcessGrowsWithUse) {
  FakeMachine machine;
  EXPECT_EQ(ReadProcessMemory(machine.root()).resident_bytes, 0u);
  const ProcessMemory before = ReadProcessMemory();
  EXPECT_GT(before.resident_bytes, 0u);
  const std::vector<char> block(size_t{32} << 20, 1);
  const ProcessMemory after = ReadProcessMemory();
  EXPECT_GE(after.anonymous_bytes, before.anonymous_bytes + (uint64_t{24} << 20));
  EXPECT_GE(after.peak_resident_bytes, after.resident_bytes);
  EXPECT_EQ(block.back(), 1);
}

}  // namespace
}  // namespace bellhop::sys
