#include "plan/miss_lane.h"

#include <gtest/gtest.h>

namespace bellhop::plan {
namespace {

using config::MissLane;

constexpr MachineConstants kServer{.hbm_gbps = 4625,
                                   .dram_gbps = 90,
                                   .pcie_gbps = 50,
                                   .both_dram_gbps = 80,
                                   .both_pcie_gbps = 40,
                                   .sync_us = 4,
                                   .cpu_us = 6,
                                   .fetch_us = 20};

TEST(MissLaneTest, AskedLanesAreTaken) {
  const auto cpu = ChooseMissLane(MissLane::kCpu, kServer, 9'000'000, false);
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(cpu->lane, MissLane::kCpu);
  EXPECT_DOUBLE_EQ(cpu->cpu_share, 1);
  EXPECT_DOUBLE_EQ(cpu->us, 110);
  const auto pcie = ChooseMissLane(MissLane::kPcie, kServer, 9'000'000, true);
  ASSERT_TRUE(pcie.ok());
  EXPECT_DOUBLE_EQ(pcie->cpu_share, 0);
  EXPECT_DOUBLE_EQ(pcie->us, 200);
}

TEST(MissLaneTest, SharesOfASplitEndTogether) {
  for (const uint64_t bytes : {1'200'000, 2'650'000, 100'000'000}) {
    const auto split = ChooseMissLane(MissLane::kSplit, kServer, bytes, false);
    ASSERT_TRUE(split.ok());
    const double cpu = 10 + split->cpu_share * static_cast<double>(bytes) / 80e3;
    const double pcie = 20 + (1 - split->cpu_share) * static_cast<double>(bytes) / 40e3;
    EXPECT_NEAR(cpu, pcie, 1e-9);
    EXPECT_NEAR(split->us, cpu, 1e-9);
    EXPECT_GT(split->cpu_share, 1.0 / 3);  // what starts later gets less
  }
  EXPECT_DOUBLE_EQ(ChooseMissLane(MissLane::kSplit, kServer, 1000, false)->cpu_share, 1);
  MachineConstants quick_link = kServer;
  quick_link.fetch_us = 1;
  EXPECT_DOUBLE_EQ(ChooseMissLane(MissLane::kSplit, quick_link, 1000, false)->cpu_share, 0);
  EXPECT_DOUBLE_EQ(ChooseMissLane(MissLane::kSplit, kServer, 0, false)->cpu_share, 0);
}

TEST(MissLaneTest, AutoTakesTheFastest) {
  EXPECT_EQ(ChooseMissLane(MissLane::kAuto, kServer, 50'000'000, false)->lane, MissLane::kSplit);
  EXPECT_EQ(ChooseMissLane(MissLane::kAuto, kServer, 50'000'000, true)->lane, MissLane::kCpu);
  EXPECT_EQ(ChooseMissLane(MissLane::kAuto, kServer, 10'000, false)->lane, MissLane::kCpu);  // less than a fetch takes
  MachineConstants quick_link = kServer;
  quick_link.fetch_us = 1;
  EXPECT_EQ(ChooseMissLane(MissLane::kAuto, quick_link, 10'000, false)->lane, MissLane::kPcie);
  MachineConstants small = kServer;  // two slow cores: the link does most
  small.dram_gbps = 20;
  small.both_dram_gbps = 12;
  EXPECT_EQ(ChooseMissLane(MissLane::kAuto, small, 50'000'000, true)->lane, MissLane::kPcie);
  const auto split = ChooseMissLane(MissLane::kAuto, small, 50'000'000, false);
  EXPECT_EQ(split->lane, MissLane::kSplit);
  EXPECT_LT(split->cpu_share, 0.25);
}

TEST(MissLaneTest, LanesThatCannotBeHadAreErrors) {
  EXPECT_NE(ChooseMissLane(MissLane::kSplit, kServer, 1, true).status().message().find("--deterministic"),
            std::string::npos);
  for (const MissLane lane : {MissLane::kCpu, MissLane::kPcie, MissLane::kSplit, MissLane::kAuto}) {
    const auto refused = ChooseMissLane(lane, {.hbm_gbps = 1}, 1, false);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("bellhop doctor"), std::string::npos);
  }
  MachineConstants no_pcie{.hbm_gbps = 1, .dram_gbps = 9};
  EXPECT_EQ(ChooseMissLane(MissLane::kAuto, no_pcie, 1, false)->lane, MissLane::kCpu);
}

TEST(MissLaneTest, EstimatesGiveEveryLaneARate) {
  for (const double paper : {0.0, 4000.0}) {
    const MachineConstants machine = DefaultConstants(paper);
    EXPECT_EQ(machine.hbm_gbps, paper > 0 ? 0.8 * paper : 300);
    for (const MissLane lane : {MissLane::kCpu, MissLane::kPcie, MissLane::kSplit, MissLane::kAuto}) {
      EXPECT_GT(machine.MissGbps(lane), 0);
      EXPECT_TRUE(ChooseMissLane(lane, machine, 1 << 20, false).ok());
    }
    // Neither lane is faster beside the other.
    EXPECT_LE(machine.both_dram_gbps, machine.dram_gbps);
    EXPECT_LE(machine.both_pcie_gbps, machine.pcie_gbps);
  }
}

TEST(MissLaneTest, PartsAreWholeBlocks) {
  EXPECT_EQ(CpuInner(0.5, 768, 256), 512);  // the nearest, halves upwards
  EXPECT_EQ(CpuInner(0.4, 768, 256), 256);
  EXPECT_EQ(CpuInner(0, 768, 256), 0);
  EXPECT_EQ(CpuInner(1, 768, 256), 768);
  EXPECT_EQ(CpuInner(1, 800, 256), 800);
  EXPECT_EQ(CpuInner(0.9, 800, 256), 768);
  EXPECT_EQ(CpuInner(0.99, 900, 256), 900);
  for (int share = 0; share <= 100; ++share) {
    const int64_t inner = CpuInner(share / 100.0, 1408, 32);
    EXPECT_EQ(inner % 32, 0);
    EXPECT_NEAR(static_cast<double>(inner), 14.08 * share, 16.001);
  }
}

TEST(MissLaneTest, BothSidesCanCutWhereTheyMeet) {
  MissLaneChoice lane{.lane = MissLane::kSplit, .cpu_share = 0.45};
  EXPECT_EQ(CpuInner(lane, 2880, 32, 128), 1280);  // gpt-oss
  EXPECT_EQ(CpuInner(lane, 768, 256, 64), 256);
  EXPECT_EQ(CpuInner(lane, 768, 4, 96), 384);
  // Too small to be shared: one side computes all of it.
  EXPECT_EQ(CpuInner(lane, 128, 32, 256), 0);
  lane.cpu_share = 0.55;
  EXPECT_EQ(CpuInner(lane, 128, 32, 256), 128);
  lane.lane = MissLane::kPcie;
  EXPECT_EQ(CpuInner(lane, 768, 32, 128), 0);
  lane.lane = MissLane::kCpu;
  EXPECT_EQ(CpuInner(lane, 768, 32, 128), 768);
}

}  // namespace
}  // namespace bellhop::plan
