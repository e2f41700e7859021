#include "sys/cgroup.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sys/fake_machine_for_test.h"

namespace bellhop::sys {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

class CgroupTest : public ::testing::Test {
 protected:
  CgroupLimits Read() {
    notes_.clear();
    return ReadCgroupLimits(machine_.root(), &notes_);
  }

  FakeMachine machine_;
  std::vector<std::string> notes_;
};

TEST_F(CgroupTest, UnifiedQuotaAndMemory) {
  machine_.Write("proc/self/cgroup", "0::/");
  machine_.Write("sys/fs/cgroup/cgroup.controllers", "cpu memory");
  machine_.Write("sys/fs/cgroup/cpu.max", "150000 100000");
  machine_.Write("sys/fs/cgroup/memory.max", std::to_string(8 * kGiB));
  const CgroupLimits limits = Read();
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 1.5);
  EXPECT_EQ(limits.memory_limit_bytes, 8 * kGiB);
  EXPECT_EQ(limits.memory_room_bytes, 8 * kGiB);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(CgroupTest, UnifiedWithoutLimits) {
  machine_.Write("proc/self/cgroup", "0::/");
  machine_.Write("sys/fs/cgroup/cgroup.controllers", "cpu memory");
  machine_.Write("sys/fs/cgroup/cpu.max", "max 100000");
  machine_.Write("sys/fs/cgroup/memory.max", "max");
  machine_.Write("sys/fs/cgroup/memory.high", "max");
  const CgroupLimits limits = Read();
  EXPECT_EQ(limits.cpu_quota, 0);
  EXPECT_EQ(limits.memory_limit_bytes, 0u);
  EXPECT_EQ(limits.memory_room_bytes, UINT64_MAX);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(CgroupTest, NestedGroupsTheTightestLevelCounts) {
  machine_.Write("proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope");
  machine_.Write("proc/self/mountinfo",
                 "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate");
  const std::string user = "sys/fs/cgroup/user.slice/user-1000.slice/";
  machine_.Write(user + "session-2.scope/cpu.max", "max 100000");
  machine_.Write(user + "cpu.max", "400000 100000");
  machine_.Write("sys/fs/cgroup/user.slice/cpu.max", "800000 100000");
  machine_.Write(user + "session-2.scope/memory.max", std::to_string(16 * kGiB));
  machine_.Write(user + "session-2.scope/memory.high", std::to_string(12 * kGiB));
  machine_.Write(user + "session-2.scope/memory.current", std::to_string(5 * kGiB));
  machine_.Write(user + "session-2.scope/memory.stat",
                 fmt::format("anon {}\ninactive_file {}\nactive_file {}\n", kGiB, 3 * kGiB, kGiB));
  machine_.Write("sys/fs/cgroup/user.slice/memory.max", std::to_string(20 * kGiB));
  machine_.Write("sys/fs/cgroup/user.slice/memory.current", std::to_string(19 * kGiB));
  const CgroupLimits limits = Read();
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 4.0);
  EXPECT_EQ(limits.memory_limit_bytes, 12 * kGiB);
  EXPECT_EQ(limits.memory_room_bytes, kGiB);  // the slice around it is nearly full
}

TEST_F(CgroupTest, VersionOneControllers) {
  machine_.Write("proc/self/cgroup", "4:memory:/job/7\n2:cpu,cpuacct:/job/7\n1:cpuset:/\n0::/");
  machine_.Write("proc/self/mountinfo",
                 "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
                 "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
                 "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw");
  const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/job/";
  machine_.Write(cpu + "7/cpu.cfs_quota_us", "-1");
  machine_.Write(cpu + "7/cpu.cfs_period_us", "100000");
  machine_.Write(cpu + "cpu.cfs_quota_us", "25000");
  machine_.Write(cpu + "cpu.cfs_period_us", "50000");
  machine_.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  machine_.Write("sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", std::to_string(2 * kGiB));
  machine_.Write("sys/fs/cgroup/memory/job/7/memory.usage_in_bytes", std::to_string(kGiB));
  machine_.Write("sys/fs/cgroup/memory/job/7/memory.stat",
                 fmt::format("inactive_file 1\ntotal_inactive_file {}\ntotal_active_file 0", kGiB / 2));
  const CgroupLimits limits = Read();
  EXPECT_DOUBLE_EQ(limits.cpu_quota, 0.5);
  EXPECT_EQ(limits.memory_limit_bytes, 2 * kGiB);
  EXPECT_EQ(limits.memory_room_bytes, 2 * kGiB - kGiB / 2);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(CgroupTest, ContainerThatReadsItsPathOnTheHost) {
  // Without a cgroup namespace: the path is the host's, and only the container's own group is mounted.
  machine_.Write("proc/self/cgroup", "0::/docker/0123abcd/inner");
  machine_.Write("proc/self/mountinfo", "31 23 0:28 /docker/0123abcd /sys/fs/cgroup ro - cgroup2 cgroup rw");
  machine_.Write("sys/fs/cgroup/cpu.max", "200000 100000");
  machine_.Write("sys/fs/cgroup/inner/cpu.max", "300000 100000");
  EXPECT_DOUBLE_EQ(Read().cpu_quota, 2.0);

  machine_.Write("proc/self/cgroup", "0::/elsewhere/gone");
  machine_.Write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw");
  EXPECT_DOUBLE_EQ(Read().cpu_quota, 2.0);

  machine_.Write("proc/self/cgroup", "0::/../../sibling");
  EXPECT_DOUBLE_EQ(Read().cpu_quota, 2.0);
}

TEST_F(CgroupTest, NoMountTable) {
  machine_.Write("proc/self/cgroup", "2:cpu:/a\n0::/");
  machine_.Write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000");
  machine_.Write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_DOUBLE_EQ(Read().cpu_quota, 3.0);
}

TEST_F(CgroupTest, NothingAtAll) {
  const CgroupLimits limits = Read();
  EXPECT_EQ(limits.cpu_quota, 0);
  EXPECT_EQ(limits.memory_limit_bytes, 0u);
  EXPECT_EQ(notes_.size(), 1u);
}

}  // namespace
}  // namespace bellhop::sys
