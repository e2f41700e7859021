// How the misses of a prompt's chunk come to the GPU: each layer's experts without a slot in waves through two banks,
// one filled while the other is computed. Decided once, from the placement. Pure, and in every build.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "model/stages.h"
#include "plan/placement.h"

namespace bellhop::model {

// Misses that the GPU computes have slot numbers from here on; no bank has so many.
inline constexpr int32_t kFirstStagingSlot = 1 << 20;
inline constexpr int kWaveBanks = 2;

// Experts [first, first + count) of a layer's `cold`; the bank's slot 0 is that of the first.
struct PromptWave {
  int32_t first = 0, count = 0;
  int32_t bank = 0;
};

struct LayerWaves {
  std::vector<ExpertId> cold;  // ascending; expert i has slot number kFirstStagingSlot + i
  std::vector<PromptWave> waves;
};

// Slots of a bank of `bank_bytes`; one at least.
int32_t WaveSlots(uint64_t slot_bytes, uint64_t bank_bytes);

// Bytes of a bank that is at most `most_bytes` if one expert of every layer fits, and no larger than any layer needs.
// slot_bytes, experts: [layers].
uint64_t WaveBankBytes(HostSpan<const uint64_t> slot_bytes, HostSpan<const int32_t> experts, uint64_t most_bytes);

// Waves of about equal size that fit, in alternating banks over all layers. slot_bytes: [layers].
std::vector<LayerWaves> PlanWaves(const plan::Placement& placement, HostSpan<const uint64_t> slot_bytes,
                                  uint64_t bank_bytes);

// [experts] of a layer: where each is while a prompt runs, its slot or its number among the misses.
std::vector<int32_t> PromptSlots(const plan::Placement& placement, LayerId layer, const LayerWaves& waves);

// How many of the rows, from the first on, are one chunk: consecutive positions of one sequence, `most` at most.
size_t ChunkRows(HostSpan<const StepRow> rows, size_t most);

// Whether a chunk needs so many of a layer's experts that all misses are fetched before the routes are known.
bool FetchesAll(int64_t rows, int32_t used, int32_t experts);

}  // namespace bellhop::model
