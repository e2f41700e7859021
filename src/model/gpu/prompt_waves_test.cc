#include "model/gpu/prompt_waves.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace bellhop::model {
namespace {

// Layer 0 has no experts, layer 1 all in slots, layer 2 none, layer 3 every other one.
plan::Placement Mixed() {
  const std::vector<int32_t> experts = {0, 4, 7, 10};
  std::vector<std::vector<ExpertId>> residents(4);
  for (int32_t e = 3; e >= 0; --e) residents[1].push_back(ExpertId(e));
  for (int32_t e = 0; e < 10; e += 2) residents[3].push_back(ExpertId(e));
  return plan::Placement::FromSlots(experts, residents);
}

TEST(PromptWavesTest, EveryMissIsInOneWaveThatFits) {
  const plan::Placement placement = Mixed();
  const std::vector<uint64_t> slot_bytes = {0, 100, 100, 300};
  for (const uint64_t bank_bytes : {300u, 500u, 700u, 5000u}) {
    const auto layers = PlanWaves(placement, slot_bytes, bank_bytes);
    ASSERT_EQ(layers.size(), 4u);
    EXPECT_TRUE(layers[0].waves.empty());
    EXPECT_TRUE(layers[1].waves.empty() && layers[1].cold.empty());
    int32_t number = 0;
    for (size_t l = 2; l < 4; ++l) {
      int32_t next = 0, least = 100, most = 0;
      for (const PromptWave& wave : layers[l].waves) {
        EXPECT_EQ(wave.first, next);
        EXPECT_GT(wave.count, 0);
        EXPECT_LE(static_cast<uint64_t>(wave.count) * slot_bytes[l], bank_bytes);
        EXPECT_EQ(wave.bank, number++ % 2);
        next += wave.count;
        least = std::min(least, wave.count);
        most = std::max(most, wave.count);
      }
      EXPECT_EQ(next, static_cast<int32_t>(layers[l].cold.size()));
      EXPECT_LE(most - least, 1);
    }
    EXPECT_EQ(layers[2].cold.size(), 7u);
    ASSERT_EQ(layers[3].cold.size(), 5u);
    for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(layers[3].cold[static_cast<size_t>(i)], ExpertId(2 * i + 1));
  }
  EXPECT_EQ(PlanWaves(placement, slot_bytes, 300)[2].waves.size(), 3u);
  EXPECT_EQ(PlanWaves(placement, slot_bytes, 300)[3].waves.size(), 5u);
  // A bank that is too small for one expert is not what WaveBankBytes gives; it is taken as one slot.
  EXPECT_EQ(PlanWaves(placement, slot_bytes, 10)[2].waves.size(), 7u);
}

TEST(PromptWavesTest, SlotsOfHitsAndNumbersOfMisses) {
  const plan::Placement placement = Mixed();
  const auto layers = PlanWaves(placement, std::vector<uint64_t>{0, 1, 1, 1}, 2);
  EXPECT_TRUE(PromptSlots(placement, LayerId(0), layers[0]).empty());
  EXPECT_EQ(PromptSlots(placement, LayerId(1), layers[1]), (std::vector<int32_t>{3, 2, 1, 0}));
  constexpr int32_t kFirst = kFirstStagingSlot;
  EXPECT_EQ(PromptSlots(placement, LayerId(3), layers[3]),
            (std::vector<int32_t>{0, kFirst, 1, kFirst + 1, 2, kFirst + 2, 3, kFirst + 3, 4, kFirst + 4}));
}

TEST(PromptWavesTest, ABankHoldsOneExpertAtLeastAndNoMoreThanALayer) {
  const std::vector<int32_t> experts = {0, 4, 7, 10};
  const std::vector<uint64_t> slot_bytes = {0, 100, 100, 300};
  EXPECT_EQ(WaveBankBytes(slot_bytes, experts, 1), 300u);
  EXPECT_EQ(WaveBankBytes(slot_bytes, experts, 650), 600u);
  EXPECT_EQ(WaveBankBytes(slot_bytes, experts, 750), 700u);
  EXPECT_EQ(WaveBankBytes(slot_bytes, experts, 1 << 20), 3000u);
  EXPECT_EQ(WaveBankBytes(std::vector<uint64_t>{0}, std::vector<int32_t>{0}, 1 << 20), 0u);
  EXPECT_EQ(WaveSlots(300, 1), 1);
  EXPECT_EQ(WaveSlots(300, 899), 2);
}

TEST(PromptWavesTest, AChunkIsOnePieceOfOneSequence) {
  SequenceState* const one = reinterpret_cast<SequenceState*>(64);
  SequenceState* const other = reinterpret_cast<SequenceState*>(128);
  const std::vector<StepRow> rows = {{one, 3}, {one, 4}, {one, 5}, {one, 9}, {other, 10}, {other, 11}};
  const HostSpan<const StepRow> all(rows);
  EXPECT_EQ(ChunkRows(all, 100), 3u);
  EXPECT_EQ(ChunkRows(all, 2), 2u);
  EXPECT_EQ(ChunkRows(all.subspan(3), 100), 1u);
  EXPECT_EQ(ChunkRows(all.subspan(4), 100), 2u);
  EXPECT_EQ(ChunkRows(all.subspan(6), 100), 0u);
}

TEST(PromptWavesTest, LargeChunksFetchAllMisses) {
  EXPECT_TRUE(FetchesAll(512, 8, 128));
  EXPECT_FALSE(FetchesAll(1, 8, 128));
  EXPECT_TRUE(FetchesAll(1, 8, 1));
  EXPECT_TRUE(FetchesAll(65536, 32, 1024));
}

}  // namespace
}  // namespace bellhop::model
