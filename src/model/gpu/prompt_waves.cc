#include "model/gpu/prompt_waves.h"

#include <algorithm>

#include "base/units.h"

namespace bellhop::model {

int32_t WaveSlots(uint64_t slot_bytes, uint64_t bank_bytes) {
  return static_cast<int32_t>(std::clamp<uint64_t>(bank_bytes / slot_bytes, 1, kFirstStagingSlot));
}

uint64_t WaveBankBytes(HostSpan<const uint64_t> slot_bytes, HostSpan<const int32_t> experts, uint64_t most_bytes) {
  uint64_t bytes = 0;
  for (size_t l = 0; l < slot_bytes.size(); ++l) {
    if (experts[l] == 0) continue;
    const int32_t slots = std::min(WaveSlots(slot_bytes[l], most_bytes), experts[l]);
    bytes = std::max(bytes, slot_bytes[l] * static_cast<uint64_t>(slots));
  }
  return bytes;
}

std::vector<LayerWaves> PlanWaves(const plan::Placement& placement, HostSpan<const uint64_t> slot_bytes,
                                  uint64_t bank_bytes) {
  std::vector<LayerWaves> layers(static_cast<size_t>(placement.layers()));
  int32_t number = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerId layer(static_cast<int32_t>(l));
    LayerWaves& own = layers[l];
    for (int32_t e = 0; e < placement.experts(layer); ++e) {
      if (!placement.IsHit(layer, ExpertId(e))) own.cold.push_back(ExpertId(e));
    }
    const auto count = static_cast<int32_t>(own.cold.size());
    if (count == 0) continue;
    const auto waves = static_cast<int32_t>(CeilDiv(count, WaveSlots(slot_bytes[l], bank_bytes)));
    for (int32_t w = 0; w < waves; ++w) {
      const auto begin = static_cast<int32_t>(int64_t{count} * w / waves);
      const auto end = static_cast<int32_t>(int64_t{count} * (w + 1) / waves);
      own.waves.push_back({begin, end - begin, number++ % kWaveBanks});
    }
  }
  return layers;
}

std::vector<int32_t> PromptSlots(const plan::Placement& placement, LayerId layer, const LayerWaves& waves) {
  std::vector<int32_t> slots = placement.ExpertToSlot(layer);
  for (size_t i = 0; i < waves.cold.size(); ++i) {
    slots[waves.cold[i].index()] = kFirstStagingSlot + static_cast<int32_t>(i);
  }
  return slots;
}

size_t ChunkRows(HostSpan<const StepRow> rows, size_t most) {
  size_t count = std::min<size_t>(rows.size(), 1);
  while (count < std::min(rows.size(), most) && rows[count].sequence == rows[0].sequence &&
         rows[count].position == rows[count - 1].position + 1) {
    ++count;
  }
  return count;
}

// With even routing, e^-8 of the experts are then fetched in vain.
bool FetchesAll(int64_t rows, int32_t used, int32_t experts) { return rows * used >= int64_t{8} * experts; }

}  // namespace bellhop::model
