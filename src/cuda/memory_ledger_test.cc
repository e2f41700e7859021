#include "cuda/memory_ledger.h"

#include <gtest/gtest.h>

#include <thread>

#include "cuda/memory.h"

namespace bellhop::cuda {
namespace {

constexpr DeviceId kGpu0(0), kGpu1(1);

TEST(MemoryLedgerTest, CountsByDeviceKindAndTagAsLongAsChargesLive) {
  MemoryLedger ledger;
  {
    const MemoryCharge weights(&ledger, kGpu0, MemoryKind::kDevice, MemoryTag::kExpertWeights, 100);
    MemoryCharge cache(&ledger, kGpu0, MemoryKind::kDevice, MemoryTag::kKvCache, 40);
    const MemoryCharge pinned(&ledger, kGpu0, MemoryKind::kPinned, MemoryTag::kDoorbell, 7);
    const MemoryCharge other(&ledger, kGpu1, MemoryKind::kDevice, MemoryTag::kKvCache, 5);
    EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kDevice), 140u);
    EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kDevice, MemoryTag::kKvCache), 40u);
    EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kPinned), 7u);
    EXPECT_EQ(ledger.bytes(kGpu1, MemoryKind::kDevice), 5u);
    EXPECT_EQ(ledger.bytes(kGpu1, MemoryKind::kRegistered), 0u);
    EXPECT_EQ(ledger.bytes(kGpu1, MemoryKind::kRegistered, MemoryTag::kOther), 0u);

    MemoryCharge moved = std::move(cache);
    EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kDevice), 140u);
    EXPECT_EQ(moved.tag(), MemoryTag::kKvCache);
    moved = MemoryCharge(&ledger, kGpu0, MemoryKind::kDevice, MemoryTag::kWorkspace, 1);
    EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kDevice, MemoryTag::kKvCache), 0u);
    EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kDevice), 101u);

    const auto lines = ledger.lines();
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0].tag, MemoryTag::kExpertWeights);
    EXPECT_EQ(lines[1].tag, MemoryTag::kWorkspace);
    EXPECT_EQ(lines[2].kind, MemoryKind::kPinned);
    EXPECT_EQ(lines[3].device, kGpu1);
  }
  EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kDevice), 0u);
  EXPECT_EQ(ledger.peak_bytes(kGpu0, MemoryKind::kDevice), 141u);  // the old charge lives until the new one is made
  EXPECT_EQ(ledger.peak_bytes(kGpu1, MemoryKind::kPinned), 0u);
  EXPECT_EQ(ledger.charges(), 5u);
  EXPECT_TRUE(ledger.lines().empty());
}

TEST(MemoryLedgerTest, ThreadsShareIt) {
  MemoryLedger ledger;
  auto work = [&] {
    for (int i = 0; i < 1000; ++i) {
      const MemoryCharge charge(&ledger, kGpu0, MemoryKind::kPinned, MemoryTag::kStaging, 3);
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(ledger.bytes(kGpu0, MemoryKind::kPinned), 0u);
  EXPECT_EQ(ledger.charges(), 2000u);
}

TEST(MergedPagesTest, EveryPageIsThereOnce) {
  using Ranges = std::vector<AddressRange>;
  EXPECT_TRUE(MergedPages({}, 0x1000).empty());
  EXPECT_TRUE(MergedPages({{0x1800, 0x1800}}, 0x1000).empty());
  EXPECT_EQ(MergedPages({{0x1234, 0x1235}}, 0x1000), (Ranges{{0x1000, 0x2000}}));
  // In any order; those that share a page and those that touch are one.
  EXPECT_EQ(MergedPages({{0x5800, 0x6000}, {0x1100, 0x2100}, {0x2100, 0x2f00}, {0x3000, 0x3001}}, 0x1000),
            (Ranges{{0x1000, 0x4000}, {0x5000, 0x6000}}));
  EXPECT_EQ(MergedPages({{0x1000, 0x9000}, {0x2000, 0x3000}}, 0x1000), (Ranges{{0x1000, 0x9000}}));
}

TEST(RegistrationPiecesTest, CoverWholePagesWithoutGapsOrOverlap) {
  EXPECT_TRUE(RegistrationPieces(0x1000, 0, 0x2000, 0x1000).empty());
  EXPECT_EQ(RegistrationPieces(0x1234, 1, 0x2000, 0x1000), (std::vector<AddressRange>{{0x1000, 0x2000}}));
  EXPECT_EQ(RegistrationPieces(0x1fff, 2, 0x2000, 0x1000), (std::vector<AddressRange>{{0x1000, 0x3000}}));
  EXPECT_EQ(RegistrationPieces(0x1000, 0x1000, 0x2000, 0x1000), (std::vector<AddressRange>{{0x1000, 0x2000}}));
  EXPECT_EQ(RegistrationPieces(0x1800, 0x4000, 0x2000, 0x1000),
            (std::vector<AddressRange>{{0x1000, 0x3000}, {0x3000, 0x5000}, {0x5000, 0x6000}}));
}

}  // namespace
}  // namespace bellhop::cuda
