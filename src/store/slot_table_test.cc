#include "store/slot_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace bellhop::store {
namespace {

constexpr LayerId kLayer0(0), kLayer1(1);

std::unique_ptr<SlotTable> Table(const std::vector<SlotTable::Bank>& banks) {
  auto table = SlotTable::Create(banks);
  EXPECT_TRUE(table.ok()) << table.status().ToString();
  return table.ok() ? std::move(*table) : nullptr;
}

std::vector<int32_t> Slots(const SlotTable& table, LayerId layer) {
  const auto span = table.ExpertToSlot(layer);
  return std::vector<int32_t>(span.begin(), span.end());
}

TEST(SlotTableTest, AReplacedExpertIsSeenAfterPublishAlone) {
  auto table = Table({{.experts = 4, .slots = {ExpertId(2), ExpertId(0)}}, {.experts = 0, .slots = {}}});
  EXPECT_EQ(Slots(*table, kLayer0), (std::vector<int32_t>{1, -1, 0, -1}));
  EXPECT_TRUE(Slots(*table, kLayer1).empty());
  EXPECT_EQ(table->content(kLayer0, SlotId(0)), (SlotContent{kLayer0, ExpertId(2), 1}));

  const uint64_t running = table->BeginStep();
  ASSERT_TRUE(table->Evict(kLayer0, SlotId(0)).ok());
  EXPECT_EQ(Slots(*table, kLayer0), (std::vector<int32_t>{1, -1, 0, -1}));  // steps still use it
  ASSERT_TRUE(table->Publish());
  EXPECT_EQ(Slots(*table, kLayer0), (std::vector<int32_t>{1, -1, -1, -1}));
  EXPECT_EQ(table->state(kLayer0, SlotId(0)), SlotState::kDraining);
  EXPECT_FALSE(table->BeginFill(kLayer0, SlotId(0), ExpertId(3)).ok());  // the step may still read the old bytes
  ASSERT_TRUE(table->EndStep(running).ok());
  EXPECT_EQ(table->state(kLayer0, SlotId(0)), SlotState::kEmpty);

  ASSERT_TRUE(table->BeginFill(kLayer0, SlotId(0), ExpertId(3)).ok());
  ASSERT_TRUE(table->Publish());
  EXPECT_EQ(Slots(*table, kLayer0)[3], -1);  // the copy is in flight
  ASSERT_TRUE(table->FinishFill(kLayer0, SlotId(0), true).ok());
  EXPECT_EQ(Slots(*table, kLayer0)[3], -1);
  ASSERT_TRUE(table->Publish());
  EXPECT_EQ(Slots(*table, kLayer0), (std::vector<int32_t>{1, -1, -1, 0}));
  EXPECT_EQ(table->content(kLayer0, SlotId(0)), (SlotContent{kLayer0, ExpertId(3), 2}));
  EXPECT_EQ(table->version(), 3u);  // one for the eviction, one for the fill
  ASSERT_TRUE(table->Publish());
  EXPECT_EQ(table->version(), 3u);
}

TEST(SlotTableTest, AFailedCopyLeavesTheSlotEmpty) {
  auto table = Table({{.experts = 2, .slots = {ExpertId()}}});
  ASSERT_TRUE(table->BeginFill(kLayer0, SlotId(0), ExpertId(1)).ok());
  ASSERT_TRUE(table->FinishFill(kLayer0, SlotId(0), false).ok());
  ASSERT_TRUE(table->Publish());
  EXPECT_EQ(Slots(*table, kLayer0), (std::vector<int32_t>{-1, -1}));
  EXPECT_EQ(table->state(kLayer0, SlotId(0)), SlotState::kEmpty);
  ASSERT_TRUE(table->BeginFill(kLayer0, SlotId(0), ExpertId(1)).ok());
  EXPECT_EQ(table->content(kLayer0, SlotId(0)).generation, 2u);
}

// Two sets of tables: a third placement waits for the steps that use the first.
TEST(SlotTableTest, APublishWaitsForStepsThatUseItsTables) {
  auto table = Table({{.experts = 3, .slots = {ExpertId(0), ExpertId(1)}}});
  const uint64_t first = table->BeginStep();
  ASSERT_TRUE(table->Evict(kLayer0, SlotId(0)).ok());
  ASSERT_TRUE(table->Publish());
  const uint64_t second = table->BeginStep();
  ASSERT_TRUE(table->Evict(kLayer0, SlotId(1)).ok());
  EXPECT_FALSE(table->Publish());
  EXPECT_EQ(table->state(kLayer0, SlotId(1)), SlotState::kEvicted);
  EXPECT_EQ(table->EndStep(second).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(table->EndStep(first).ok());
  EXPECT_TRUE(table->Publish());
  ASSERT_TRUE(table->EndStep(second).ok());
  EXPECT_EQ(table->steps_in_flight(), 0);
  EXPECT_FALSE(table->EndStep(second).ok());
}

TEST(SlotTableTest, RefusesWhatIsOutOfOrder) {
  EXPECT_FALSE(SlotTable::Create({{.experts = 2, .slots = {ExpertId(2)}}}).ok());
  EXPECT_FALSE(SlotTable::Create({{.experts = 2, .slots = {ExpertId(1), ExpertId(1)}}}).ok());
  auto table = Table({{.experts = 3, .slots = {ExpertId(0), ExpertId(), ExpertId()}}});
  for (const Status& refused :
       {table->Evict(kLayer0, SlotId(1)), table->Evict(kLayer0, SlotId(3)), table->Evict(LayerId(1), SlotId(0)),
        table->Evict(LayerId(-1), SlotId(0)), table->BeginFill(kLayer0, SlotId(0), ExpertId(1)),
        table->BeginFill(kLayer0, SlotId(1), ExpertId(0)), table->BeginFill(kLayer0, SlotId(1), ExpertId(3)),
        table->BeginFill(kLayer0, SlotId(1), ExpertId(-1)), table->FinishFill(kLayer0, SlotId(1), true)}) {
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused.ToString();
  }
  ASSERT_TRUE(table->BeginFill(kLayer0, SlotId(1), ExpertId(2)).ok());
  EXPECT_FALSE(table->BeginFill(kLayer0, SlotId(2), ExpertId(2)).ok());
}

TEST(SlotTableTest, ChecksumsFindOverwrittenSlots) {
  std::vector<std::byte> bytes(37, std::byte{5});
  const uint64_t sum = SlotTable::Checksum(bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x80};
    EXPECT_NE(SlotTable::Checksum(bytes), sum) << i;
    bytes[i] ^= std::byte{0x80};
  }
  EXPECT_EQ(SlotTable::Checksum(bytes), sum);
  EXPECT_NE(SlotTable::Checksum(HostSpan<const std::byte>(bytes).subspan(0, 36)), sum);

  auto table = Table({{.experts = 3, .slots = {ExpertId(0), ExpertId(1), ExpertId()}}});
  table->SetChecksum(kLayer0, SlotId(1), sum);
  int reads = 0;
  uint64_t found = sum;
  const auto read = [&](LayerId, SlotId) -> Result<uint64_t> {
    ++reads;
    return found;
  };
  EXPECT_TRUE(table->Verify(read).ok());
  EXPECT_EQ(reads, 1);
  found = sum + 1;
  const Status status = table->Verify(read);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("slot 1 of layer 0 (expert 1, generation 1)"), std::string::npos)
      << status.ToString();
  ASSERT_TRUE(table->Evict(kLayer0, SlotId(1)).ok());
  ASSERT_TRUE(table->Publish());
  EXPECT_TRUE(table->Verify(read).ok());  // empty: nothing to compare
}

// Thousands of steps, up to three in flight, with promotions between them. A step looks its experts up when it ends, as
// late as a device may: what it finds must be what its placement said when it began.
TEST(SlotTableTest, NoStepEverFindsAnotherExpertThanItsPlacementSays) {
  constexpr int32_t kExperts = 12, kSlots = 5;
  std::vector<SlotTable::Bank> banks(
      2, {.experts = kExperts, .slots = {ExpertId(0), ExpertId(1), ExpertId(2), ExpertId(), ExpertId()}});
  auto table = Table(banks);
  int32_t memory[2][kSlots] = {{0, 1, 2, -1, -1}, {0, 1, 2, -1, -1}};  // the bytes of a slot: an expert's id, -1: torn
  struct Running {
    uint64_t step;
    HostSpan<const int32_t> tables[2];
    std::vector<int32_t> before[2];
  };
  std::deque<Running> running;
  std::mt19937 random(11);
  int fills = 0, waits = 0;
  for (int round = 0; round < 20000; ++round) {
    const LayerId layer(static_cast<int32_t>(random() % 2));
    const SlotId slot(static_cast<int32_t>(random() % kSlots));
    switch (random() % 6) {
      case 0:
        if (running.size() == 3) break;
        running.push_back({table->BeginStep(),
                           {table->ExpertToSlot(kLayer0), table->ExpertToSlot(kLayer1)},
                           {Slots(*table, kLayer0), Slots(*table, kLayer1)}});
        break;
      case 1: {
        if (running.empty()) break;
        const Running& step = running.front();
        for (size_t l = 0; l < 2; ++l) {
          ASSERT_TRUE(std::equal(step.before[l].begin(), step.before[l].end(), step.tables[l].begin()));
          for (int32_t e = 0; e < kExperts; ++e) {
            const int32_t s = step.before[l][static_cast<size_t>(e)];
            if (s < 0) continue;
            ASSERT_EQ(memory[l][s], e) << "round " << round;
          }
        }
        ASSERT_TRUE(table->EndStep(step.step).ok());
        running.pop_front();
        break;
      }
      case 2:
        if (table->state(layer, slot) != SlotState::kResident) break;
        ASSERT_TRUE(table->Evict(layer, slot).ok());
        break;
      case 3: {
        const ExpertId expert(static_cast<int32_t>(random() % kExperts));
        // The table alone says whether the slot may be written now.
        if (table->BeginFill(layer, slot, expert).ok()) memory[layer.index()][slot.index()] = -1;
        break;
      }
      case 4:
        if (table->state(layer, slot) != SlotState::kFilling) break;
        memory[layer.index()][slot.index()] = table->content(layer, slot).expert.value;
        ASSERT_TRUE(table->FinishFill(layer, slot, true).ok());
        ++fills;
        break;
      case 5: waits += table->Publish() ? 0 : 1; break;
    }
  }
  EXPECT_GT(fills, 200);
  EXPECT_GT(waits, 50);
}

}  // namespace
}  // namespace bellhop::store
